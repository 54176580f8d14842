"""The filter by which runs are listed: tags, thread, status and time."""

import json
import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

from .._internal import dataclasses
from ..errors import ConfigError, UnknownRun
from ..events.followups import FOLLOW_UP
from ..events.run import Status
from ..principals import TENANT_TAG, USER_TAG
from .arguments import check_run_id, check_whole
from .base import RESUMABLE, RunInfo, is_turn_id

MAX_TAGS = 32
"""The maximum number of tags of a run."""
MAX_TAG_NAME = 64
"""The maximum number of characters in the name of a tag."""
MAX_TAG_VALUE = 256
"""The maximum number of characters in the value of a tag, and in the name of a thread."""


STATUSES = tuple(dict.fromkeys([*RESUMABLE, *get_args(Status), "damaged"]))
"""What `RunInfo.status` may be."""
Missing: TypeAlias = Literal["", "engine", "version", "follow-up"]


@dataclasses.dataclass(frozen=True)
class ListedRun:
    """A run as a process lists it.

    Args:
        info: the run.
        missing: what the process lacks to resume it: its "engine" is not installed, its code is of another "version"
            than those that the process takes, or its "follow-up" is not there; empty for nothing, and for a run that has
            ended.
    """

    info: RunInfo
    missing: Missing = ""

    @classmethod
    def of(
        cls,
        info: RunInfo,
        engines: Container[str],
        versions: Container[str] | None,
        can_do: Callable[[RunInfo], bool] | None = None,
    ) -> "ListedRun":
        """Return a run as a process lists it that has these engines and takes these versions, `None` for all.

        `can_do` tells whether the process has the follow-up of a run that does one; without, that is not looked at.
        """
        if info.status not in RESUMABLE:
            return cls(info)
        if can_do is not None and not can_do(info):
            return cls(info, "follow-up")
        if info.engine != FOLLOW_UP and info.engine not in engines:
            return cls(info, "engine")
        is_taken = versions is None or info.app_version in versions
        return cls(info, "" if is_taken else "version")


@dataclasses.dataclass(frozen=True)
class RunFilter:
    """Which runs to list: those to which everything that is given applies.

    Args:
        status: one status, or several.
        engine: the name of the engine.
        agent: the name of the agent.
        thread: the name of the conversation.
        tags: tags that the run must have.
        since: the run began then or later (wall clock, seconds).
        until: the run began before that.
        principal: the id of the principal that started the run; its tag `user`.
        tenant: the tenant of that principal; its tag `tenant`. Both are looked up in the store's index of tags.
        text: a part of the run's id, engine, agent, thread or tags, which are searched as a JSON object; capitals do not
            matter in any script (`str.casefold`).
    """

    status: str | tuple[str, ...] = ()
    engine: str = ""
    agent: str = ""
    thread: str = ""
    tags: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    since: float | None = None
    until: float | None = None
    text: str = ""
    tenant: str = ""
    principal: str = ""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a value of another type."""
        self._add_tag(TENANT_TAG, self.tenant)
        self._add_tag(USER_TAG, self.principal)
        check_tags(self.tags)
        _check_statuses(self.status)
        for name in (*_NAMES, "text"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigError(f"{name}: must be a text, got {value!r}")
        for name in ("since", "until"):
            value = getattr(self, name)
            is_time = isinstance(value, (int, float)) and math.isfinite(value)
            if value is not None and not is_time:
                raise ConfigError(f"{name}: must be seconds, got {value!r}")

    def _add_tag(self, name: str, value: str) -> None:
        """Select runs by the tag that a principal gives them."""
        if not value:
            return
        if self.tags.get(name, value) != value:
            raise ConfigError(
                f"tags[{name!r}]: is {self.tags[name]!r}, and {value!r} was given too; leave one out"
            )
        object.__setattr__(self, "tags", {**self.tags, name: value})

    @property
    def statuses(self) -> tuple[str, ...]:
        """Return the statuses that are given, none for all."""
        if isinstance(self.status, str):
            return (self.status,) if self.status else ()
        return tuple(self.status)

    @property
    def names(self) -> dict[str, str]:
        """Return the fields of a run that must have one value, with that value."""
        given = {name: getattr(self, name) for name in _NAMES}
        return {name: value for name, value in given.items() if value}

    def has_time(self, created: float) -> bool:
        """Whether a run that began at a time (wall clock, seconds) is in the range."""
        if self.since is not None and created < self.since:
            return False
        return self.until is None or created < self.until

    def matches(self, info: RunInfo) -> bool:
        """Whether a run is one of those."""
        searched = info.run_id, info.engine, info.agent, info.thread
        return all((
            not self.statuses or info.status in self.statuses,
            all(getattr(info, name) == value for name, value in self.names.items()),
            self.tags.items() <= info.tags.items(),
            self.has_time(info.created),
            not self.text or contains_text(self.text, *searched, encode_tags(info.tags)),
        ))  # fmt: skip


_NAMES = ("engine", "agent", "thread")


def contains_text(text: str, *searched: object) -> bool:
    """Whether what is searched contains a text, in capitals or not; the one rule of all journals.

    A damaged file may hold any value.
    """
    return text.casefold() in "\n".join(map(str, searched)).casefold()


def encode_tags(tags: Mapping[str, str]) -> str:
    """Return tags as a JSON object, as they are stored and searched."""
    return json.dumps(dict(tags), ensure_ascii=False)


def _check_statuses(status: Any) -> None:
    """Raise `ConfigError` unless this is a status of runs, or several."""
    statuses = (status,) if isinstance(status, str) else status
    if not isinstance(statuses, (tuple, list, set, frozenset)):
        raise ConfigError(f"status: must be a status or several, got {status!r}")
    for one in cast("Iterable[object]", statuses):
        if one not in ("", *STATUSES):
            raise ConfigError(f"status: must be of {', '.join(STATUSES)}, got {one!r}")


def check_page(limit: Any, before: Any, where: Any = None) -> None:
    """Raise `ConfigError` for a page that cannot be."""
    if where is not None and not isinstance(where, RunFilter):
        raise ConfigError(f"where: must be a RunFilter, got {where!r}")
    check_count("limit", limit)
    if before is not None and not isinstance(before, str):
        raise ConfigError(f"before: must be the id of a run, got {before!r}")


def check_range(run_id: Any, after: Any, limit: Any, last: Any) -> None:
    """Raise `ConfigError` for a range of entries of a run that cannot be."""
    check_run_id(run_id)
    check_whole("after", after)
    check_count("after", after)
    check_count("limit", limit)
    check_count("last", last)
    if limit is not None and last is not None:
        raise ConfigError("last: gives the end of a run, so leave limit out")


def check_count(field: str, value: Any) -> None:
    """Raise `ConfigError` unless a value is a number of at least 0, or `None`."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_whole and value >= 0):
        raise ConfigError(
            f"{field}: must be a whole number of at least 0, got {value!r}"
        )


def build_no_place(before: str) -> UnknownRun:
    """Return the error for a page that begins after a run which is not there."""
    return UnknownRun(
        f"before: no run {before!r}, which may have been deleted meanwhile; list from the first page again"
    )


def take_page(
    infos: Iterable[RunInfo],
    where: RunFilter | None,
    limit: int | None,
    before: str | None,
) -> list[RunInfo]:
    """Return the page of a list that begins after the run `before`, for a journal that has no index.

    Raises `UnknownRun` if that is not there: what comes after it is not known then.
    """
    listed = list(infos)
    if before is not None:
        places = [place for place, info in enumerate(listed) if info.run_id == before]
        if not places:
            raise build_no_place(before)
        listed = listed[places[0] + 1 :]
    found = [info for info in listed if where is None or where.matches(info)]
    return found[:limit]


def check_tags(tags: Any) -> dict[str, str]:
    """Return the tags of a run; raise `ConfigError` if they are not a mapping of short printable texts."""
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise ConfigError(
            f'tags: must be a mapping of texts, like {{"user": "42"}}, got {tags!r}'
        )
    given: dict[Any, Any] = {**tags}
    if len(given) > MAX_TAGS:
        raise ConfigError(f"tags: at most {MAX_TAGS}, got {len(given)}")
    for name, value in given.items():
        if not is_printable_name(name, MAX_TAG_NAME):
            raise ConfigError(
                f"tags: a name must be 1 to {MAX_TAG_NAME} printable characters, got {name!r}"
            )
        if not is_printable_name(value, MAX_TAG_VALUE):
            raise ConfigError(
                f"tags[{name!r}]: must be 1 to {MAX_TAG_VALUE} printable characters, got {value!r}"
            )
    return given


def check_thread(thread: Any) -> str:
    """Return the name of a thread, empty for none; raise `ConfigError` if it cannot be one."""
    if thread in ("", None) or is_printable_name(thread, MAX_TAG_VALUE):
        return thread or ""
    raise ConfigError(
        f"thread: must be at most {MAX_TAG_VALUE} printable characters, got {thread!r}"
    )


def find_later_turn(run_id: str, turns: Iterable[RunInfo]) -> str:
    """Return which turn of its thread continues a run; empty if none does."""
    later = (
        one.run_id for one in turns if one.follows == run_id and is_turn_id(one.run_id)
    )
    return next(later, "")


def format_continued(later: str) -> str:
    """Return why a run is not retried that another turn of its thread continues."""
    return (
        f"is continued by {later!r}, and of a thread one turn is at work at a time: send what it was asked again, "
        "or fork it before its end"
    )


def is_printable_name(value: object, max_length: int) -> bool:
    """Whether a value is a text of 1 to `max_length` printable characters."""
    return (
        isinstance(value, str) and 0 < len(value) <= max_length and value.isprintable()
    )


UNDONE_FOLLOW_UPS = RunFilter(
    tuple(status for status in STATUSES if status != "completed"), FOLLOW_UP
)
"""The follow-ups that are due, wait or have failed."""
