"""CedarGate: policies in the Cedar language decide, after they were checked against a schema.

Cedar (Cutler et al., "Cedar: A New Language for Expressive, Fast, Safe, and Analyzable Authorization", OOPSLA 2024)
skips a policy that fails while it is evaluated, also a `forbid`. This gate allows a call only if no
policy failed.
"""

import difflib
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..._internal import dataclasses
from ..._internal.log import logger
from ...errors import ConfigError
from ..base import Action, Allow, Ask, Decision, Deny, InstantGate, PolicyState
from .request import Described, Vocabulary
from .roster import Roster
from .values import UnencodableValue

SUFFIX = ".cedar"
ANNOTATIONS = ("ask", "reason")  # those that the gate reads; others are the user's own
INSTALL = "CedarGate needs cedarpy 4.12 or later: pip install 'loopwright[cedar]'"
MAX_PROBLEMS = 3  # of a set of policies, in one error


class CedarGate(InstantGate):
    """Decides by policies in the Cedar language.

    The principal is `Agent::"<engine>"`, the resource `Tool::"<name>"`. The action is
    `Action::"<name>"` for a tool that the gate was given and `Action::"call"` for any other; all of
    them are `in Action::"call"`. There are also `Action::"delegate"`, `Action::"undo"` and
    `Action::"respond"`. The page "Cedar and OPA" lists the attributes of `context`.

    A policy may have the annotation `@ask("question")`: if only such policies keep a call from its
    permit, a person is asked. A `forbid` may have `@reason("words")`, which the model reads.

    Args:
        policies: the text of all policies, or several texts by name.
        tools: tools whose arguments policies may read, as `context.arguments`; their types come
            from the tools' JSON schemas. A call with arguments that have no counterpart in Cedar is
            denied.
        answers: whether the answer of a run needs a permit too, for `Action::"respond"`.
        tenants: all tenants that policies may name, as `context.tenant == Tenant::"acme"`.
        roles: all roles, as `context.roles.contains(Role::"admin")`; with either there is `context.user`, too.

    Raises:
        ConfigError: a text is not Cedar, or does not match the schema; names text and problem.
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
        tenants: Iterable[str] = (),
        roles: Iterable[str] = (),
    ) -> None:
        self.answers = answers
        self._vocabulary = Vocabulary.of(tools, Roster.of(tenants, roles))
        self._read: Callable[[], Mapping[str, str]] | None = None
        self._take(policies)

    @classmethod
    def from_files(
        cls,
        *paths: str | os.PathLike[str],
        tools: Iterable[Described] = (),
        answers: bool = False,
        tenants: Iterable[str] = (),
        roles: Iterable[str] = (),
    ) -> "CedarGate":
        """Return a gate of the policies in files, and in the files `*.cedar` of directories.

        All policies together decide. Raises `ConfigError` also for a file that cannot be read: none
        is skipped.
        """
        gate = cls(
            _texts(paths), tools=tools, answers=answers, tenants=tenants, roles=roles
        )
        gate._read = lambda: _texts(paths)
        return gate

    @property
    def schema(self) -> str:
        """Return the Cedar schema that policies are checked against, for use with Cedar's own tools."""
        return str(self._rules.schema)

    def reload(self, policies: str | Mapping[str, str] | None = None) -> None:
        """Use other policies, or read the files again.

        Raises `ConfigError` if they are bad; the old ones then stay in force.
        """
        try:
            if policies is None:
                if self._read is None:
                    raise ConfigError(
                        "reload: this gate was not made from files; pass the new policies"
                    )
                policies = self._read()
            self._take(policies)
        except ConfigError as error:
            logger().warning(
                "cedar_reload_refused", problem=str(error), version=self.version
            )
            raise

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Return the decision of the policies; a call that they cannot decide is denied."""
        rules = self._rules
        try:
            return rules.decide(self._vocabulary.request(action, state), action.tool)
        except UnencodableValue as error:
            return Deny(
                f"policy cannot judge this call of {action.tool}, so it was not made: {error}"
            )
        except Exception as error:  # noqa: BLE001 - after any failure, nothing is allowed
            is_ours = isinstance(error, _Undecided)
            problem = str(error) if is_ours else type(error).__name__
            logger().warning("cedar_undecided", tool=action.tool, problem=problem)
            return Deny(
                f"policy could not be evaluated for this call of {action.tool}, so it was not made"
            )

    def _take(self, policies: str | Mapping[str, str]) -> None:
        texts = {"policies": policies} if isinstance(policies, str) else policies
        if not isinstance(texts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"policies: must be texts, got {texts!r}; CedarGate.from_files(...) reads files"
            )
        rules = _Rules.of(texts, self._vocabulary.schema())
        # Both at once, since another thread may be deciding.
        plans = any("context.planned" in text for text in texts.values())
        vars(self).update(_rules=rules, version=rules.version, plans=plans)


class _Undecided(Exception):
    """Cedar gave no decision that counts; the message contains nothing of the request."""


@dataclasses.dataclass(frozen=True)
class _Policy:
    """The properties of a policy that the gate needs when it decides."""

    place: str
    permits: bool
    ask: str | None
    reason: str | None

    @property
    def decides_alone(self) -> bool:
        """Whether it permits or forbids, and does not only require that a person is asked."""
        return self.permits or self.ask is None


@dataclasses.dataclass(frozen=True)
class _Rules:
    """A set of policies, parsed and checked once; it never changes."""

    version: str
    schema: Any
    policies: Mapping[str, _Policy]
    every: Any
    unasked: Any
    """The policies without each `forbid` that only requires that a person is asked."""
    entities: Any
    cedar: Any

    @classmethod
    def of(cls, texts: Mapping[str, str], schema_text: str) -> "_Rules":
        cedar = _cedarpy()
        try:
            schema = cedar.Schema.from_json_str(schema_text)
        except ValueError as error:
            raise ConfigError(
                f"tools: their arguments make no valid Cedar schema: {error}"
            ) from None
        parsed = [_parse(name, text, schema) for name, text in texts.items()]
        numbered = enumerate(itertools.chain.from_iterable(parsed))
        policies = {f"policy{number}": policy for number, policy in numbered}
        together = "\n".join(texts.values())
        every = cedar.PolicySet.from_str(together)
        digest = hashlib.sha256(f"{schema_text}\n{together}".encode()).hexdigest()
        return cls(
            version=f"cedar-{digest[:16]}",
            schema=schema,
            policies=policies,
            every=every,
            unasked=_without_asking(every, policies),
            # The actions are in it, with their groups.
            entities=cedar.Entities.from_json_str("[]", schema),
            cedar=cedar,
        )

    def decide(self, request: dict[str, object], tool: str) -> Decision:
        """Return the decision of the policies. Raises `_Undecided` if none counts."""
        allowed, deciding = self._ask(self.every, request)
        if allowed:
            return _ask_person(deciding, tool) if _all_ask(deciding) else Allow()
        if not deciding or not _all_ask(deciding):
            return _deny(deciding, tool)
        # Only approval is lacking: would the call be permitted if a person approved it?
        allowed, permits = self._ask(self.unasked, request)
        if not allowed:
            return _deny(permits, tool)
        return _ask_person(deciding + (permits if _all_ask(permits) else []), tool)

    def _ask(
        self, policies: Any, request: dict[str, object]
    ) -> tuple[bool, list[_Policy]]:
        """Return whether the call is allowed, and by which policies.

        An error in any other policy makes the call undecided.
        """
        result = self.cedar.is_authorized(
            request, policies, self.entities, schema=self.schema
        )
        if result.diagnostics.errors:
            raise _Undecided(self._describe_failure(str(result.diagnostics.errors)))
        reasons = result.diagnostics.reasons
        deciding = [policy for key, policy in self.policies.items() if key in reasons]
        kinds = {policy.permits for policy in deciding}
        verdict: str = result.decision.value
        if verdict == "Allow" and kinds == {True}:
            return True, deciding
        if verdict == "Deny" and True not in kinds:
            return False, deciding
        raise _Undecided(f"the decision was {verdict}")

    def _describe_failure(self, errors: str) -> str:
        failed = [
            policy.place
            for key, policy in self.policies.items()
            if f"`{key}`" in errors
        ]
        if failed:
            return f"failed: {', '.join(failed)}"
        return "the request does not match the schema"


def _without_asking(every: Any, policies: Mapping[str, _Policy]) -> Any:
    """Return a policy set without the policies that only require that a person is asked."""
    tree = every.to_pst()
    kept = {
        key: node
        for key, node in tree.static_policies.items()
        if policies[key].decides_alone
    }
    return _cedarpy().PolicySet.from_pst(
        dataclasses.replace(tree, static_policies=kept)
    )


def _ask_person(deciding: list[_Policy], tool: str) -> Ask:
    """Return the question for a person, with each question of the policies once."""
    questions = (policy.ask or f"Let {tool} run?" for policy in deciding)
    return Ask(" ".join(dict.fromkeys(questions)))


def _deny(deciding: list[_Policy], tool: str) -> Deny:
    reasons = dict.fromkeys(policy.reason for policy in deciding if policy.reason)
    if reasons:
        return Deny("; ".join(reasons))
    return Deny(f"policy {'forbids' if deciding else 'does not permit'} {tool} here")


def _all_ask(policies: list[_Policy]) -> bool:
    return all(policy.ask is not None for policy in policies)


def _parse(name: str, text: str, schema: Any) -> list[_Policy]:
    """Return the policies of one text, in order.

    Raises `ConfigError`, naming the text, if it is not Cedar or does not match the schema.
    """
    cedar = _cedarpy()
    try:
        tree = cedar.PolicySet.from_str(text).to_pst()
        checked = cedar.validate_policies(text, schema)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{name}: is not a set of Cedar policies: {_one_line(error)}"
        ) from None
    if not checked.validation_passed:
        problems = "; ".join(map(_one_line, checked.errors[:MAX_PROBLEMS]))
        raise ConfigError(f"{name}: does not match the schema of the gate: {problems}")
    if tree.templates:
        raise ConfigError(
            f"{name}: contains a template, which decides nothing; put values in its slots"
        )
    numbers = range(len(tree.static_policies))
    return [
        _read_policy(name, number, tree.static_policies[f"policy{number}"])
        for number in numbers
    ]


def _read_policy(name: str, number: int, node: Any) -> _Policy:
    _check_annotations(name, node.annotations)
    return _Policy(
        place=f"{name}, policy {number + 1}",
        permits=node.effect == "permit",
        ask=node.annotations.get("ask"),
        reason=node.annotations.get("reason"),
    )


def _check_annotations(name: str, annotations: Iterable[str]) -> None:
    """Raise `ConfigError` for an annotation that is nearly ours: `@asks` would ask no one."""
    for found in annotations:
        near = difflib.get_close_matches(found.lower(), ANNOTATIONS, n=1)
        if near and found not in ANNOTATIONS:
            raise ConfigError(
                f"{name}: @{found} has no meaning here; "
                f"write @{near[0]}, or a name that is less similar"
            )


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _texts(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Return the texts of files, by path.

    Raises `ConfigError` naming a path that cannot be read or has no policies.
    """
    texts: dict[str, str] = {}
    for given in paths:
        texts.update((str(file), _text(file)) for file in _list_files(Path(given)))
    if not texts:
        raise ConfigError(f"policies: name a file, or a directory with files *{SUFFIX}")
    return texts


def _list_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise ConfigError(f"{path}: there is no file *{SUFFIX} in this directory")
    return files


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file}: cannot be read, and no policy is skipped: {error}"
        ) from None


def _cedarpy() -> Any:
    try:
        import cedarpy  # noqa: PLC0415 - an extra, which is loaded when a gate is made
    except ImportError as error:
        raise ConfigError(INSTALL) from error
    # Older releases parse the schema for every decision.
    if not hasattr(cedarpy.PolicySet, "from_pst"):
        raise ConfigError(INSTALL)
    return cedarpy
