"""Find in plain text what is worth remembering: preferences by explicit patterns, entities by capitals, a gist by length."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from .._internal.regex import compile_late
from ..knowledge.terms import STOP_WORDS, WORD

MAX_PREFERENCE = 200
"""Characters of a preference; a longer sentence says something else."""
MAX_ENTITIES = 20
MAX_NAME = 60
SENTENCE = compile_late(r"[^.!?\n]{1,400}[.!?]?")
GREETING = compile_late(
    r"^(?:(?:hello|hi|hey|good (?:morning|afternoon|evening)|thanks|thank you|ok|okay|well|also|by the way"
    r"|actually|no|oh|sorry)"
    r"(?: there| again)?[,!]?\s+(?:and\s+)?)+",
    re.IGNORECASE,
)
"""What may stand in front of what a person says."""
OWN = compile_late(r"^(?:i|i'm|my|please|call me)\b", re.IGNORECASE)
"""How a sentence of a person about themselves begins."""
CLAUSE = compile_late(
    r",?\s+(?:and|but)\s+(?=(?:i|i'm|my|please|call me)\s)", re.IGNORECASE
)
_REPORTED = "said|say|told|asked|ask|meant|mean|had|got|thought|think|knew|saw|heard|did|was|been|wanted"
"""Verbs that report something once."""
_OFTEN = r"(?:(?:really|always|usually|generally|only|never|strongly|do not|don't|can't|cannot)\s+)?"
PREFERENCES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"^i\s+{_OFTEN}(?:prefer|like|love|enjoy|hate|dislike|avoid)\s+\S",
        rf"^i\s+(?:always|usually|generally|never)\s+(?!(?:{_REPORTED})\b)\S",
        r"^i(?:'m| am)\s+(?:a\s+)?(?:vegan|vegetarian|allergic to\s+\S)",
        r"^my\s+(?:favou?rite|preferred|usual)\s+\S.*\s(?:is|are)\s+\S",
        r"^(?:please\s+)?(?:always|never)\s+(?!mind)\S",
        r"^(?:please\s+)?call me\s+\S",
        r"^my name is\s+\S",
        r"^(?:please\s+)?remember that\s+\S",
        r"^from now on\b.*\S",
    )
)
"""How a sentence begins that says what its speaker always wants."""
TOPICS = (
    (re.compile(r"^my (?:favou?rite|preferred|usual) (.{1,60}?) (?:is|are) ", re.IGNORECASE), "favourite {}"),
    (re.compile(r"^(?:please )?call me |^my name is ", re.IGNORECASE), "name"),
)  # fmt: skip
"""Preferences of which there is one at a time: a later one supersedes it."""
CATEGORIES = {
    "food": r"eat|drink|tea|coffee|meat|fish|vegan|vegetarian|allergic|cook|cuisine|restaurants?|food|meal|breakfast|dinner",
    "travel": r"fly|flights?|trains?|hotels?|window|aisle|seats?|travel|drive|airports?|town|city|country",
    "language": r"german|english|french|spanish|italian|dutch|language|translate",
    "units": r"metric|imperial|celsius|fahrenheit|feet|miles|kilomet(?:re|er)s|units",
    "style": r"answers?|reply|replies|tone|brief|short|long|formal|bullet|tables?|emoji|spelling|font|colou?r",
    "money": r"pay|cash|card|price|cheap|budget|euros?|dollars?|invoice",
    "time": r"morning|evening|noon|weekends?|monday|tuesday|wednesday|thursday|friday|saturday|sunday|calendar|o'clock",
    "name": r"call me|my name",
}
"""Words of the area that a preference belongs to; the first area that has one counts."""
VERBS = frozenset(
    WORD.findall(
        """add answer ask book buy call check compare compute cook create delete describe draw email explain find fix follow
    get give help invite let list look mail make meet move note open order pay plan play please print put read remember
    remind reply report ring say search see send set show start stop sum take talk tell thank translate try turn update
    use visit wait wake watch write"""
    )
)
"""What a request begins with, before a name."""
_NAME = compile_late(r"[A-Z][\w&'-]*(?:[ ][A-Z][\w&'-]*){0,4}")
_WORD = compile_late(r"[\w&'-]+")


def find_preferences(texts: Sequence[str]) -> list[str]:
    """Return the sentences that say what a person always wants, each once."""
    found: dict[str, None] = {}
    for sentence in _sentences(texts):
        is_question = sentence.endswith("?")
        if is_question or len(sentence) > MAX_PREFERENCE:
            continue
        for clause in _split_clauses(sentence):
            if _is_preference(clause):
                bare = clause.rstrip(".!,; ")
                found.setdefault(f"{bare[0].upper()}{bare[1:]}.")
    return list(found)


def _split_clauses(sentence: str) -> list[str]:
    """Return what a person says of themselves in a sentence, without a greeting: "I am Ada", "I prefer tea".

    A sentence that is about something else at its beginning is one clause.
    """
    bare = GREETING.sub("", sentence)
    return CLAUSE.split(bare) if OWN.match(bare) else [bare]


def _is_preference(sentence: str) -> bool:
    return any(pattern.search(sentence) for pattern in PREFERENCES)


def find_topic(preference: str) -> str:
    """Return what a preference is about if there is one of it at a time; empty for any other."""
    for pattern, topic in TOPICS:
        match = pattern.search(preference)
        if match is not None:
            return topic.format(*match.groups()).casefold()
    return ""


def find_category(preference: str) -> str:
    """Return the area that a preference belongs to; empty where no word says one."""
    for category, words in CATEGORIES.items():
        if re.search(rf"\b(?:{words})\b", preference, re.IGNORECASE):
            return category
    return ""


def _sentences(texts: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of texts, in one form of each letter and with plain apostrophes, which telephones do not write."""
    for text in texts:
        plain = unicodedata.normalize("NFC", text).replace("\u2019", "'")
        for match in SENTENCE.finditer(plain):
            sentence = " ".join(match[0].split())
            if sentence:
                yield sentence


def find_entities(texts: Sequence[str]) -> list[str]:
    """Return the names in texts, at most `MAX_ENTITIES`, the first ones.

    A word that begins a sentence is a name only if it is written so in another place too, or has inner capitals or digits.
    """
    certain: dict[str, None] = {}
    doubtful: dict[str, None] = {}
    for sentence in _sentences(texts):
        for match in _NAME.finditer(sentence):
            name = _trim(match[0], is_first=match.start() == 0)
            if not name or len(name) > MAX_NAME:
                continue
            begins = match.start() == 0 and sentence.startswith(name)
            is_plain = name[1:].islower() and " " not in name
            (doubtful if begins and is_plain else certain).setdefault(name)
    return list(certain)[:MAX_ENTITIES]


def _trim(name: str, *, is_first: bool) -> str:
    """Return a name without the stop words at its beginning and end, and without the verb that begins a sentence."""
    words = _WORD.findall(name)
    if is_first and words and words[0].lower() in VERBS:
        words.pop(0)
    while words and _is_stop_word(words[0]):
        words.pop(0)
    while words and _is_stop_word(words[-1]):
        words.pop()
    return " ".join(words)


def _is_stop_word(word: str) -> bool:
    return word.lower() in STOP_WORDS or len(word) < 2


def shorten(text: str, length: int) -> str:
    """Return a text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"
