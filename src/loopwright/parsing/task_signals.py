"""What the words of a task say about it: its kinds of work, its steps, and what it leaves open."""

import functools
import re
from collections.abc import Mapping

from .._internal import dataclasses

MAX_CHARS = 4_000
"""Only this much of a longer task is read."""
_WORD = re.compile(r"[\w'\u2019-]+")
_QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"\n]*\"|\u201c[^\u201d\n]*\u201d", re.DOTALL)  # fmt: skip
_POLITE = re.compile(
    r"(?:\W*\b(?:please|hey|hi|hello|now|then|so|well|ok|okay|just|go ahead and|(?:can|could|would|will) you(?: please)?|"
    r"i (?:want|need|would like|'d like) you to|you should|let us|let's)\b\W*)+",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"(?:who|whom|whose|what|when|where|why|how|which|did|do you|does|is|are|am|was|were|has|have|had|can|could|should|"
    r"would|will|may|might)\b",
    re.IGNORECASE,
)
_YES = re.compile(r"\W*(?:yes|yep|yeah|sure|confirmed|i am sure|i'm sure|do so)\b", re.IGNORECASE)  # fmt: skip
_LOOSE = r"(?:to|in|into|for|with|from|as|on|at|by|and|now|please|again|up|down|out|work|all|too|later|today|asap|\w+er)"
_AMBIGUOUS = re.compile(
    rf"\w+(?: (?:up|out|off|with|on|at))? (?:(?:it|them)\b|(?:this|that|these|those)(?=\W*$| {_LOOSE}\b))"
    r"|.*\byou know (?:what to do|the drill|how)\b|\W*(?:the usual|same as (?:before|last time|always))\b",
    re.IGNORECASE,
)
MAX_AMBIGUOUS, MAX_UNSPECIFIED, MAX_SIMPLE = 6, 14, 11
"""Words of a task that can be ambiguous, leave open what it is about, or be simple."""
_RESOURCES = (
    "repo|repository|project|server|database|db|file|code|codebase|app|application|site|website|cluster|branch|endpoint|"
    "deployment|machine|account|table|bucket"
)
_UNSPECIFIED = re.compile(
    rf"\b(?:my (?P<mine>{_RESOURCES})"
    r"|(?:the|that) (?P<that>repo|repository|server|database|db|endpoint|cluster|bucket))\b(?! (?:named|called)\b)"
    r"|\bsome (?P<some>time|files|data|records)\b",
    re.IGNORECASE,
)
_SPECIFIC = re.compile(r"[\w-]+[./\\:@][\w-]+|#\d+|\b\w*\d\w*\b")
_BEGIN = r"(?:^|[.;:,!\n]\s*|\b(?:and|then|finally|next|also|or|to)\s+)"
_DESTRUCTIVE = re.compile(
    _BEGIN
    + r"(?:(?:delete|destroy|wipe|erase|purge|shred|overwrite|truncate|uninstall|nuke|unlink|terminate|revoke)\b"
    r"|rm\b|(?:remove|clear|discard)\b(?!(?:\s+\w+){0,3}\s+(?:typos?|words?|spaces?|sentences?|paragraphs?|commas?|duplicates?|"
    r"comments?|bullets?|accents?|quotes?|lines? breaks?|prefix|suffix|ambiguity)\b)"
    r"|drop (?:the |all |every |my )?(?:\w+ )?"
    r"(?:tables?|databases?|index(?:es)?|schemas?|columns?|collections?|everything|data)\b"
    r"|format (?:the |my |this )?(?:disks?|drives?|partitions?|volumes?|card)\b"
    r"|empty (?:the |my |all |every )|(?:git )?push (?:\S+ ){0,4}(?:--force\b|-f\b)"
    r"|kill (?:the |all |every )|reset (?:--hard|the (?:database|server|device|repository))|force[- ]push\b)",
    re.IGNORECASE,
)
_MAY_FAIL = re.compile(
    r"\b(?:install|migrate|migration|deploy|release|upgrade|update|refactor|convert|move|transfer|book|pay|order|send|publish|"
    r"import|export|sync|rename|merge|push|restart|rebuild|provision)\w*",
    re.IGNORECASE,
)
_SEQUENCE = re.compile(
    r"\b(?:then|after(?:wards)?|next|finally|step|subsequently|first|second(?:ly)?|lastly)\b",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^[ \t]*(?:\d+[.)]|[-*])[ \t]+\S", re.MULTILINE)
_INDEPENDENT = re.compile(
    r"\b(?:for each|for every|each of|every one of|both|respectively|in parallel|at the same time|independently|separately|"
    r"compare)\b|\b\w+(?: \w+)?, \w+(?: \w+)?(?:, \w+(?: \w+)?)*,? and \w+",
    re.IGNORECASE,
)
_LARGE = re.compile(
    r"\b(?:entire|whole|end[- ]to[- ]end|comprehensive|complete|thorough(?:ly)?|large|across (?:the|all)|from scratch"
    r"|overhaul|production[- ]ready|full[- ]stack)\b",
    re.IGNORECASE,
)
_KINDS: Mapping[str, str] = {
    "code": (
        r"write|implement|code|function|class|component|refactor|fix|edit|modify|rename|patch"
        r"|integrate|unit tests?|tests?|endpoints?|routes?|api|module|script|program"
    ),
    "explore": (
        r"find|search|locate|look for|where is|grep|codebase|source code|implementation|understand"
        r"|trace|navigate|list all|show me|what files"
    ),
    "research": (
        r"research|compare|survey|find out|look up|summari[sz]e|analy[sz]e|review|investigate|study"
        r"|gather|best practices?|documentation|docs|tutorial|literature|sources|learn about"
    ),
    "security": (
        r"security|vulnerabilit\w+|vulnerable|audit|owasp|injection|xss|csrf|secrets?|api keys?"
        r"|permissions?|access control|authentication|authorization|encrypt\w*|penetration test"
        r"|compliance|gdpr|hipaa|threat model|exploit|cve"
    ),
    "debug": (
        r"debug|bugs?|errors?|crash\w*|stack trace|exception|not working|broken|fails?|failing"
        r"|regression|reproduce|root cause|troubleshoot"
    ),
    "devops": (
        r"deploy\w*|docker|containers?|kubernetes|k8s|ci/cd|pipeline|github actions|terraform"
        r"|infrastructure|provision\w*|monitoring|load balancer|nginx|reverse proxy|backup|ssl|tls"
        r"|certificates?|dns"
    ),
    "data": (
        r"query|queries|sql|database|analytics|report|charts?|visuali[sz]ations?|statistics|metrics"
        r"|aggregate|dashboard|etl|dataset|schema|table|columns?"
    ),
    "ui": (
        r"ui|ux|interface|frontend|front-end|html|css|layout|responsive|accessibility|wcag"
        r"|screen readers?|aria|animations?|design system|typography|button|modal|landing page"
        r"|dashboard"
    ),
    "architect": (
        r"architecture|system design|microservices?|monolith|scalability|trade-?offs?|data model"
        r"|api design|rest|graphql|grpc|message queue|event driven|c4 model|sequence diagram"
    ),
}


@dataclasses.dataclass(frozen=True)
class TaskSignals:
    """What was found in a task: `kinds` are words of each kind of work, by kind."""

    words: int
    is_question: bool
    is_ambiguous: bool
    resource: str
    """What it is about without saying which, such as "server"; empty without that."""
    is_destructive: bool
    is_confirmed: bool
    may_fail: bool
    sequence: int
    is_multi_step: bool
    is_independent: bool
    is_complex: bool
    kinds: Mapping[str, int]


@functools.cache
def _kind_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (kind, re.compile(rf"\b(?:{words})\b", re.IGNORECASE))
        for kind, words in _KINDS.items()
    )


def read_signals(task: str) -> TaskSignals:
    """Return what the words of a task say; quoted text and code count as something specific, and for nothing else."""
    given = task[:MAX_CHARS]
    text = _QUOTED.sub(" quotation-0 ", given).strip()
    polite = _POLITE.match(text)
    request = text[polite.end() :] if polite else text
    words = len(_WORD.findall(text))
    is_question = _QUESTION.match(request) is not None or (
        text.endswith("?") and polite is None
    )
    sequence = len(_SEQUENCE.findall(text))
    listed = len(_LISTED.findall(text))
    kinds = {kind: len({one.lower() for one in pattern.findall(text)}) for kind, pattern in _kind_patterns()}  # fmt: skip
    is_multi_step = sequence >= 2 or listed >= 2
    many = sum(count >= 2 for count in kinds.values()) >= 3
    return TaskSignals(
        words,
        is_question,
        _is_ambiguous(request, words, is_question),
        _find_resource(text, words, is_question),
        not is_question and _DESTRUCTIVE.search(request) is not None,
        _YES.match(text) is not None,
        _MAY_FAIL.search(text) is not None,
        sequence,
        is_multi_step,
        _INDEPENDENT.search(text) is not None,
        _LARGE.search(text) is not None or many,
        {kind: count for kind, count in kinds.items() if count},
    )


def _is_ambiguous(request: str, words: int, is_question: bool) -> bool:
    may_be = not is_question and words <= MAX_AMBIGUOUS
    return may_be and _AMBIGUOUS.match(request) is not None


def _find_resource(text: str, words: int, is_question: bool) -> str:
    if is_question or words > MAX_UNSPECIFIED or _SPECIFIC.search(text):
        return ""
    found = _UNSPECIFIED.search(text)
    return "" if found is None else next(filter(None, found.groups()))
