"""The bridge between runs and a store of knowledge: what is recalled before model calls, and for whom."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import quote

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import Conversation, Message
from .base import Knowledge, Remembered, check_names, check_search
from .terms import MAX_TERMS, STOP_WORDS, WORD

RECENT_MESSAGES = 5
"""The user's and the tools' messages whose words are looked for."""
PROMPTS = ("engine", "runtime", "memory")
"""The origins of messages whose words say nothing about the task."""
MIN_LENGTH, MIN_UNCASED = 4, 2
"""Letters of a word that counts; the second in scripts without capitals, whose short words say as much as long ones."""
MAX_SHOWN = 1_000
"""Characters of an item that a model reads."""
SCOPE_TAGS = ("tenant", "user")
"""The tags of a run that name its scope, the first that it has."""


class DirectoryRules(Protocol):
    """Finds the rules of a project for a directory, such as `Conventions`."""

    def find(self, directory: str = ".") -> Sequence[Remembered]:
        """Return the rules for a directory, the nearest first; it blocks."""
        ...


@dataclasses.dataclass(frozen=True)
class KnowledgeBridge:
    """A store of knowledge with how runs use it; `Runtime(knowledge=store)` uses the defaults.

    Args:
        store: the store.
        limit: the most items that a model reads before a call.
        threshold: the least score of such an item.
        kinds: the kinds of such items; empty for all.
        timeout: seconds that a search may take.
        required: whether a run fails where the store does not work; else it continues, and an entry says so.
        auto_persist: whether the gist of each answer is stored after its run, as the follow-up `answer-gist`.
        tools: whether models may call `recall_knowledge` and `store_knowledge`.
        conventions: the rules of a project, which models get by `recall_knowledge(scope="conventions", directory=...)`.
    """

    store: Knowledge
    limit: int = 5
    threshold: float = 0.3
    kinds: tuple[str, ...] = ()
    timeout: float = 5.0
    required: bool = False
    auto_persist: bool = False
    tools: bool = True
    conventions: DirectoryRules | None = None

    def __post_init__(self) -> None:
        check_search(self.limit, self.threshold)
        check_names("kinds", self.kinds)
        if not callable(getattr(self.store, "search", None)):
            raise ConfigError(
                f"knowledge: needs a store with a method `search`, got {type(self.store).__name__}"
            )
        if not self.timeout > 0:
            raise ConfigError(f"timeout: must be seconds above 0, got {self.timeout!r}")


def scope_of(tags: Mapping[str, str], thread: str) -> str:
    """Return the scope of a run: its tag "tenant", else "user", else its thread; empty for none of them.

    Slashes in them are encoded, so that no name is inside another.
    """
    named = [tags[name] for name in SCOPE_TAGS if tags.get(name)]
    return quote((named or [thread])[0], safe="")


def recall_queries(conversation: Conversation) -> tuple[str, ...]:
    """Return the words to look for that are long enough: those of the user's newest message, and of the newest ones.

    The newest messages are those of the user and of the tools. Where both say the same, that is one query.
    """
    recent = [
        message
        for message in reversed(conversation.messages)
        if message.role in ("user", "tool") and message.origin not in PROMPTS
    ][:RECENT_MESSAGES]
    newest = next((one for one in recent if one.role == "user"), None)
    alone = () if newest is None else (newest,)
    found = (_join_words(alone), _join_words(recent))
    return tuple(dict.fromkeys(query for query in found if query))


def _join_words(messages: Sequence[Message]) -> str:
    words = [word for message in messages for word in _words(message.content)]
    return " ".join(list(dict.fromkeys(words))[:MAX_TERMS])


async def search_each(
    bridge: KnowledgeBridge, queries: Sequence[str], scope: str
) -> list[Remembered]:
    """Return what a store has for queries: the best item of each, then the second of each, and so on.

    So a new question is not outweighed by what was asked before, and one that continues it ("and on Sunday?") is
    found with the words that it leaves out.
    """
    found = [
        await bridge.store.search(
            query, kinds=bridge.kinds, limit=bridge.limit, threshold=bridge.threshold, scope=scope
        )
        for query in queries
    ]  # fmt: skip
    distinct: dict[str, Remembered] = {}
    for item in itertools.chain.from_iterable(itertools.zip_longest(*found)):
        if item is not None:
            distinct.setdefault(item.id or item.text, item)
    return list(distinct.values())[: bridge.limit]


def _words(text: str) -> list[str]:
    """Return the words of a text that say something; the lines of fences do not count."""
    lines = [line for line in text.splitlines() if not line.startswith("=== ")]
    found = WORD.findall(" ".join(lines).lower())
    return [word for word in found if _is_long(word) and word not in STOP_WORDS]


def _is_long(word: str) -> bool:
    has_capitals = word.isascii() or word.upper() != word
    return len(word) >= (MIN_LENGTH if has_capitals else MIN_UNCASED)


def format_items(items: Sequence[Remembered]) -> str:
    """Return items as a model reads them, one in a line."""
    texts = [" ".join(item.text.split())[:MAX_SHOWN] for item in items]
    return "\n".join(
        f"- {text} ({item.kind})" for item, text in zip(items, texts, strict=True)
    )


def name_store(bridge: KnowledgeBridge | None) -> str:
    """Return the name of the class of a runtime's store; empty without one."""
    return "" if bridge is None else type(bridge.store).__name__
