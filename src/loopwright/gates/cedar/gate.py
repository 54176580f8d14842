"""CedarGate: policies in the Cedar language decide, checked against a schema before they may decide anything.

Cedar (Cutler et al., "Cedar: A New Language for Expressive, Fast, Safe, and Analyzable Authorization", OOPSLA 2024)
skips a policy that fails while it is evaluated, also a `forbid`. This gate allows only what was decided without a
failure.
"""

import dataclasses
import difflib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..._internal.log import logger
from ...errors import ConfigError
from ..base import Action, Allow, Ask, Decision, Deny, InstantGate, PolicyState
from .request import Described, Vocabulary
from .values import Unfit

SUFFIX = ".cedar"
OURS = (
    "ask",
    "reason",
)  # the annotations that the gate knows; others are the user's own
INSTALL = "CedarGate needs cedarpy 4.12 or later: pip install 'loopwright[cedar]'"
MOST_PROBLEMS = 3  # of a set of policies, in one error


class CedarGate(InstantGate):
    """Decides by policies in the Cedar language.

    The principal is `Agent::"<engine>"`, the resource `Tool::"<name>"`. The action is `Action::"<name>"` for a tool
    that the gate was given and `Action::"call"` for any other; all of them are `in Action::"call"`. Beside them there
    are `Action::"delegate"`, `Action::"undo"` and `Action::"respond"`. The page "Cedar and OPA" lists what is in
    `context`.

    A policy may carry `@ask("question")`: where such policies alone stand between a call and its permit, a person is
    asked. A `forbid` may carry `@reason("words")`, which the model reads.

    Args:
        policies: the text of all policies, or several texts by name.
        tools: those whose arguments policies may look at, as `context.arguments`; their types come from the tools'
            JSON schemas. A call with arguments that have no counterpart in Cedar is denied.
        answers: whether the answer of a run needs a permit too, for `Action::"respond"`.

    Raises:
        ConfigError: a text is no Cedar, or does not fit the schema; names the text and the problem.
    """

    version: str
    """A hash of policies and schema."""
    _rules: "_Rules"

    def __init__(
        self,
        policies: str | Mapping[str, str],
        *,
        tools: Iterable[Described] = (),
        answers: bool = False,
    ) -> None:
        self.answers = answers
        self._vocabulary = Vocabulary.of(tools)
        self._read: Callable[[], Mapping[str, str]] | None = None
        self._take(policies)

    @classmethod
    def from_files(
        cls,
        *paths: str | os.PathLike[str],
        tools: Iterable[Described] = (),
        answers: bool = False,
    ) -> "CedarGate":
        """A gate of the policies in files, and in the files `*.cedar` directly in folders; all of them together decide.

        Raises `ConfigError` for a file that cannot be read as well: none is skipped.
        """
        gate = cls(_texts(paths), tools=tools, answers=answers)
        gate._read = lambda: _texts(paths)
        return gate

    @property
    def schema(self) -> str:
        """The Cedar schema that the policies are checked against, to be used with Cedar's own tools."""
        return str(self._rules.schema)

    def reload(self, policies: str | Mapping[str, str] | None = None) -> None:
        """Take other policies, or read the files again. Raises `ConfigError`, and goes on with the old ones, if bad."""
        try:
            if policies is None:
                if self._read is None:
                    raise ConfigError(
                        "reload: this gate was not made from files: give it the new policies"
                    )
                policies = self._read()
            self._take(policies)
        except ConfigError as error:
            logger().warning(
                "cedar_reload_refused", problem=str(error), version=self.version
            )
            raise

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """What the policies say; whatever they cannot decide is denied."""
        rules = self._rules
        try:
            return rules.decide(self._vocabulary.request(action, state), action.tool)
        except Unfit as unfit:
            return Deny(
                f"policy cannot judge this call of {action.tool}, so it was not made: {unfit}"
            )
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, nothing is allowed
            problem = (
                str(error) if isinstance(error, _Undecided) else type(error).__name__
            )
            logger().warning("cedar_undecided", tool=action.tool, problem=problem)
            return Deny(
                f"policy could not be evaluated for this call of {action.tool}, so it was not made"
            )

    def _take(self, policies: str | Mapping[str, str]) -> None:
        texts = {"policies": policies} if isinstance(policies, str) else policies
        if not isinstance(texts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"policies: texts are wanted, got {texts!r}: files are taken by CedarGate.from_files(...)"
            )
        rules = _Rules.of(texts, self._vocabulary.schema())
        vars(self).update(
            _rules=rules, version=rules.version
        )  # at once: another thread may be deciding


class _Undecided(Exception):
    """Cedar gave no decision that counts; the text holds nothing of the request."""


@dataclasses.dataclass(frozen=True)
class _Policy:
    """What the gate has to know of a policy when it decides."""

    place: str
    permits: bool
    ask: str | None
    reason: str | None


@dataclasses.dataclass(frozen=True)
class _Rules:
    """A set of policies, parsed and checked once; it never changes."""

    version: str
    schema: Any
    policies: Mapping[str, _Policy]
    every: Any
    unasked: Any
    """Without each `forbid` that only wants a person asked."""
    entities: Any
    cedar: Any

    @classmethod
    def of(cls, texts: Mapping[str, str], schema_text: str) -> "_Rules":
        cedar = _cedarpy()
        try:
            schema = cedar.Schema.from_json_str(schema_text)
        except ValueError as error:
            raise ConfigError(
                f"tools: their arguments make no Cedar schema: {error}"
            ) from None
        policies: dict[str, _Policy] = {}
        for name, text in texts.items():
            for policy in _parsed(name, text, schema):
                policies[f"policy{len(policies)}"] = policy
        together = "\n".join(texts.values())
        every = cedar.PolicySet.from_str(together)
        tree = every.to_pst()
        kept = {
            key: node
            for key, node in tree.static_policies.items()
            if _permits_or_forbids(policies[key])
        }
        unasked = cedar.PolicySet.from_pst(
            dataclasses.replace(tree, static_policies=kept)
        )
        digest = hashlib.sha256(f"{schema_text}\n{together}".encode()).hexdigest()
        entities = cedar.Entities.from_json_str(
            "[]", schema
        )  # the actions are in it, with their groups
        return cls(
            f"cedar-{digest[:16]}", schema, policies, every, unasked, entities, cedar
        )

    def decide(self, request: dict[str, object], tool: str) -> Decision:
        """What the policies say. Raises `_Undecided` if nothing that counts."""
        allowed, deciding = self._ask(self.every, request)
        if (
            not allowed
            and deciding
            and all(policy.ask is not None for policy in deciding)
        ):
            allowed, permits = self._ask(
                self.unasked, request
            )  # would it be permitted if a person said yes?
            if allowed:
                return _question(
                    deciding + (permits if _all_ask(permits) else []), tool
                )
            deciding = permits
        if not allowed:
            reasons = dict.fromkeys(
                policy.reason for policy in deciding if policy.reason
            )
            return Deny(
                "; ".join(reasons)
                or f"policy {'forbids' if deciding else 'does not permit'} {tool} here"
            )
        return _question(deciding, tool) if _all_ask(deciding) else Allow()

    def _ask(
        self, policies: Any, request: dict[str, object]
    ) -> tuple[bool, list[_Policy]]:
        """Whether it is allowed, and by which policies; an error in any other policy makes it undecided."""
        result = self.cedar.is_authorized(
            request, policies, self.entities, schema=self.schema
        )
        verdict: str = result.decision.value
        if result.diagnostics.errors:
            named = [
                policy.place
                for key, policy in self.policies.items()
                if f"`{key}`" in str(result.diagnostics.errors)
            ]
            raise _Undecided(
                f"failed: {', '.join(named)}"
                if named
                else "the request does not fit the schema"
            )
        reasons = result.diagnostics.reasons
        deciding = [policy for key, policy in self.policies.items() if key in reasons]
        if (
            verdict == "Allow"
            and deciding
            and all(policy.permits for policy in deciding)
        ):
            return True, deciding
        if verdict == "Deny" and not any(policy.permits for policy in deciding):
            return False, deciding
        raise _Undecided(f"the decision was {verdict}")


def _question(deciding: list[_Policy], tool: str) -> Ask:
    """What a person is asked, each question once."""
    return Ask(
        " ".join(dict.fromkeys(policy.ask or f"Let {tool} run?" for policy in deciding))
    )


def _all_ask(policies: list[_Policy]) -> bool:
    return all(policy.ask is not None for policy in policies)


def _permits_or_forbids(policy: _Policy) -> bool:
    """Whether a policy decides by itself, and does not only want a person asked before something is done."""
    return policy.permits or policy.ask is None


def _parsed(name: str, text: str, schema: Any) -> list[_Policy]:
    """The policies of one text, in order. Raises `ConfigError` naming it for what is no Cedar or does not fit."""
    cedar = _cedarpy()
    try:
        tree = cedar.PolicySet.from_str(text).to_pst()
        checked = cedar.validate_policies(text, schema)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{name}: is no set of Cedar policies: {_one_line(error)}"
        ) from None
    if not checked.validation_passed:
        problems = "; ".join(
            _one_line(problem) for problem in checked.errors[:MOST_PROBLEMS]
        )
        raise ConfigError(f"{name}: does not fit the schema of the gate: {problems}")
    if tree.templates:
        raise ConfigError(
            f"{name}: holds a template, which decides nothing: put values in place of its slots"
        )
    made: list[_Policy] = []
    for number in range(len(tree.static_policies)):
        node = tree.static_policies[f"policy{number}"]
        place, notes = f"{name}, policy {number + 1}", _notes(name, node.annotations)
        made.append(
            _Policy(
                place, node.effect == "permit", notes.get("ask"), notes.get("reason")
            )
        )
    return made


def _notes(name: str, annotations: Mapping[str, str]) -> Mapping[str, str]:
    """The annotations of a policy. Raises `ConfigError` for one that is nearly ours: `@asks` would ask nobody."""
    for found in annotations:
        near = difflib.get_close_matches(found.lower(), OURS, n=1)
        if near and found not in OURS:
            raise ConfigError(
                f"{name}: @{found} means nothing here: write @{near[0]}, or a name that is not so like it"
            )
    return annotations


def _one_line(said: object) -> str:
    return " ".join(str(said).split())


def _texts(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """The texts of files, by path. Raises `ConfigError` naming a path that cannot be read or has no policies."""
    texts: dict[str, str] = {}
    for given in paths:
        path = Path(given)
        files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not files:
            raise ConfigError(f"{path}: there is no file *{SUFFIX} in this folder")
        texts.update((str(file), _text(file)) for file in files)
    if not texts:
        raise ConfigError(f"policies: name a file or a folder with files *{SUFFIX}")
    return texts


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file}: cannot be read, and no policy is skipped: {error}"
        ) from None


def _cedarpy() -> Any:
    try:
        import cedarpy  # noqa: PLC0415 - an extra, loaded when a gate is made
    except ImportError as error:
        raise ConfigError(INSTALL) from error
    if not hasattr(
        cedarpy.PolicySet, "from_pst"
    ):  # older ones parse the schema for every decision
        raise ConfigError(INSTALL)
    return cedarpy
