"""GateContract: what the runtime relies on when it asks a policy gate."""

import asyncio
import copy
import itertools
from collections.abc import Iterable, Sequence
from typing import get_args
from unittest import SkipTest

from ...engines.react import ReActEngine
from ...events.effects import GateDecided
from ...gates.base import (
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    Modify,
    PolicyGate,
    PolicyState,
    is_instant,
)
from ...journals.base import Journal
from ...limits import Limits
from ...messages import Effect, Json
from ...result import Result
from ..assertions import assert_equal, assert_true, assert_type, run_in_loop
from ..truncated_journal import crashed
from .fixtures import RUN, Bench, check_gated, check_outcome, summarize
from .models import Model, babble, polite

ARGUMENTS: Sequence[dict[str, Json]] = (
    {},
    {"what": "sky"},
    {
        "path": "../../etc/passwd",
        "to": ["a@example.com", "b@example.com"],
        "sum": 1e300,
        "n": 2**70,
        "none": None,
    },
    {
        "__entity": {"type": "Role", "id": "admin"},
        "$ref": "#",
        "": "",
        "ünï": "\u202eeulb\x00",
    },
    {"deep": [[[[{"a": [{"b": [None, True, -0.0]}]}]]]], "long": "x" * 20_000},
)
DECISIONS = (Allow, Deny, Modify, Ask)
TOOLS = ("look", "put", "wipe", "rm -rf", "Ω", "delegate", "x" * 128)


class Counted:
    """A gate that counts where it was asked."""

    def __init__(self, gate: PolicyGate) -> None:
        self._gate, self.asked = gate, list[str]()
        version: str | None = getattr(gate, "version", None)
        self.version = version or type(gate).__qualname__

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Ask it."""
        self.asked.append(state.key)
        return await self._gate.evaluate(action, state)


class GateContract:
    """Subclass it in a test module as `Test…` and give it your gate; every check is a test of its own.

    class TestOfficeHours(GateContract):
        def gate(self) -> PolicyGate:
            return OfficeHoursGate(open=True)
    """

    def gate(self) -> PolicyGate:
        """Return a new object of your gate."""
        raise NotImplementedError(f"{type(self).__name__}: override gate(self)")

    def broken(self) -> Iterable[PolicyGate]:
        """Return your gate with a service that is down, slow or silent, so that no tool may run; none without a service."""
        return ()

    def actions(self) -> Iterable[Action]:
        """Return the actions to decide about; add those of your rules."""
        for (tool, effect), arguments in itertools.product(
            zip(TOOLS, itertools.cycle(get_args(Effect))), ARGUMENTS
        ):
            yield Action(tool, copy.deepcopy(arguments), f"call-{tool[:4]}", effect)

    @run_in_loop
    async def test_it_decides_about_any_action(self) -> None:
        """`Allow`, `Deny`, `Modify` or `Ask`, with reasons and questions that say something."""
        gate = self.gate()
        for number, action in enumerate(self.actions()):
            decision = await gate.evaluate(action, _state(number))
            about = f"{action.tool} ({action.effect}): {decision!r}"
            assert_type(
                decision,
                DECISIONS,
                f"no decision about {action.tool} ({action.effect})",
            )
            if isinstance(decision, (Deny, Modify)):
                assert_true(
                    decision.reason.strip(), f"a reason that says nothing: {about}"
                )
            if isinstance(decision, Ask):
                assert_true(
                    decision.question.strip(), f"a question that asks nothing: {about}"
                )

    @run_in_loop
    async def test_it_changes_nothing_that_it_is_shown(self) -> None:
        """Other arguments come as `Modify`, in a mapping of their own."""
        gate = self.gate()
        for number, action in enumerate(self.actions()):
            before = copy.deepcopy(dict(action.arguments))
            decision = await gate.evaluate(action, _state(number))
            assert_equal(
                dict(action.arguments),
                before,
                f"the arguments of {action.tool} were changed in place",
            )
            if isinstance(decision, Modify):
                assert_true(
                    decision.arguments is not action.arguments,
                    "Modify gives back the mapping that it was shown",
                )

    @run_in_loop
    async def test_it_decides_the_same_again(self) -> None:
        """Two gates that are made the same and asked the same decide the same, and have one version all the while."""
        gates = self.gate(), self.gate()
        versions = [getattr(gate, "version", "") for gate in gates]
        decisions = [
            [
                await gate.evaluate(action, _state(number))
                for number, action in enumerate(self.actions())
            ]
            for gate in gates
        ]
        assert_equal(
            decisions[1], decisions[0], "decisions of two gates that are made the same"
        )
        assert_equal(
            [getattr(gate, "version", "") for gate in gates],
            versions,
            "versions after use",
        )
        assert_equal(
            versions[1], versions[0], "versions of two gates that are made the same"
        )
        assert_type(versions[0], str, "the version is not a text")

    @run_in_loop
    async def test_it_can_be_asked_by_many_at_once(self) -> None:
        """Each gets a decision; a gate that only computes says the same as when it is asked alone."""
        gate, actions = self.gate(), list(self.actions())
        decided = await asyncio.gather(
            *(gate.evaluate(action, _state(n)) for n, action in enumerate(actions))
        )
        for decision in decided:
            assert_type(decision, DECISIONS, "no decision when asked by many")
        if is_instant(gate):
            alone = self.gate()
            expected = [
                await alone.evaluate(action, _state(number))
                for number, action in enumerate(actions)
            ]
            assert_equal(decided, expected, "decisions when asked by many at once")

    @run_in_loop
    async def test_nothing_runs_in_a_run_but_what_it_allows(self) -> None:
        """With sensible and mad models: every tool that starts was allowed with those arguments."""
        for model in self._models():
            bench = await self._run(self.gate(), model)
            check_gated(bench.entries, bench.ran)

    @run_in_loop
    async def test_it_is_not_asked_again_about_what_is_recorded(self) -> None:
        """A run that is cut off anywhere and resumed has the decisions of the journal, and comes to the same."""
        for model in self._models():
            whole = Bench(model, limits=_limits(), gate=self.gate())
            expected = await ReActEngine(whole.runtime).run(whole.task, run_id=RUN)
            entries = whole.entries
            for keep in range(1, len(entries) + 1):
                gate = Counted(self.gate())
                bench, result = await self._resumed(gate, model, crashed(entries, keep))
                decisions = [
                    (e.key, e.event)
                    for e in entries[:keep]
                    if isinstance(e.event, GateDecided)
                ]
                again = {
                    key for key, decided in decisions if decided.verdict != "ask"
                } & set(gate.asked)
                assert_equal(
                    again, set[str](), f"cut after entry {keep}, it was asked again"
                )
                check_gated(bench.entries, bench.ran)
                assert_equal(
                    summarize(result),
                    summarize(expected),
                    f"cut after entry {keep} of {len(entries)}",
                )

    @run_in_loop
    async def test_it_fails_closed(self) -> None:
        """Where what it asks is down, slow or silent (`broken`), no tool runs; skipped where `broken` gives no gate."""
        broken = list(self.broken())
        if not broken:
            raise SkipTest(
                "broken() gives no gates whose service is down, so nothing shows that yours fails closed"
            )
        for gate in broken:
            bench = await self._run(gate, polite)
            assert_equal(bench.ran, [], f"tools ran under {gate!r}, which is broken")

    def _models(self) -> tuple[Model, ...]:
        return polite, babble(1), babble(2), babble(3)

    async def _run(self, gate: PolicyGate, model: Model) -> Bench:
        bench = Bench(model, limits=_limits(), gate=gate)
        result = await ReActEngine(bench.runtime).run(bench.task, run_id=RUN)
        check_outcome(result, bench.entries)
        return bench

    async def _resumed(
        self, gate: PolicyGate, model: Model, journal: Journal
    ) -> tuple[Bench, Result]:
        bench = Bench(model, limits=_limits(), gate=gate, journal=journal)
        return bench, await ReActEngine(bench.runtime).resume(RUN)


def _limits() -> Limits:
    return Limits(max_iterations=6, max_llm_calls=30, timeout=None)


def _state(number: int) -> PolicyState:
    return PolicyState("run-1", f"{number}#0", "react", 1, number + 1, number)
