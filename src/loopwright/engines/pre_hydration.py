"""Pre-hydration: what a task refers to is fetched before the first model call, through the gate, all at once."""

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from .._internal import dataclasses
from ..errors import ConfigError, TimedOut
from ..labels import highest
from ..messages import Conversation, Message, Observation, ToolCall, ToolSpec
from ..run import Run

PATTERNS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "url": re.compile(r"https?://[^\s<>\"'`)\]}]{1,2000}"),
        "pr": re.compile(r"\b(?:PR|pull request) #(\d{1,9})\b", re.IGNORECASE),
        "issue": re.compile(r"(?<![\w#&/])#(\d{1,9})\b"),
        "file": re.compile(
            r"(?<!\w)@\"([^\"\n]{1,200})\"|(?<![\w/.:-])(?<!\w@)("
            r"(?:[\w.-]{1,100}/){1,20}[\w-]{1,100}(?:\.[\w-]{1,30}){0,5}\.\w{1,9}"
            r"|[\w-]{2,100}(?:\.[\w-]{1,30}){0,5}\.[A-Za-z]\w{1,9})\b"
        ),
    }
)  # fmt: skip
"""How references of each kind look; a later kind does not see what an earlier one has taken."""
EARLIER = MappingProxyType(
    {
        **PATTERNS,
        "file": re.compile(
            r"(?<![\w/.:@-])(?:(?:[\w.-]{1,100}/){1,20}[\w-]{1,100}\.\w{1,9}|[\w-]{2,100}\.[A-Za-z]\w{1,9})\b"
        ),
    }
)
"""How they looked in runs that began before `ONE_BY_ONE`."""
INTRODUCTION = "What the task refers to, as it was fetched before you began:"
ONE_BY_ONE = "pre-hydration.one-by-one"
"""The change since which each reference has a bound of its own, and files are found as people name them."""
CHARACTERS = 4
"""Of a token, about."""


@dataclasses.dataclass(frozen=True)
class Hydrated:
    """Fact: the references that a task has, and which of them were resolved and which not, with the reason."""

    found: tuple[str, ...]
    resolved: tuple[str, ...]
    failed: dict[str, str]


@dataclasses.dataclass(frozen=True)
class PreHydration:
    """Resolves the references of a task; an option of engines, which call `hydrate` before their first model call.

    Args:
        resolve: the tool for each kind of reference ("url", "file", "issue", "pr"); it must have one required argument.
        max_references: the most references that are resolved; the first count.
        timeout: seconds of active time for each of them.
        tokens: the length of all results together, about; each gets an equal share.
    """

    resolve: Mapping[str, str]
    max_references: int = 10
    timeout: float = 15.0
    tokens: int = 4_000

    def __post_init__(self) -> None:
        for kind in self.resolve:
            if kind not in PATTERNS:
                raise ConfigError(
                    f"resolve: must name kinds of {', '.join(PATTERNS)}, got {kind!r}"
                )
        for name in ("max_references", "tokens"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise ConfigError(
                    f"{name}: must be a whole number of at least 1, got {number!r}"
                )
        seconds: object = self.timeout
        if type(seconds) not in (int, float) or not self.timeout > 0:
            raise ConfigError(
                f"timeout: must be a number of seconds above 0, got {seconds!r}"
            )

    async def hydrate(self, run: Run) -> Conversation:
        """Return the conversation of a run with what its task refers to; each resolution is a call of a tool.

        Gates decide about every call. Without a reference nothing is done, and nothing recorded.
        """
        calls, earlier = self._calls(run, PATTERNS), self._calls(run, EARLIER)
        if not (calls or earlier):
            return run.conversation
        is_each = run.patched(ONE_BY_ONE)
        calls = calls if is_each else earlier
        if not calls:
            return run.conversation
        resolve = self._resolve_each if is_each else self._resolve_together
        observations = await resolve(run, list(calls.values()))
        outcomes = dict(zip(calls, observations, strict=True))
        resolved = {name: one for name, one in outcomes.items() if one and one.ok}
        failed = {
            name: "timed_out" if one is None else one.status
            for name, one in outcomes.items()
            if name not in resolved
        }
        run.note(Hydrated(tuple(calls), tuple(resolved), dict(failed)))
        if not resolved:
            return run.conversation
        share = self.tokens * CHARACTERS // len(resolved)
        parts = [_show(name, one, share) for name, one in resolved.items()]
        shown = Message(
            "user", "\n\n".join([INTRODUCTION, *parts]), origin="engine",
            label=highest(one.label for one in resolved.values()),
            untrusted=any(one.untrusted for one in resolved.values()) or None,
        )  # fmt: skip
        return run.conversation.add(shown)

    def _calls(
        self, run: Run, patterns: Mapping[str, re.Pattern[str]]
    ) -> dict[str, ToolCall]:
        """Return a call for each reference for which there is a tool."""
        specs = {spec.name: spec for spec in run.tools}
        calls: dict[str, ToolCall] = {}
        for kind, reference in find_references(run.task, patterns):
            spec = specs.get(self.resolve.get(kind, ""))
            argument = None if spec is None else _argument_of(spec)
            if spec is None or argument is None or len(calls) >= self.max_references:
                continue
            name, types = argument
            is_number = types == "integer" and reference.isdigit()
            value = int(reference) if is_number else reference
            calls.setdefault(f"{kind} {reference}", ToolCall(spec.name, {name: value}))
        return calls

    async def _resolve_each(
        self, run: Run, calls: list[ToolCall]
    ) -> list[Observation | None]:
        """Return what each call gave; `None` for one that took too long, which does not hold up the others."""

        async def resolve(branch: Run, call: ToolCall) -> Observation | None:
            try:
                return await branch.timeout(self.timeout, lambda work: work.call(call))
            except TimedOut:
                return None

        return await run.gather(*(partial(resolve, call=one) for one in calls))

    async def _resolve_together(
        self, run: Run, calls: list[ToolCall]
    ) -> list[Observation | None]:
        """Return what the calls of a run gave that began with one bound for all of them."""

        async def work(branch: Run) -> tuple[Observation, ...]:
            return await branch.act(await branch.gate(branch.propose(*calls)))

        try:
            return [*await run.timeout(self.timeout, work)]
        except TimedOut:
            return [None] * len(calls)


def find_references(
    text: str, patterns: Mapping[str, re.Pattern[str]] = PATTERNS
) -> list[tuple[str, str]]:
    """Return the references of a text in order, each once, with its kind."""
    found: dict[tuple[str, str], int] = {}
    for kind, pattern in patterns.items():
        for match in pattern.finditer(text):
            reference = match[match.lastindex or 0]
            if not match[0].startswith('@"'):  # what is quoted is the whole name
                reference = reference.rstrip(".,;:!?")
            found.setdefault((kind, reference), match.start())
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    return sorted(found, key=lambda reference: found[reference])


def _argument_of(spec: ToolSpec) -> tuple[str, object] | None:
    """Return the name and the type of the one argument that a tool needs; `None` for another tool."""
    required, properties = spec.schema.get("required"), spec.schema.get("properties")
    if not isinstance(required, list) or len(required) != 1:
        return None
    name = str(required[0])
    described = properties.get(name) if isinstance(properties, dict) else None
    return name, described.get("type") if isinstance(described, dict) else None


def _show(name: str, observation: Observation, share: int) -> str:
    """Return a result as a model reads it, cut to its share."""
    text = observation.text
    note = (
        ""
        if len(text) <= share
        else f"\n[cut: the first {share} of {len(text)} characters]"
    )
    return f"{name}:\n{observation.fence_excerpt(text[:share])}{note}"
