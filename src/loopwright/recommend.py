"""Which engine suits a task: a table of signals in its wording and its tools, each with the reason that it gives."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

from .errors import ConfigError
from .messages import ToolSpec
from .tools import Tool

MAX_CHARS = 8_000  # read of a task: its beginning and its end; what lies between is material, not a request
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


def any_of(words: str) -> str:
    """A pattern for one of the words; `_` is a blank or a hyphen, and a bracket may follow a word: `test(s)`."""
    pattern = "|".join(words.split()).replace("(", "(?:").replace(")", ")?")
    return f"(?:{pattern.replace('_', '[ -]')})"


# --- words ---

NEAR = r"\b[^.]{0,70}?\b"  # a little later in the same sentence
NUMBER = any_of("two three four five six seven eight nine ten twelve") + r"|\d{1,3}"
CHECKING = any_of("fact_check factcheck verify double_check cross_check proofread validate debunk audit")
ASKING_IF = any_of("check confirm make_sure ensure see verify test tell_me find_out say judge")
RIGHT = any_of("correct true accurate right real wrong false up_to_date supported reliable genuine fake myth made_up")
CLAIMS = any_of(
    "fact(s) claim(s) statement(s) assertion(s) allegation(s) paragraph passage article press_release date(s) "
    "number(s) figure(s) citation(s) quote(s) quotation(s) reference(s) source(s) text essay biography summary answer "
    "report table statistics information news post advice translation draft timeline calculation(s)"
)
EVIDENCE = any_of("facts claims citations quotes quotations sources references statistics figures allegations")
SLIPS = any_of("error(s) mistake(s) claim(s) statement(s) fact(s) date(s)")
MAKING = any_of(
    "write implement complete fix refactor debug create build code develop optimize optimise rewrite port program "
    "finish correct add make repair patch generate i_need_a give_me_a"
)
CODE = any_of(
    "function(s) method(s) class(es) regex sql query queries script(s) program(s) algorithm(s) parser(s) module(s) "
    "decorator(s) code api endpoint(s) cache data_structure(s) linked_list(s) iterator command_line_tool cli "
    "unit_test(s) macro shader smart_contract component library package regular_expression(s)"
)
LANGUAGE = any_of(r"python rust java javascript typescript go c\+\+ haskell kotlin ruby swift php scala perl bash sql")
JUDGE = any_of("test(s) test_suite suite check(s) build ci linter validator compiler type_checker assertion(s) grader")
PLEASED = any_of("pass(es) accept(s) succeed(s) is_green are_green hold(s)")
PUZZLE = any_of(
    "crossword(s) sudoku kakuro nonogram word_ladder magic_square(s) knight's_tour rubik's cryptarithm(s) alphametic "
    "wordle anagram(s) n_queens four_queens six_queens eight_queens tower_of_hanoi mate_in_two mate_in_three "
    "riddle(s) puzzle each_letter_stands_for"
)
SEARCHING = any_of("find give design make create work_out construct search_for determine come_up_with propose look_for")
CHOICE = any_of(
    "arrangement combination permutation assignment seating ordering schedule timetable sequence layout route"
)
PLACING = any_of(
    "arrange seat place plan schedule assign order colour color split divide pack fill distribute put find_a_way"
)
NEEDING = any_of("so_that such_that using_exactly without in_which that_adds that_sums that_visits that_uses where_no")
ALL_OR_NONE = any_of("no none nobody nothing never every everybody everyone each all any not only")
INVENTING = any_of("come_up_with think_of invent propose suggest generate give_me list imagine dream_up brainstorm")
IDEAS = any_of(
    "idea(s) name(s) slogan(s) title(s) plot(s) design(s) options alternatives headline(s) tagline(s) concept(s) "
    "hook(s) ways uses solutions possibilities themes activities gifts"
)
FICTION = any_of("story stories poem passage novel sonnet plot tale scene screenplay limerick")
FORM = any_of("last final ending end ends closing first opening") + " " + any_of("sentence(s) line(s) word(s) with")
DOING = any_of(
    "add analyse analyze answer archive arrange ask assemble assign attach back_up book build calculate call cancel "
    "chart check choose classify clean clear close collect combine compare compile compute convert copy count create "
    "delete deploy describe design determine download draft draw email estimate evaluate export extract fetch fill "
    "filter find fix format gather generate get group hire identify implement import inform install interview invite "
    "label list load look_up make measure merge migrate monitor move note notify onboard open order organise organize "
    "outline pack pick plan plot post prepare present print produce publish pull put rank read reboot recommend "
    "record refund remind remove rename renew reply report research reserve restart review run save schedule scrape "
    "search select send set_up share sign sort split start store submit suggest summarise summarize switch test tidy "
    "total train transfer translate update upgrade upload visit write"
)
WORK = any_of(
    "report itinerary slide_deck presentation white_paper dossier business_plan proposal literature_review overview "
    "newsletter handbook curriculum"
)
UNDERTAKING = any_of("organise organize prepare plan set_up migrate launch arrange coordinate")
POLITE = any_of(
    "please kindly now also first firstly second secondly third thirdly next finally lastly afterwards just can_you "
    "could_you would_you will_you i_need_you_to i_want_you_to i'd_like_you_to i_need_to we_need_to help_me_to help_me "
    "let's try_to your_task_is_to you_have_to be_sure_to to"
)

_FENCE = re.compile(r"```[\s\S]*?(?:```|\Z)")
_QUOTED = re.compile(r"\"[^\"\n]{1,300}\"|\u201c[^\u201d\n]{1,300}\u201d|(?<!\w)'[^'\n]{1,300}'(?!\w)")
_CODE = re.compile(r"```|\bdef \w+\(|\bassert \w|\bfn \w+\(|\bfunction \w+\(|\bclass \w+[:({]")
_CLAUSE_END = re.compile(r"[\n.;:!?,]|\band\b|\bthen\b|\bthat\b|(?:\s|^)[-*\u2013](?=\s)")
_LEAD = re.compile(rf"[^\w\s]|\s|\d{{1,3}}[.)]|{POLITE}(?!\w)")
_ASKS = re.compile(
    r"\W*(?:what|who|why|where|when|which|how (?:does|do|did|is|are|was|were)|"
    r"explain|define|describe|tell me|did|do|does)\b"
)
_TO_DO = re.compile(DOING + r"\b")
_SEARCH = re.compile(r"search|look.?up|wiki|google|bing|browse|web|retriev|encyclop|knowledge|find|query|\brag\b", re.I)
# A thing that is described in place of being named takes a look-up of its own. Lower case tells "the battle that" from
# "the Battle of Hastings"; what stands in the first list is part of the thing itself.
_DESCRIBED = re.compile(
    r"\b(?:the|was|is|were|became) (?!name|city|kind|type|number|part|lot|list|end|rest|state|meaning|middle|rules|day|"
    r"top|bottom|time|case|use|purpose|difference|definition|sum|product|value|average|length|area|cost|total|set|amount|"
    r"context|opening|beginning|start)(?:[a-z-]+ ){0,2}?(?:[a-z-]+|[A-Z]{2,4}) of\b|"
    r"\bthe (?:[a-z-]+ ){0,2}?[a-z-]+ (?:who|that|which|whose|where)\b|\bthe [a-z]+est [a-z]+|"
    r"\bthe (?:first|last|only) [a-z]+ to\b|\bthe same [a-z]+ as\b|\bthe year [A-Z]|"
    r"\b(?:longer|older|younger|earlier|later|taller|larger|bigger|more) than the\b|"
    r"(?<=\w )when (?=the |it |he |she |they |[A-Z])|"
    r"(?<!\bit)(?<!hat)(?<!ho)(?<!ere)(?<!ow)'s (?:[a-z]+ )?(?=[a-z])"
)
_ATTRIBUTE = re.compile(
    r"\b(?:which|what|how many) (?!is|are|was|were|does|did|do|has|had|time|day|kind|happen)[a-z]+|"
    r"\A\W*(?:who (?!is|was|are|were)[a-z]+|(?:when|where|how [a-z]+) (?:did|does|is|was|were|are)) (?=the [a-z])",
    re.IGNORECASE,
)
_NAMES = re.compile(
    r"\b[A-Z]\w+(?: [A-Z]\w+)?(?:, (?:the )?[A-Z]\w+(?: [A-Z]\w+)?){1,6}+,? (?:and|or|with) (?:the )?[A-Z]\w+"
)
_ITEM = re.compile(rf"(?m)^\s*+(?:\d{{1,2}}[.)]|[-*\u2022])\s++(?:please )?{DOING}\b")
_SUMS = re.compile(r"\d|\b(?:percent|half|twice|three times|how (?:many|much|long|far|old))\b")


# --- reading a task ---


@dataclasses.dataclass(frozen=True)
class Reading:
    """A task as the signals see it.

    Args:
        text: the task without what it quotes, in lower case.
        cased: the same as it was written.
        clauses: its clauses without politeness, each with what follows, so that a verb in front is something to do.
        code: whether there is program text in it.
        tools: whether there are tools.
        search: whether one of them finds things out.
    """

    text: str
    cased: str
    clauses: tuple[str, ...]
    code: bool
    tools: bool
    search: bool

    @property
    def asks(self) -> bool:
        """Whether it begins like a question about something, instead of telling to do something."""
        return _ASKS.match(self.text) is not None

    @property
    def is_question(self) -> bool:
        """Whether it begins or ends like a question."""
        return self.asks or self.text.rstrip().endswith("?")

    @property
    def to_do(self) -> int:
        """How many clauses begin with something to do."""
        return sum(_TO_DO.match(clause) is not None for clause in self.clauses)

    @property
    def look_ups(self) -> int:
        """How many facts a question needs, one for the next."""
        described = len(_DESCRIBED.findall(self.cased))
        return described + (described > 0 and _ATTRIBUTE.search(self.cased) is not None)

    def has(self, pattern: str) -> bool:
        """Whether the text has it."""
        return re.search(pattern, self.text) is not None

    def does(self, pattern: str) -> bool:
        """Whether a clause begins with it."""
        return any(re.match(pattern, clause) for clause in self.clauses)


def read_task(task: str, tools: Iterable[Tool | ToolSpec]) -> Reading:
    """What the signals are asked of."""
    if len(task) > MAX_CHARS:
        task = f"{task[: MAX_CHARS // 2]}\n{task[-MAX_CHARS // 2 :]}"
    named = [f"{tool.name} {tool.description}" for tool in tools]
    plain = _QUOTED.sub(" it ", _FENCE.sub(" it ", task.replace("\u2019", "'")))
    lowered = plain.lower()
    searches = any(_SEARCH.search(name) for name in named)
    return Reading(lowered, plain, tuple(_clauses(lowered)), _CODE.search(task) is not None, bool(named), searches)


def _clauses(text: str) -> Iterator[str]:
    start = 0
    for end in [*(found.end() for found in _CLAUSE_END.finditer(text)), len(text)]:
        while start < end and (lead := _LEAD.match(text, start, end)) is not None:
            start = lead.end()
        if start < end:
            yield text[start : start + 200]
        start = end


# --- the table ---


@dataclasses.dataclass(frozen=True)
class Signal:
    """What speaks for an engine, how much, and why; all that is given must apply.

    Args:
        does: a clause of the task begins with this.
        has: the task has this.
        also: it has this too.
        told: it tells to do something; a question about a sudoku is none to solve.
        tools: there are tools.
        when: anything else.
    """

    engine: str
    weight: int
    reason: str
    does: str = ""
    has: str = ""
    also: str = ""
    told: bool = False
    tools: bool = False
    when: Callable[[Reading], bool] | None = None

    def applies(self, task: Reading) -> bool:
        """Whether a task has this signal."""
        if (self.tools and not task.tools) or (self.told and task.asks):
            return False
        if (self.does and not task.does(self.does)) or not all(map(task.has, filter(None, (self.has, self.also)))):
            return False
        return self.when is None or self.when(task)


CHECKED = "it is about what is true, and there are tools to check that with"
JUDGED = "its outcome can be judged, and a failed attempt teaches the next one"
TRIED = "there are many candidates: several lines are tried and the best ones followed"
STEPS = "it has several parts, which are planned before they are done"
INDEPENDENT = "several things are independent of each other, so that they can be done at the same time"

SIGNALS: tuple[Signal, ...] = (
    # critic
    Signal(CRITIC, 4, CHECKED, does=rf"{CHECKING}{NEAR}{CLAIMS}\b|fact[ -]?check", tools=True),
    Signal(CRITIC, 4, CHECKED, does=rf"(?:check|review|examine) (?:\w+ ){{0,2}}{EVIDENCE}\b", tools=True),
    Signal(CRITIC, 4, CHECKED, does=rf"{ASKING_IF}{NEAR}(?:{RIGHT}|nothing wrong)\b", has=rf"\b{CLAIMS}\b", tools=True),
    Signal(
        CRITIC, 4, CHECKED, tools=True,
        has=rf"\b(?:is|are|was|were) (?:it|this|that|these|those|all|the|any)\b[^.?]{{0,70}}\b{RIGHT}\b(?! now)",
        also=rf"\b(?:{CLAIMS}|true|myth|made up)\b",
    ),
    Signal(
        CRITIC, 4, CHECKED, tools=True, told=True,
        has=rf"\b{any_of('factual false wrong incorrect inaccurate')}{NEAR}{SLIPS}\b",
    ),
    Signal(
        CRITIC, 3, CHECKED, tools=True,
        has=rf"\b{any_of('every each all')}{NEAR}{CLAIMS}{NEAR}{any_of('accurate correct supported right true')}\b"
        rf"|\bno {CLAIMS}{NEAR}{any_of('wrong false untrue made_up')}\b|\bwithout (?:any )?(?:factual )?{SLIPS}\b"
        r"|\bfactually (?:accurate|correct)\b",
    ),
    # reflexion
    Signal(REFLEXION, 4, JUDGED, does=rf"{MAKING}{NEAR}{CODE}\b", when=lambda task: not task.is_question),
    Signal(REFLEXION, 3, JUDGED, does=rf"{MAKING}\b", has=rf"\bin {LANGUAGE}\b|\b{LANGUAGE} {CODE}\b", told=True),
    Signal(REFLEXION, 3, JUDGED, does=rf"{any_of('translate convert port')}{NEAR}{LANGUAGE}\b", has=rf"\b{CODE}\b"),
    Signal(REFLEXION, 3, JUDGED, does=r"implement (?:an?|the|[a-z]+ (?:search|sort|tree|algorithm))\b"),
    Signal(
        REFLEXION, 3, JUDGED, told=True,
        has=rf"\b{JUDGE}{NEAR}{PLEASED}\b|\b{JUDGE} is happy\b|\bpass(?:es)? (?:\w+ ){{0,2}}{JUDGE}\b"
        rf"|\bfailing {JUDGE}\b|\b{JUDGE} fails?\b"
        rf"|\buntil {NEAR}{any_of('pass(es) work(s) validates compile(s) succeeds runs builds accepts')}\b",
    ),
    Signal(REFLEXION, 4, JUDGED, has=any_of("leetcode hackerrank codeforces codewars advent_of_code project_euler")),
    Signal(REFLEXION, 4, JUDGED, when=lambda task: task.code and (not task.asks or task.has(r"\b(?:bug|fail|fix)"))),
    # tree-of-thoughts
    Signal(TREE, 5, TRIED, has=r"\bgame of 24\b|\b24 game\b", told=True),
    Signal(
        TREE, 4, TRIED,
        has=rf"\b{any_of('make get reach obtain form')} \d+ {any_of('out_of from with using')}\b"
        rf"|\b{any_of('use using combine')}{NEAR}{any_of('numbers digits exactly_once')}{NEAR}"
        rf"{any_of('get make reach obtain')}\b|\breach \d+ with\b",
        also=r"\d+\D{1,5}\d+",
    ),
    Signal(TREE, 4, TRIED, has=rf"\b{PUZZLE}\b|\bqueens{NEAR}board\b", told=True),
    Signal(TREE, 4, TRIED, has=rf"\bcross (?:a|the) (?:river|bridge){NEAR}{any_of('boat raft wolf fox goat')}\b"),
    Signal(TREE, 4, TRIED, does=rf"{SEARCHING}{NEAR}{CHOICE}{NEAR}{NEEDING}\b"),
    Signal(TREE, 4, TRIED, does=rf"{SEARCHING}{NEAR}{CHOICE}{NEAR}as {any_of('short cheap fast few many')} as\b"),
    Signal(TREE, 4, TRIED, does=rf"{PLACING}{NEAR}(?:so|such) that{NEAR}{ALL_OR_NONE}\b"),
    Signal(TREE, 4, TRIED, does=rf"{INVENTING}{NEAR}{IDEAS}\b|brainstorm", told=True),
    Signal(
        TREE, 4, TRIED, does=rf"{any_of('write compose plan outline tell')}{NEAR}{FICTION}\b",
        has=rf"\b{FORM}\b|\beach {any_of('paragraph line chapter stanza verse')}\b|\bacrostic|\bpalindrom",
    ),
    # self-ask
    Signal(
        SELF_ASK, 4, "the question needs several facts, one for the next, and there is a search for each",
        when=lambda task: task.search and task.is_question and task.look_ups >= 2,
    ),
    # plan-execute
    Signal(PLAN, 3, STEPS, when=lambda task: task.to_do >= 3),
    Signal(PLAN, 4, STEPS, when=lambda task: len(_ITEM.findall(task.text)) >= 2),
    Signal(
        PLAN, 4, STEPS, has=rf"\bfirst(?:ly)?\b[\s\S]{{1,400}}\b{any_of('then next after_that finally lastly')}\b",
        when=lambda task: task.to_do >= 2,
    ),
    Signal(PLAN, 4, STEPS, has=r"\bfirst\b[^?]{1,200}\b(?:then|next|after that)\b[^?]{1,200}\b(?:finally|lastly)\b"),
    Signal(PLAN, 3, STEPS, does=rf"{any_of('write create prepare produce draft compile make')}{NEAR}{WORK}\b"),
    Signal(PLAN, 2, STEPS, has=r"(?:\bwith\b|\bincluding\b|:)[^.\n:]{1,200},[^.\n:]{1,200}\b(?:and|or)\b", told=True),
    Signal(PLAN, 1, STEPS, has=r":[^.\n:,]{1,99},[^.\n:,]{1,99},?[^.\n:,]{0,99} and\b", told=True),
    Signal(PLAN, 2, STEPS, does=rf"{UNDERTAKING}\b", told=True),
    Signal(PLAN, 3, INDEPENDENT, has=r"\bfor (?:each|every)\b|\b(?:each|every) (?:one )?of\b", tools=True),
    Signal(PLAN, 3, INDEPENDENT, tools=True, when=lambda task: _NAMES.search(task.cased) is not None),
    Signal(
        PLAN, 3, INDEPENDENT, has=rf"\b(?:{NUMBER}) (?:[a-z]+ ){{0,2}}[a-z]+s\b", tools=True,
        when=lambda task: task.to_do >= 2,
    ),
    Signal(PLAN, 2, INDEPENDENT, does=r"compare\b", tools=True),
)  # fmt: skip


def recommend_engine(task: str, tools: Iterable[Tool | ToolSpec] = ()) -> Recommendation:
    """The engine that suits a task, by its entry-point name, with the reason.

    It reads the wording (English) and what the tools are called; no model is asked, and the same task always gets the
    same answer. Where nothing speaks for a particular strategy it is `react` if there are tools, else
    `chain-of-thought`. Raises `ConfigError` if `task` is no text.
    """
    if not isinstance(task, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"task: must be a text, got {type(task).__name__}")
    reading = read_task(task, tools)
    found = [signal for signal in SIGNALS if signal.applies(reading)]
    weights = {engine: sum(signal.weight for signal in found if signal.engine == engine) for engine in SPECIFIC}
    ranked = sorted((engine for engine in SPECIFIC if weights[engine]), key=lambda engine: -weights[engine])
    usual, reason = _usual(reading)
    if not ranked or weights[ranked[0]] < ENOUGH:
        return Recommendation(usual, reason, (*ranked, THOUGHT if usual == REACT else REACT))
    best = ranked[0]
    strongest = max((signal for signal in found if signal.engine == best), key=lambda signal: signal.weight)
    return Recommendation(best, strongest.reason, (*ranked[1:], usual))


def _usual(task: Reading) -> tuple[str, str]:
    if task.tools:
        return REACT, "there are tools, and nothing in the task needs more than using them in turns"
    if _SUMS.search(task.text):
        return THOUGHT, "it is worked out step by step, and there are no tools"
    return THOUGHT, "there are no tools, so it is thought through and answered"
