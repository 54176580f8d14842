"""Recommendation of an engine for a task, by a table of patterns in the task and of the tools."""

import re
from collections.abc import Iterable
from typing import Literal

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import ToolSpec
from ..tools.base import Tool

MAX_CHARS = 4_000  # only this much of a longer task is read
SEARCH = re.compile(r"search|look.?up|wiki|retriev|browse|google|find_", re.IGNORECASE)
# Quoted text does not describe the task.
QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|(?<!\w)'[^'\n]*'(?!\w)")
MEANING = re.compile(
    r"\W*what (is|are) (an? )?[\w-]+( [\w-]+)?\?|\W*what (does|do|did)\b[^?]*\bmean\b",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """An engine by its name, the reason, and the alternatives, best first."""

    engine: str
    reason: str
    alternatives: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Signal:
    """Evidence for an engine: a pattern in the task, and the tools that are needed."""

    engine: str
    weight: int
    reason: str
    pattern: str
    needs: Literal["", "tools", "search", "no tools"] = ""


# A task may be described by its kind, as in the table of ovos-agentic-loop, in place of what is to be done.
KINDS = (
    Signal(
        "chain-of-thought", 9, "it is described as reasoning without tools",
        r"\b(no|without) tools\b|\bpure (reasoning|logic)\b|\breasoning (alone|only)\b",
    ),
    Signal(
        "react", 9, "it is described as the use of tools, one call after another",
        r"\bsingle-turn tool use\b|\bgeneral (purpose )?assistant\b|\btool-using\b",
    ),
    Signal(
        "plan-execute", 9, "it is described as steps with goals of their own",
        r"\bmulti-?step (tasks?|workflows?|requests?)\b|\bsub-?goals\b|\brequir\w+ a plan\b",
    ),
    Signal(
        "reflexion", 9, "it is described as one whose first attempt may fail",
        r"\bcorrectness matters\b|\b(fail|wrong)\b[^.;\n]{0,20}\bfirst (attempt|try)\b|\bself-(critique|correct\w*)\b",
    ),
    Signal(
        "self-ask", 9, "it is described as a chain of facts",
        r"\bmulti-?hop\b|\bchain of facts\b|\bcompositional questions?\b|\bsub-?questions\b",
    ),
    Signal(
        "critic", 9, "it is described as an answer whose claims can be verified",
        r"\bverifiable\b[^.;\n]{0,20}\bclaims\b|\bclaim verification\b|\bfact-check pass\b",
    ),
    Signal(
        "tree-of-thoughts", 9, "it is described as a choice between several ways to solve it",
        r"\b(multiple|several|competing|many)\b[^.;\n]{0,20}\b(solution )?(strategies|approaches)\b"
        r"|\bexploration-heavy\b|\bbeam search\b",
    ),
)  # fmt: skip

SIGNALS = (
    *KINDS,
    Signal(
        "tree-of-thoughts", 4, "a puzzle: many moves have to be tried, compared and undone",
        r"\bgame of 24|crossword|sudoku|puzzle|riddle|anagram|\bqueens\b|\bcross (a|the) river|magic square|\bmaze\b"
        r"|word ladder|cryptarithm|\b(make|get|reach|equals?) \d+\b",
    ),
    Signal(
        "tree-of-thoughts", 4, "it wants the best of many candidates",
        r"brainstorm|\b(find|give|suggest|propose|think of|come up with|invent|generate|design|name)\b[^.\n]{0,50}"
        r"\b(combinations?|arrangements?|ideas|options|names|slogans?|titles|headlines|alternatives?|ways|routes?|seating)\b"
        r"|\b(so|such) that\b|\b(each|whose|end) (\w+ )?(letters?|words?|lines?|sentences?)\b",
    ),
    Signal(
        "reflexion", 5, "its outcome can be checked by tests, so a failed attempt can be learnt from",
        r"\b(unit|all|hidden|failing|these|the) tests?\b|\b(test suite|test cases?|doctests?|pytest|asserts?)\b"
        r"|\buntil (it|the|they) |\b(passes?|compiles?|project euler|leetcode)\b",
    ),
    Signal(
        "reflexion", 4, "it asks for code, which can be run and repaired",
        r"\b(write|implement|fix|debug|refactor|optimi[sz]e|complete|repair|create|develop|port|code|improve|translate|generate)\b"
        r"[^.\n]{0,60}\b(functions?|code|scripts?|programs?|module|package|class|method|endpoint|sql|query|regex|bug|parser"
        r"|cache|algorithm|quicksort|binary search|python|java|javascript|haskell|rust)\b|\bdef \w+\(",
    ),
    Signal(
        "turn", 6, "it wants to be asked first, or what was done undone if a part fails",
        r"\b(ask|check with|confirm with) (me|us)\b[^.\n]{0,40}\b(before|first)\b|\bbefore you \w+[^.\n]{0,40}\bask\b"
        r"|\b(roll|undo|revert|cancel)\b[^.\n]{0,40}\b(back|everything|all|it|them)\b[^.\n]{0,30}\b(if|when|unless)\b"
        r"|\b(if|when|unless)\b[^.\n]{0,60}\b(undo|roll back|revert|cancel)\b",
        needs="tools",
    ),
    Signal(
        "critic", 5, "it is about whether claims are true, which tools can check one by one",
        r"\bfact[- ]?check|\b(verify|double-check|cross-check|proofread|debunk|validate)\b"
        r"|\bcheck (every|each|these|this|the|my)\b"
        r"|\b(true|right(?! now)|accurate|correct|supported|real|fake)\b[^.\n]{0,30}\?"
        r"|\bnothing (wrong|false)\b|\bmistakes?\b|\b(factual|find|any|wrong) (\w+ )?(errors?|dates|claims)\b"
        r"|\b(are|is|be|only|say)\b[^.\n]{0,60}\b(correct|accurate|wrong)\b",
        needs="tools",
    ),
    Signal(
        "plan-execute", 4, "it has several steps, which can be planned and partly run concurrently",
        r"\bfirst\b[\s\S]{1,300}\b(then|next|finally|after that)\b|\bthen\b[^.?]{1,100}\bfinally\b|\band then \w+ "
        r"|(^|\n)[ \t]*(\d[.)]|[-*])\s[\s\S]{1,200}\n[ \t]*(\d[.)]|[-*])\s"
        r"|^[^?,]{1,200}, [a-z]+ \w[^,?]{1,100},? and [a-z]+ \w[^?]{1,200}$",
    ),
    Signal(
        "plan-execute", 3, "it asks for the same about several things, which can be looked up concurrently",
        r"\b(for each|for every|each of)\b|\bcompare\b|\b[a-z]+, [a-z]+(, [a-z]+)*,? and [a-z]+",
    ),
    Signal(
        "plan-execute", 3, "its result is a document with several sections",
        r"\ban? [\w -]{0,30}report\b|\breport on\b|\b(itinerary|trip|slide deck|dossier|business plan|migrat\w+)\b"
        r"|\b(campaign|market|organi[sz]e)\b",
    ),
    Signal(
        "goal-cycle", 6, "a goal to be reached over steps that are judged one by one, while a person may step in",
        r"\b(my|our|the|this|your) (goal|objective|aim) (is|of)\b|\b(goal|objective)\s*:"
        r"|\b(reach|achieve|pursue) (the|this|my|our|a) goal|\bwork towards\b"
        r"|\bask me (if|when|whenever|before|in case|should)\b|\b(adjust|change|revise|rethink) (the|your) (plan|course)\b"
        r"|\b(judge|evaluate|rate|score) (each|every) (step|result|output)\b|\bkeep (going|working|trying|at it)\b",
        needs="tools",
    ),
    Signal(
        "self-ask", 4, "a question inside a question: each fact leads to the next one to be looked up",
        r"\bthe (\w+ ){1,3}?(that|who|which|whose|where)\b|\b(when|where|while) the\b|\bthe (same|year)\b"
        r"|\b(\w's|the( first)?) (\w+ )?(inventor|author|director|founder|mother|father|wife|husband|teacher|team|coach"
        r"|capital|president|king|queen|country|woman|man|birthplace|company|band)\b[^?]{0,30}\b(of|to|in|at)\b",
        needs="search",
    ),
    Signal(
        "director-critic", 6, "it is a text that gets better by review and revision",
        r"\b(polish|redraft|revise)\b[^.\n]{0,40}\b(essay|letter|article|speech|draft|poem|text)\b"
        r"|\bseveral drafts\b|\b(reviewed|critici[sz]ed) and (revised|improved)\b",
    ),
    Signal(
        "chain", 6, "it is a fixed order of steps, each on the result of the one before",
        r"\b(translate|summari[sz]e|outline|shorten)\b[^.\n]{1,60}\bthen (translate|summari[sz]e|shorten|rewrite)\b",
        needs="no tools",
    ),
    Signal(
        "team", 8, "it has parts for different specialists, who can work at the same time",
        r"\b(team|group) of (agents|specialists|experts)\b|\beach by (a|its own|another) (agent|specialist|expert)\b"
        r"|\b(delegate|assign) \w+ to (agents|specialists|experts)\b",
    ),
    Signal(
        "map-reduce", 8, "it asks the same of many texts, which can be done at once and put together",
        r"\b(summari[sz]e|classify|translate|rate|tag|review|extract \w+ from)\b[^.\n]{0,20}\b(each|every|all)( one)?( of)?"
        r"( the| these| those)?( following)? (documents|files|reviews|e?mails|articles|chapters|tickets|transcripts|papers"
        r"|document|file|email|article|chapter|ticket|transcript|paper)\b",
    ),
    Signal(
        "thread", 7, "it waits, comes back and divides work up on the way, as threads with mail and timers do",
        r"\b(wait|check again|come back|ask again|look again|try again) (for|until|in|after|every|when)\b"
        r"|\bremind (me|us|them)\b|\bevery (\d+|few|other)? ?(seconds?|minutes?|hours?|days?)\b"
        r"|\b(spawn|delegate)\b[^.\n]{0,40}\b(threads?|agents?|helpers?|workers?)\b|\bto-?do list\b",
    ),
    Signal(
        "chain-of-thought", 5, "it can be worked out from what it says, step by step",
        r"\bhow (many|much|old|long|far|fast|likely|tall)\b|\bprobability\b|\bpercent|\d\s*%|\bif\b[^.?]{1,80}\bthen\b"
        r"|\bwhat is \d|\ball \w+ are\b",
        needs="no tools",
    ),
)  # fmt: skip


def recommend_engine(
    task: str, tools: Iterable[Tool | ToolSpec] = ()
) -> Recommendation:
    """Recommend an engine by the words of the task and the available tools.

    No model is called: it is a first choice, to be measured against others. A task that fits no pattern gets `react`
    with tools and `chain-of-thought` without. Raises `ConfigError` if `task` is not a text.
    """
    if not isinstance(task, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"task: must be a text, got {task!r}; pass the question")
    available = tuple(tools)
    default = _choose_default(available)
    found = _find_signals(task, available)
    if not found:
        return default
    weights: dict[str, int] = {}
    for signal in found:
        weights[signal.engine] = weights.get(signal.engine, 0) + signal.weight
    ranked = sorted(weights, key=lambda engine: -weights[engine])
    reason = next(signal.reason for signal in found if signal.engine == ranked[0])
    others = [engine for engine in (*ranked[1:], default.engine) if engine != ranked[0]]
    return Recommendation(ranked[0], reason, tuple(dict.fromkeys(others)))


def _choose_default(tools: tuple[Tool | ToolSpec, ...]) -> Recommendation:
    if tools:
        reason = "it can be done with the tools, one call at a time"
        return Recommendation("react", reason)
    reason = "there are no tools, so it is a matter of thinking"
    return Recommendation("chain-of-thought", reason)


def _find_signals(task: str, tools: tuple[Tool | ToolSpec, ...]) -> list[Signal]:
    """Return the signals of a task; a question about a meaning has none."""
    if MEANING.match(task):
        return []
    text = QUOTED.sub(" it ", task[:MAX_CHARS])
    has = {"", "tools" if tools else "no tools"}
    if any(SEARCH.search(f"{tool.name} {tool.description}") for tool in tools):
        has.add("search")
    return [
        signal
        for signal in SIGNALS
        if signal.needs in has and re.search(signal.pattern, text, re.IGNORECASE)
    ]
