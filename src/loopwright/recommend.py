"""Which engine suits a task: a table of signals in its wording and its tools, each with the reason that it gives."""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .errors import ConfigError
from .messages import ToolSpec
from .tools import Tool

MAX_CHARS = 20_000  # of a task; what stands behind that is material, not a request
REACT, PLAN, REFLEXION, SELF_ASK = "react", "plan-execute", "reflexion", "self-ask"
THOUGHT, CRITIC, TREE = "chain-of-thought", "critic", "tree-of-thoughts"
SPECIFIC = (CRITIC, REFLEXION, TREE, SELF_ASK, PLAN)  # of equal ones the first is recommended
ENOUGH = 3  # what the signals for an engine must weigh together


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """An engine by its entry-point name, why, and the next best ones, best first."""

    engine: str
    reason: str
    alternatives: tuple[str, ...]


class Signal(NamedTuple):
    """What speaks for an engine: how much, when, and why."""

    engine: str
    weight: int
    applies: Callable[["Reading"], bool]
    reason: str


# --- reading a task ---

_FENCE = re.compile(r"```[\s\S]*?(?:```|\Z)")
_QUOTED = re.compile(r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|(?<!\w)'[^'\n]{1,300}'(?!\w)")
_CODE = re.compile(r"\bdef \w+\(|\bassert \w|\bfn \w+\(|\bfunction \w+\(|\bclass \w+[:({]")
_CLAUSE_ENDS = re.compile(r"[\n.;:!?,]|\band\b|\bthen\b|\bthat\b|(?:\s|^)[-*–](?=\s)")
_POLITE = re.compile(
    r"[^\w\s]|\s|\d{1,3}[.)]|(?:please|kindly|now|also|first(?:ly)?|second(?:ly)?|third(?:ly)?|next|finally|lastly|"
    r"afterwards|just|can you|could you|would you|will you|i need you to|i want you to|i'd like you to|i need to|"
    r"we need to|help me(?: to)?|let's|try to|your task is to|you have to|be sure to|to)(?!\w)",
    re.IGNORECASE,
)
_ABOUT_A_WORD = re.compile(
    r"\W*(?:what(?:'s| is| are| was| were| does| do| did)|who|why|where|when|which|how (?:does|do|did|is|are|was|were)|"
    r"explain|define|describe|tell me|did|do|does)\b",
    re.IGNORECASE,
)
_VERBS = re.compile(
    r"(?:add|analy[sz]e|arrange|ask|assemble|backup|back up|book|build|calculate|call|cancel|check|choose|classify|clean|"
    r"collect|combine|compare|compile|compute|convert|copy|count|create|cut|delete|deploy|describe|design|determine|"
    r"download|draft|draw|email|estimate|evaluate|export|extract|fetch|file|fill|filter|find|fix|format|gather|generate|"
    r"get|group|identify|implement|import|install|invite|label|list|load|look up|make|measure|merge|migrate|monitor|move|"
    r"notify|open|order|organi[sz]e|outline|pick|plan|plot|post|prepare|present|print|produce|publish|put|rank|read|"
    r"recommend|record|remove|rename|report|research|reserve|review|run|save|schedule|scrape|search|select|send|set up|"
    r"share|sort|split|start|store|submit|suggest|summari[sz]e|switch|test|tidy|train|translate|update|upload|visit|"
    r"write)(?=\W|\Z)",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Reading:
    """A task as the signals see it.

    Args:
        text: the task without what it quotes, in lower case.
        cased: the same as it was written.
        verbs: the clauses that begin with something to do, each from its verb on, in lower case.
        asks: whether it asks about something instead of telling to do something.
        code: whether there is program text in it.
        tools: whether there are tools.
        search: whether one of them finds things out.
    """

    text: str
    cased: str
    verbs: tuple[str, ...]
    asks: bool
    code: bool
    tools: bool
    search: bool

    def has(self, pattern: str) -> bool:
        """Whether the text has it."""
        return re.search(pattern, self.text) is not None

    def does(self, pattern: str) -> bool:
        """Whether it tells to do that: a clause begins with it."""
        return any(re.match(pattern, clause) for clause in self.verbs)

    def count(self, pattern: str) -> int:
        """How often the text has it."""
        return len(re.findall(pattern, self.text))


_SEARCHES = re.compile(
    r"search|look.?up|wiki|google|bing|browse|web|retriev|encyclop|knowledge|find|query|read_page|rag\b", re.IGNORECASE
)


def _read(task: str, tools: Iterable[Tool | ToolSpec]) -> Reading:
    task = task[:MAX_CHARS]
    named = [f"{tool.name} {tool.description}" for tool in tools]
    plain = _QUOTED.sub(" it ", _FENCE.sub(" it ", task)).replace("’", "'")
    lowered = plain.lower()
    return Reading(
        lowered,
        plain,
        tuple(_clauses(lowered)),
        _ABOUT_A_WORD.match(lowered) is not None,
        _CODE.search(task) is not None,
        bool(named),
        any(_SEARCHES.search(name) for name in named),
    )


def _clauses(text: str) -> Iterable[str]:
    """The clauses from their first word that is no politeness, each with what follows, up to 200 characters."""
    start = 0
    for end in [*(found.end() for found in _CLAUSE_ENDS.finditer(text)), len(text)]:
        while start < end and (polite := _POLITE.match(text, start, end)) is not None:
            start = polite.end()
        if start < end:
            yield text[start : start + 200]
        start = end


# --- the table ---

HARD = r"(?:correct|true|accurate|right|real|wrong|false|up to date|supported|reliable|genuine)"
CLAIMS = (
    r"(?:facts?|claims?|statements?|assertions?|paragraph|passage|article|press release|dates?|numbers?|figures?|"
    r"citations?|quotes?|quotations?|references|sources|text|essay|biography|summary|answer|report|table|statistics|"
    r"information|news|post|allegations?|advice|translation|draft|calculations?)"
)
CODE_THING = (
    r"(?:functions?|methods?|class(?:es)?|regex|regular expressions?|sql|quer(?:y|ies)|scripts?|programs?|algorithms?|"
    r"parsers?|modules?|decorators?|code|api|endpoints?|cache|data structures?|linked list|stack|queue|iterator|"
    r"generator|command.line tool|cli|unit tests?|macro|shader|smart contract|component|library|package|bash one-liner)"
)
LANGUAGES = r"\b(?:python|rust|java|javascript|typescript|go|c\+\+|c#|haskell|kotlin|ruby|swift|php|scala|perl|bash|sql)\b"
HOPS = (
    r"\b(?:the|was|is|were|became) (?!name|names|city|kind|type|number|part|lot|list|end|rest|state|meaning|middle|rules|day|top|bottom|time|"
    r"case|use|purpose|difference|definition|sum|product|value|average|length|area|cost|total|set|amount|context)"
    r"(?:[a-z-]+ ){0,2}?[a-z-]+ of\b|"
    r"\b[a-z]+ (?:that|who|which|whose) (?:[a-z]+s|[a-z]+ed|has|had|was|is|were|are|won|wrote|sang|built|ran|made|led|"
    r"founded|held|gave|took|became|plays?|the)\b|"
    r"(?<=\w )(?:where|when|that|which)(?= the (?:[a-z-]+ ){0,2}?[a-z-]+ (?:of|who|that|which|was|is|were)\b)|"
    r"\bthe same [a-z]+ as\b|\b(?:longer|older|younger|earlier|later|taller|larger|bigger|more|before|after) (?:than )?the\b|"
    r"(?<!what)(?<!who)(?<!it)(?<!that)(?<!let)(?<!there)(?<!here)(?<!where)(?<!when)(?<!how)'s (?:[a-z]+ )?[a-z]+"
)
ANY_OF = r"(?:arrangement|combination|permutation|assignment|seating|ordering|schedule|timetable|sequence|layout|path|route)"
IDEAS = r"(?:ideas?|names?|slogans?|titles?|plots?|designs?|options|alternatives|headlines|taglines|concepts|story lines|hooks)"
SO_THAT = r"[^.]{0,120}\b(?:so|such) that\b[^.]{0,80}\b(?:no|none|nobody|never|every|each|all|not|adds?|sums?|only)\b"


def _deliverables(task: Reading) -> int:
    """Clauses that begin with something to do."""
    return sum(_VERBS.match(clause) is not None for clause in task.verbs)


def _question(task: Reading) -> bool:
    return task.asks or task.text.rstrip().endswith("?")


SIGNALS: tuple[Signal, ...] = (
    Signal(
        CRITIC, 4,
        lambda t: t.tools and t.does(rf"(?:fact-?\s?check|verify|double-?check|cross-?check|proofread|validate|debunk|audit)\b[^.]{{0,60}}\b{CLAIMS}\b|fact-?\s?check"),
        "it asks to check claims, and there are tools to check them with",
    ),
    Signal(
        CRITIC, 4,
        lambda t: t.tools and t.does(rf"(?:check|confirm|make sure|ensure|see|verify|test)\b[^.]{{0,30}}\b(?:if|whether|that|all|every|each|the|this|these|nothing)?\b[^.]{{0,80}}\b{HARD}\b") and t.has(rf"\b{CLAIMS}\b"),
        "it asks whether something is right, and there are tools to check it with",
    ),
    Signal(
        CRITIC, 4,
        lambda t: t.tools and t.has(rf"\b(?:is|are|was|were) (?:it|this|that|these|those|all|the|any)\b[^.?]{{0,60}}\b(?:{HARD}|made up|invented|a myth)\b") and t.has(rf"\b(?:{CLAIMS}|true|myth|made up)\b") and not t.has(r"\bright now\b"),
        "it asks whether something is true, and there are tools to check it with",
    ),
    Signal(
        CRITIC, 4,
        lambda t: t.tools and t.has(r"\b(?:factual|false|wrong|incorrect|inaccurate)\b[^.]{0,30}\b(?:errors?|mistakes?|claims?|statements?|facts?|dates?)\b|\b(?:hallucinat\w+|misinformation)\b") and not t.asks,
        "it asks for errors of fact to be found, and there are tools to find them with",
    ),
    Signal(
        CRITIC, 3,
        lambda t: t.tools and t.has(r"\b(?:every|each|all|no)\b[^.]{0,40}\b(?:facts?|claims?|dates?|numbers?|figures?|statements?|errors?|mistakes?)\b[^.]{0,60}\b(?:accurate|correct|supported|right|backed|true|verified|sourced|exact|slip)\b|\bwithout (?:any |a single )?(?:factual )?(?:mistakes?|errors?)\b|\b(?:factually|must be) (?:accurate|correct)\b"),
        "its text must be accurate, and there are tools to check it with",
    ),
    Signal(
        REFLEXION, 4,
        lambda t: not _question(t) and t.does(rf"(?:write|implement|complete|fix|refactor|debug|create|build|code|develop|optimi[sz]e|rewrite|port|program|finish|correct|add|make|repair|patch|generate)\b[^.\n]{{0,60}}\b{CODE_THING}\b"),
        "code can be run and judged, and a failed attempt teaches the next one",
    ),
    Signal(
        REFLEXION, 3,
        lambda t: t.has(r"\b(?:tests?|test suite|suite|checks?|build|ci|linter|validator|compiler|type.?checker|assertions?|grader|judge)\b[^.]{0,30}\b(?:pass(?:es)?|accepts?|succeeds?|is green|are green|goes through|is happy|hold)\b|\bpass(?:es)? (?:all |the |every |these |its |hidden |our )*(?:unit |integration |hidden )?(?:tests?|checks?|assertions?)\b|\buntil (?:it|they|the [a-z ]{1,30}) (?:pass\w*|works?|validates?|compiles?|succeeds?|runs?|builds?|accepts?|is (?:accepted|valid|green))\b") and not t.asks,
        "its outcome can be checked, and a failed attempt teaches the next one",
    ),
    Signal(
        REFLEXION, 4,
        lambda t: t.has(r"\b(?:leetcode|hackerrank|codeforces|codewars|humaneval|advent of code|project euler)\b") or (t.code and (not t.asks or t.has(r"\b(?:bug|fail|fix)\w*"))),
        "it is a programming problem: attempts can be judged, and a failed one teaches the next",
    ),
    Signal(
        REFLEXION, 3,
        lambda t: not t.asks and t.does(r"(?:write|implement|fix|debug|refactor|port|solve)\b") and t.has(LANGUAGES),
        "code can be run and judged, and a failed attempt teaches the next one",
    ),
    Signal(
        TREE, 5,
        lambda t: t.has(r"\bgame of 24\b|\b24 game\b") and not t.has(r"\b(?:who|when|where) (?:invented|made|was)\b"),
        "a puzzle with many candidates: several lines are tried and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: t.has(r"\b(?:use|using|combine|with|from)\b[^.]{0,40}\b(?:numbers?|digits)\b[^.]{0,80}\b(?:get|make|reach|obtain|give|equals?|form)\b") and t.count(r"\b\d+\b") >= 3,
        "a puzzle with many candidates: several lines are tried and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: not t.asks and t.has(r"\b(?:crosswords?|sudoku|kakuro|nonogram|word ladder|magic squares?|knight'?s tour|rubik'?s?|cryptarithms?|alphametic|wordle|anagrams?|(?:n|eight|four|six)[- ]queens|tower of hanoi|chess problem|mate in \w+|riddles?|logic puzzle|puzzle)\b|\bqueens\b[^.]{0,60}\bboard\b|each letter stands for"),
        "a puzzle with many candidates: several lines are tried and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: t.has(r"\bcross (?:a|the) (?:river|bridge)\b") and t.has(r"\b(?:boat|raft|torch|two at a time|at most two|missionaries|wolf|fox)\b"),
        "a puzzle with many candidates: several lines are tried and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: t.does(rf"(?:find|give|design|make|create|work out|construct|search for|determine|come up with|propose|look for)\b[^.]{{0,40}}\b{ANY_OF}\b[^.]{{0,100}}\b(?:so that|such that|that (?:adds|sums|minimi[sz]es|maximi[sz]es|satisf|visits|uses|meets|makes|gives)|which (?:adds|visits)|using exactly|without|adds? up|in which|where (?:no|each|every))"),
        "a search among many combinations: several lines are tried and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: t.does(rf"(?:arrange|seat|place|schedule|assign|order|colou?r|split|divide|pack|fill|distribute|find a way|find an order|put)\b{SO_THAT}"),
        "a search among many combinations: several lines are tried and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: not t.asks and t.does(rf"(?:brainstorm|come up with|think of|invent|propose|suggest|generate|give me|list|imagine|dream up)\b[^.]{{0,60}}\b{IDEAS}\b|brainstorm"),
        "many candidates are wanted: they are proposed, judged and the best ones followed",
    ),
    Signal(
        TREE, 4,
        lambda t: not t.asks and t.does(r"(?:write|compose|plan|outline|tell|make)\b[^.]{0,60}\b(?:stor(?:y|ies)|poem|passage|novel|sonnet|plot|tale|scene|screenplay|limerick)\b") and t.has(r"\b(?:last|final|ending|end|ends|closing|first|opening) (?:sentences?|lines?|words?|with)\b|\beach (?:paragraph|line|chapter|stanza|verse)\b|\bpalindrom|\bacrostic|\btwist|\bfour paragraphs\b"),
        "a text with a plan of its own: several plans are tried and the best one followed",
    ),
    Signal(
        SELF_ASK, 4,
        lambda t: t.search and _question(t) and t.count(HOPS) >= 2,
        "the question needs several facts, one for the next, and there is a search for each",
    ),
    Signal(
        PLAN, 4,
        lambda t: t.has(r"\bfirst(?:ly)?\b(?! (?:name|class|come|world|aid|time|of all the))[\s\S]{1,400}\b(?:then|next|after that|afterwards|finally|second(?:ly)?|lastly)\b") and _deliverables(t) >= 2,
        "its steps follow on each other, so they are planned before they are done",
    ),
    Signal(
        PLAN, 4,
        lambda t: len(re.findall(r"(?m)^\s*(?:\d{1,2}[.)]|[-*•])\s+(?:please )?(?:" + _VERBS.pattern + ")", t.text)) >= 2,
        "it is a list of things to do, so they are planned and done together",
    ),
    Signal(PLAN, 3, lambda t: _deliverables(t) >= 3, "it asks for several things to be done, so they are planned first"),
    Signal(
        PLAN, 2,
        lambda t: _deliverables(t) >= 1 and t.has(r"\b(?:report|itinerary|slide deck|presentation|white ?paper|dossier|business plan|proposal|literature review|overview|newsletter|handbook|curriculum)\b"),
        "it asks for a longer piece of work, which is planned first",
    ),
    Signal(
        PLAN, 2,
        lambda t: not t.asks and t.has(r"(?:\bwith\b|\bincluding\b|:)[^.\n:]{1,200},[^.\n:]{1,200}\b(?:and|or)\b"),
        "it has several parts, which are planned first",
    ),
    Signal(
        PLAN, 2,
        lambda t: not t.asks and t.does(r"(?:organi[sz]e|prepare|plan|set up|migrate|launch|arrange|coordinate)\b"),
        "it is a piece of work in several parts, which are planned first",
    ),
    Signal(
        PLAN, 3,
        lambda t: t.tools and t.has(r"\b(?:for|of) (?:each|every|all)(?: one)? of\b|\bfor (?:each|every)\b|\b(?:each|every) (?:of the|one of)\b"),
        "the same is to be done for each of several things, which can happen at the same time",
    ),
    Signal(
        PLAN, 3,
        lambda t: t.tools and re.search(r"\b[A-Z]\w+(?: [A-Z]\w+)?(?:, [A-Z]\w+(?: [A-Z]\w+)?)+,? (?:and|or|with) [A-Z]\w+", t.cased) is not None and not t.has(r"\b(?:same|both)\b"),
        "several things are looked up independently, which can happen at the same time",
    ),
    Signal(
        PLAN, 2, lambda t: t.tools and t.does(r"compare\b"), "what is compared is found out independently first",
    ),
    Signal(
        PLAN, 1, lambda t: t.tools and t.has(r"\band (?:write|make|create|produce|draft|send|put|save)\b"), "it ends in a piece of work",
    ),
)  # fmt: skip

_SUMS = re.compile(r"\d|\b(?:percent|half|twice|three times|how (?:many|much|long|far|old))\b")
_LOGIC = re.compile(r"\b(?:all|no|some|every) \w+ are\b|\b\w+er than\b|\bheads\b|\bif and only if\b|\bimplies\b|\btherefore\b")


def recommend_engine(task: str, tools: Iterable[Tool | ToolSpec] = ()) -> Recommendation:
    """The engine that suits a task, by its entry-point name, with the reason.

    It reads the wording (English) and the names and descriptions of the tools; no model is asked, and the same task
    always gets the same answer. Where nothing speaks for a particular strategy it is `react` if there are tools, else
    `chain-of-thought`. Raises `ConfigError` if `task` is no text.
    """
    if not isinstance(task, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"task: must be a text, got {type(task).__name__}")
    reading = _read(task, tools)
    found = [signal for signal in SIGNALS if signal.applies(reading)]
    weights = {engine: sum(signal.weight for signal in found if signal.engine == engine) for engine in SPECIFIC}
    ranked = sorted((engine for engine in SPECIFIC if weights[engine]), key=lambda engine: -weights[engine])
    usual, reason = _usual(reading)
    if ranked and weights[ranked[0]] >= ENOUGH:
        best = ranked[0]
        strongest = max((signal for signal in found if signal.engine == best), key=lambda signal: signal.weight)
        return Recommendation(best, strongest.reason, (*ranked[1:], usual))
    others = (*ranked, THOUGHT if usual == REACT else REACT)
    return Recommendation(usual, reason, others)


def _usual(task: Reading) -> tuple[str, str]:
    if task.tools:
        return REACT, "there are tools, and nothing in the task needs more than using them in turns"
    if _SUMS.search(task.text) or _LOGIC.search(task.text):
        return THOUGHT, "it is worked out step by step, and there are no tools"
    return THOUGHT, "there are no tools, so it is thought through and answered"
