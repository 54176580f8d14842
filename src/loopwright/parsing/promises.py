"""Promises in model text: a reply that ends by saying what the model is about to do, and does not do it."""

import re

from .._internal.regex import compile_late

MAX_PROMISE = 600  # characters; a longer reply is an answer that happens to end so
_SENTENCE_END = compile_late(r"(?<=[.!?:\u2026])\s++|\n++")
_OPENING = r"(?:(?:ok|okay|sure|alright|first|now|next|then|so|great|certainly|of course)\b[,.!:]?\s++)*+"
_INTENT = (
    r"(?:i['\u2019]ll|i\s+will|i\s+am\s+going\s+to|i['\u2019]m\s+going\s+to|i\s+need\s+to|i\s+should|let\s+me|let['\u2019]s|"
    r"we\s+will|we\s+need\s+to)"
)
_FILLER = (
    r"(?:\s+(?:now|first|next|then|also|just|quickly|begin\s+by|start\s+by|proceed\s+to|go\s+ahead\s+and|try\s+to|"
    r"have\s+to))*+"
)
# What is done to a person, or later, is not done by a tool: "We will call you tomorrow."
_PERSONAL = (
    r"(?!\s+(?:you|him|her|them|us|me|back|off|forward|after|started|in\s+touch|tomorrow|tonight|later|soon|next|"
    r"if|when|once|it\s+an?)\b)"
)
_DOING = (
    r"\s+(?:(?:search|look|find|check|us|call|fetch|query|get|gett|retriev|comput|calculat|read|open|brows|consult|"
    r"verify|determin|gather|perform|investigat|execut|invok)(?:e|ing)?\b|run(?:ning)?\s+(?=\w|[`'\"*]))"
)
_PROMISE = compile_late(
    _OPENING + _INTENT + _FILLER + _DOING + _PERSONAL, re.IGNORECASE
)


def is_promise(text: str) -> bool:
    """Return whether a reply's last sentence says that a search, a call or the like follows, and none does."""
    body = text.strip()
    if not body or len(body) > MAX_PROMISE:
        return False
    sentences = [part for part in _SENTENCE_END.split(body) if part.strip()]
    last = sentences[-1].strip(" *_`\"'")
    return _PROMISE.match(last) is not None and not last.endswith("?")
