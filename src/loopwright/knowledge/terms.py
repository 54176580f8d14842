"""Terms: the words of a text that a search looks for."""

from .._internal.regex import compile_late

MAX_TERMS = 15
"""The words of a query that count; the others are left out."""
WORD = compile_late(r"\w+")
STOP_WORDS = frozenset(
    WORD.findall(
        """a about after all also am an and any are as at be because been before being but by can could did do does doing for
    from had has have having he her here him his how i if in into is it its just me my no not of on or our out own
    she should so some such than that the their them then there these they this those to too under until up us very was
    we were what when where which while who whom why will with would you your"""
    )
)
"""English words that say nothing about what a text is about."""


def read_terms(text: str, limit: int = MAX_TERMS) -> list[str]:
    """Return the first different words of a text in lower case, without stop words unless there are no others."""
    words = list(dict.fromkeys(WORD.findall(text.lower())))
    content = [word for word in words if word not in STOP_WORDS]
    return (content or words)[:limit]


def beginning_of(word: str) -> str:
    """Return the letters of a word that its stem begins with, too."""
    return word[:2]
