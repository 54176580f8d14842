"""Knowledge: the port of stores of what runs remember, and the item that they hold."""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from .._internal import dataclasses
from ..errors import ConfigError
from ..labels import LABELS, Label

MAX_TEXT = 100_000
"""Characters of an item's text."""
MAX_ITEMS = 100
"""The most items that a search returns."""


MAX_MARKS = 32
"""The most tags and relations of an item, each."""
MAX_NAME = 500
"""Characters of a category, a tag, and the parts of a relation."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME


@dataclasses.dataclass(frozen=True)
class Relation:
    """How an item stands to something else: `Relation("lives in", "Bergen")`.

    Args:
        kind: the relation.
        target: a name, or the id of another item.
    """

    kind: str
    target: str

    def __post_init__(self) -> None:
        if not (_is_name(self.kind) and _is_name(self.target)):
            raise ConfigError(
                f"relation: kind and target must have 1 to {MAX_NAME} characters, got {(self.kind, self.target)!r:.80}"
            )


@dataclasses.dataclass(frozen=True)
class Remembered:
    """One item of knowledge: what is stored, and what a search returns.

    Args:
        text: what is known, in a sentence or a few.
        kind: what sort of item it is: "fact", "preference", "episode", "turn" …
        topic: what it is about; a later item of the same scope, kind and topic supersedes it. Empty: it supersedes nothing.
        score: from 0 to 1: how sure the text is when it is stored, and how well it matches when it is found.
        label: how sensitive it is.
        untrusted: whether it holds text from outside.
        source_run: the run that stored it, if one did.
        source_key: the place in that run.
        valid_from: wall time in seconds since when it holds; `None` is the time at which it is stored.
        valid_to: wall time in seconds until when it held; `None` for what holds.
        scope: whose knowledge it is: a text such as a tenant's name. "acme/berlin" is a part of "acme".
        id: what the store calls it.
        category: the area that it belongs to, such as "food"; searches can keep to one.
        tags: words to find it by; searches can ask for some. They do not make it another item.
        relations: how it stands to other things.
    """

    text: str
    kind: str = "fact"
    topic: str = ""
    score: float = 1.0
    label: Label = "normal"
    untrusted: bool = False
    source_run: str = ""
    source_key: str = ""
    valid_from: float | None = None
    valid_to: float | None = None
    scope: str = ""
    id: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        problem = self._find_problem() or self._find_mark_problem()
        if problem:
            raise ConfigError(problem)

    def _find_problem(self) -> str:
        length = len(self.text) if _is_text(self.text) else 0
        if not 0 < length <= MAX_TEXT:
            return f"text: must have 1 to {MAX_TEXT} characters, got {self.text!r:.80}"
        if self.label not in LABELS:
            return f"label: must be one of {', '.join(LABELS)}, got {self.label!r}"
        if not 0 <= self.score <= 1:
            return f"score: must be a number from 0 to 1, got {self.score!r}"
        return ""

    def _find_mark_problem(self) -> str:
        if self.category and not _is_name(self.category):
            return f"category: must be a text of at most {MAX_NAME} characters, got {self.category!r:.80}"
        if len(self.tags) > MAX_MARKS or not all(map(_is_name, self.tags)):
            return f"tags: must be at most {MAX_MARKS} texts of 1 to {MAX_NAME} characters, got {self.tags!r:.80}"
        if len(self.relations) > MAX_MARKS:
            return f"relations: must be at most {MAX_MARKS}, got {len(self.relations)}"
        return ""


@dataclasses.dataclass(frozen=True)
class Forget:
    """Which items to forget: those that meet every condition that is given, of which one must be.

    Args:
        id: the item, with all that it superseded and what superseded it.
        scope: the items of a scope and of those inside it.
        kind: the items of a kind.
        topic: the items of a topic.
        source_run: what a run stored.
    """

    id: str = ""
    scope: str = ""
    kind: str = ""
    topic: str = ""
    source_run: str = ""

    def __post_init__(self) -> None:
        if not any(dataclasses.astuple(self)):
            raise ConfigError(
                "forget: names no condition, which would forget everything; name an id, scope, kind, topic or source_run"
            )
        if self.scope and not self.scope.strip("/"):
            raise ConfigError(
                f"scope: names no scope, got {self.scope!r}, which would forget what is in each; leave it out or name one"
            )


@runtime_checkable
class Knowledge(Protocol):
    """A store of what runs remember.

    Every method works within one scope. Without one, `search` and `store` raise `ConfigError` unless the store is
    `shared`. Invalid arguments raise `ConfigError`, a store that does not work raises `KnowledgeError`.
    """

    async def search(
        self,
        query: str,
        *,
        kinds: Collection[str] = (),
        limit: int = 5,
        threshold: float = 0.3,
        scope: str = "",
        category: str = "",
        tags: Collection[str] = (),
    ) -> Sequence[Remembered]:
        """Return at most `limit` items that hold and match, the best first, with `score` at least `threshold`.

        Args:
            query: words to look for, or a question.
            kinds: the kinds of items; empty for all.
            limit: the most items, 1 to `MAX_ITEMS`.
            threshold: the least score, from 0 to 1.
            scope: the scope to look in, with those inside it; a shared store has what has no scope in every one.
            category: the category of the items; empty for all.
            tags: tags that an item has all of.
        """
        ...

    async def store(self, item: Remembered, *, key: str) -> str:
        """Store an item and return its id; what was stored under the same `key` before is not stored again.

        An item that is there already is not stored twice: it keeps the higher label, is untrusted if either is, and has the
        tags and relations of both, the newest as far as there is room. An
        item supersedes the one of its scope, kind and topic. Returns an empty text for what was forgotten since.
        """
        ...

    async def forget(
        self,
        *,
        id: str = "",
        scope: str = "",
        kind: str = "",
        topic: str = "",
        source_run: str = "",
    ) -> int:
        """Forget the items that meet every condition, for good, and return how many; see `Forget`.

        No search, history or file of the store holds them afterwards, and storing them under their old keys does nothing.
        """
        ...

    async def history(self, id: str) -> Sequence[Remembered]:
        """Return an item with all that it superseded and what superseded it, the oldest first; empty for an unknown id."""
        ...

    async def close(self) -> None:
        """Close the store; it can be used no more."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors whose cosine says how alike they are; one wire call or computation, no retries.

    `name` says which model and version it is: vectors of two names cannot be compared, so a store keeps to one.
    """

    @property
    def name(self) -> str:
        """The model and its version."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of `dimensions` numbers for each text, in order."""
        ...


def check_search(limit: object, threshold: object) -> None:
    """Raise `ConfigError` for an invalid limit or threshold of a search."""
    is_count = isinstance(limit, int) and not isinstance(limit, bool)
    if not is_count or not 1 <= limit <= MAX_ITEMS:  # type: ignore[operator]
        raise ConfigError(
            f"limit: must be a whole number from 1 to {MAX_ITEMS}, got {limit!r}"
        )
    if not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
        raise ConfigError(f"threshold: must be a number from 0 to 1, got {threshold!r}")


def check_names(field: str, names: object) -> None:
    """Raise `ConfigError` for a text in the place of a collection of texts, of which it has none but its letters."""
    if isinstance(names, str):
        raise ConfigError(
            f"{field}: must be a collection of texts, got {names!r:.80}; write [{names!r:.80}]"
        )


def check_key(key: object) -> None:
    """Raise `ConfigError` for a key under which nothing can be stored once."""
    if not key or not isinstance(key, str):
        raise ConfigError(
            f"key: must be a text that names what is stored, got {key!r:.80}; give it one, such as 'RUN_ID:KEY'"
        )


def check_scope(scope: object, *, shared: bool) -> str:
    """Return a scope without slashes around it; raise `ConfigError` without one if the store is not shared."""
    if not isinstance(scope, str):
        raise ConfigError(f"scope: must be a text, got {scope!r:.80}")
    found = scope.strip("/")
    if not found and not shared:
        raise ConfigError(
            "scope: is empty, got ''; name whose knowledge it is, such as a tenant, or make the store with shared=True"
        )
    return found
