"""Who may do what: principals in gates, in the journal, in lists and threads, and whose approvals count."""

from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    MemoryJournal,
    PolicyState,
    ReActEngine,
    Result,
    Runtime,
    Suspend,
    tool,
)
from loopwright.events import RunStarted
from loopwright.gates import AllOf, ApprovalGate, CedarGate, InstantGate, Rule, RuleGate
from loopwright.journals import RunFilter, SQLiteJournal
from loopwright.principals import ApprovalRule, Principal
from loopwright.testing import FakeClock, ScriptedProvider, call
from sample_tools import RAN

ANN = Principal("ann", "acme", ("buyer",))
BOB = Principal("bob", "acme", ("manager",))
CYD = Principal("cyd", "acme", ("manager", "buyer"))
EVE = Principal("eve", "umbrella", ("manager",))


@tool(effect="destructive")
async def pay(euros: int) -> str:
    """Pay money."""
    RAN.append(f"paid {euros}")
    return f"paid {euros}"


def runtime(*script: Any, journal: Any = None, **options: Any) -> Runtime:
    given: dict[str, Any] = {"approver": Suspend(), "tools": [pay], **options}
    return Runtime(ScriptedProvider(script), journal=journal, **given)


async def ask(journal: Any, rule: ApprovalRule | None, **options: Any) -> str:
    """Start a run of Ann's that asks about a payment, and return the id of its question."""
    engine = ReActEngine(runtime([call("pay", euros=9)], journal=journal, **options))
    result = await engine.run("Pay.", run_id="r", principal=ANN, approvals=rule)
    return result.pending[0].id


async def resume(journal: Any, *script: Any, **options: Any) -> Result:
    return await runtime(*(script or ["Done."]), journal=journal, **options).resume("r")


async def approve(
    journal: Any, question: str, by: Any, clock: Any = None, **options: Any
) -> None:
    control = runtime(journal=journal, clock=clock).control("r")
    await control.approve(question, by=by, **options)


# --- who started a run ---


class Notes(InstantGate):
    version = "notes-1"

    def __init__(self) -> None:
        self.seen: list[tuple[Principal | None, Principal | None]] = []

    def decide(self, action: Action, state: PolicyState) -> Decision:
        self.seen.append((action.principal, state.principal))
        return Allow()


async def test_a_principal_is_recorded_and_gates_see_it_after_a_resume(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    first, gate = SQLiteJournal(path), Notes()
    await ask(first, None)
    await first.close()

    second = SQLiteJournal(path)
    result = await resume(second, gate=gate)
    started = second.read("r")[0].event
    await second.close()

    assert isinstance(started, RunStarted)
    assert (started.principal, started.tags) == (ANN, {"tenant": "acme", "user": "ann"})
    assert (result.answer, gate.seen) == ("Done.", [(ANN, ANN)])


async def test_a_run_without_a_principal_records_nothing_of_one() -> None:
    journal = MemoryJournal()
    await ReActEngine(runtime("Hi.", journal=journal)).run("Hello.", run_id="r")

    body = journal.read("r")[0].body
    assert b"principal" not in body
    assert b"approvals" not in body


async def test_runs_of_a_tenant_are_found_in_the_store(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    for run_id, who in (("a", ANN), ("b", BOB), ("e", EVE)):
        engine = ReActEngine(runtime("Hi.", journal=journal))
        await engine.run("Hello.", run_id=run_id, principal=who, tags={"team": "x"})

    reader = runtime(journal=journal)
    found = await reader.runs(RunFilter(tenant="acme", tags={"team": "x"}))
    assert [one.info.run_id for one in found] == ["b", "a"]
    found = await reader.runs(RunFilter(tenant="acme", principal="ann"))
    assert [one.info.run_id for one in found] == ["a"]
    assert journal.verify("a").ok
    await journal.close()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Principal(""), "id: must be 1 to 256 printable characters"),
        (lambda: Principal("a\nb"), "id: must be"),
        (lambda: Principal("a", "\0"), "tenant: must be"),
        (lambda: Principal("a", roles="boss"), "roles: must be a list"),  # type: ignore[arg-type]
        (lambda: Principal("a", roles=("the boss",)), "roles: a role has letters"),
        (lambda: Principal.parse("@acme"), "principal: must be like"),
        (lambda: ApprovalRule(people=0), "people: must be 1 to 10"),
        (lambda: ApprovalRule(role="a b"), "role: a role has letters"),
        (lambda: RunFilter(tenant="a", tags={"tenant": "b"}), r"tags\['tenant'\]: is"),
    ],
)
def test_what_is_no_principal_is_an_error(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make()


async def test_a_run_refuses_a_name_as_principal_and_tags_that_say_another() -> None:
    engine = ReActEngine(runtime("Hi."))
    with pytest.raises(ConfigError, match="principal: must be Principal"):
        await engine.run("Go.", principal="ann")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="approvals: must be ApprovalRule"):
        await engine.run("Go.", approvals="boss")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"tags\['user'\]: is 'bob'"):
        await engine.run("Go.", principal=ANN, tags={"user": "bob"})


def test_a_principal_is_read_from_a_text() -> None:
    assert Principal.parse("ann") == Principal("ann")
    assert Principal.parse("ann@acme:buyer,manager") == Principal(
        "ann", "acme", ("buyer", "manager")
    )


async def test_a_thread_of_a_tenant_refuses_a_principal_of_another() -> None:
    host = runtime("Hi Ann.", "Hi Bob.")
    agent = host.agent("desk")
    await agent.thread("t", principal=ANN).run("Hello.")
    stranger = agent.thread("t")

    with pytest.raises(ConfigError, match="'t' is not of tenant 'umbrella'"):
        await stranger.run("Hello.", principal=EVE)
    with pytest.raises(ConfigError, match="not of tenant"):
        await agent.thread("t", principal=EVE).history()
    assert (await stranger.run("Hello.", principal=BOB)).answer == "Hi Bob."


# --- policies ---

RULES = """
tenants = ["acme", "umbrella"]
roles = ["buyer", "manager"]

[[rules]]
name = "small payments of buyers"
then = "allow"
tools = ["pay"]
tenants = ["acme"]
roles = ["buyer"]
when = [{ argument = "/euros", at_most = 10 }]

[[rules]]
name = "large payments"
then = "ask"
tools = ["pay"]
principals = ["a*"]
approvals = { role = "manager", people = 2, not_starter = true }
"""


@pytest.mark.parametrize(
    ("who", "euros", "ran"),
    [
        (ANN, 9, ["paid 9"]),
        (BOB, 9, []),
        (EVE, 9, []),
        (None, 9, []),
        (Principal("kit", "umbrella", ("buyer",)), 9, []),
        (ANN, 99, []),
    ],
)
async def test_rules_decide_by_tenant_and_role(
    tmp_path: Path, who: Principal | None, euros: int, ran: list[str]
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    engine = ReActEngine(
        runtime(call("pay", euros=euros), "Done.", gate=RuleGate.from_file(path))
    )
    result = await engine.run("Pay.", principal=who)
    assert ran == RAN
    assert [question.tool for question in result.pending] == ["pay"] * (euros == 99)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('roles = ["buyer"]\n', 'roles = ["byer"]\n', "roles: there is no 'byer'; did you mean 'buyer'"),
        ('tenants = ["acme"]\n', 'tenants = ["acne"]\n', "tenants: there is no 'acne'; did you mean 'acme'"),
        ('role = "manager"', 'role = "boss"', "roles: there is no 'boss'"),
        ("people = 2", "people = 0", "approvals: people: must be 1 to 10"),
        ("people = 2", "persons = 2", "approvals: persons: no such field"),
        ('tenants = ["acme", "umbrella"]', 'tenants = "acme"', "tenants: must be a list"),
    ],
)  # fmt: skip
def test_a_policy_that_names_nobody_is_an_error_when_it_is_loaded(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES.replace(old, new, 1))
    with pytest.raises(ConfigError) as told:
        RuleGate.from_file(path)
    assert problem in str(told.value)
    assert str(path) in str(told.value)


def test_the_version_of_rules_that_ask_nobody_is_as_it_was() -> None:
    gate = RuleGate([Rule(name="all", then="allow")])
    assert gate.version == "rules-2-ca3d531181c6520c"


async def test_cedar_decides_by_tenant_and_role() -> None:
    policy = """permit(principal, action, resource) when {
        context.roles.contains(Role::"buyer") && context has tenant && context.tenant == Tenant::"acme" };"""
    gate = CedarGate(policy, tenants=["acme"], roles=["buyer", "manager"])
    for who in (ANN, BOB, Principal("x", "other", ("buyer", "odd")), None):
        engine = ReActEngine(runtime(call("pay", euros=9), "Done.", gate=gate))
        await engine.run("Pay.", principal=who)
    assert RAN == ["paid 9"]
    with pytest.raises(ConfigError, match="does not match the schema"):
        CedarGate(
            policy.replace('"buyer"', '"byer"'), tenants=["acme"], roles=["buyer"]
        )
    plain = CedarGate("permit(principal, action, resource);")
    assert "user" not in str(plain.schema)


# --- whose approvals count ---


async def test_two_people_have_to_approve_and_the_question_says_who_did() -> None:
    journal = MemoryJournal()
    question = await ask(journal, ApprovalRule(people=2))

    await approve(journal, question, BOB)
    await approve(journal, question, BOB)  # the same person is one
    waiting = await resume(journal)
    assert (waiting.status, RAN) == ("waiting", [])
    assert waiting.pending[0].text.endswith("(needs 2 people; bob@acme approved it)")

    await approve(journal, question, CYD)
    assert ((await resume(journal)).answer, RAN) == ("Done.", ["paid 9"])


async def test_only_a_role_counts_and_not_who_started_the_run() -> None:
    journal = MemoryJournal()
    rule = ApprovalRule(role="manager", not_starter=True)
    question = await ask(journal, rule)

    for by in ("Ada", Principal("bob", "acme"), Principal("ann", "acme", ("manager",))):
        await approve(journal, question, by)
        assert (await resume(journal)).status == "waiting"
    assert RAN == []

    await approve(journal, question, BOB)
    assert ((await resume(journal)).answer, RAN) == ("Done.", ["paid 9"])


async def test_a_denial_between_two_approvals_starts_them_anew() -> None:
    journal = MemoryJournal()
    question = await ask(journal, ApprovalRule(people=2))
    control = runtime(journal=journal).control("r")

    await control.approve(question, by=BOB)
    await control.deny(question, "wait", by="Ada")
    await control.approve(question, by=CYD)
    assert (await resume(journal)).status == "waiting"
    await control.approve(question, by=BOB)
    assert (await resume(journal)).answer == "Done."


async def test_two_people_must_approve_the_same_arguments() -> None:
    journal = MemoryJournal()
    question = await ask(journal, ApprovalRule(people=2))

    await approve(journal, question, BOB, arguments={"euros": 1})
    await approve(journal, question, CYD, arguments={"euros": 2})
    assert (await resume(journal)).status == "waiting"
    await approve(journal, question, BOB, arguments={"euros": 2})
    assert ((await resume(journal)).answer, RAN) == ("Done.", ["paid 2"])


async def test_an_approval_of_two_people_ends_with_the_older_one() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    question = await ask(journal, ApprovalRule(people=2), clock=clock)

    await approve(journal, question, BOB, clock)
    await clock.sleep(3_000)
    await approve(journal, question, CYD, clock)
    await clock.sleep(1_000)
    assert (await resume(journal, clock=clock)).status == "waiting"
    await approve(journal, question, BOB, clock)
    assert (await resume(journal, clock=clock)).answer == "Done."


class AskingThree(InstantGate):
    """Wants three people for each call."""

    version = "asking-three-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Ask("Pay?", (ApprovalRule(people=3),))


async def test_rules_of_gate_and_run_are_both_named_and_both_wanted() -> None:
    journal, gate = MemoryJournal(), AskingThree()
    rule = ApprovalRule(role="manager")
    question = await ask(journal, rule, gate=gate)
    wanted = "needs 3 people and a person with the role 'manager'"
    first = await resume(journal, gate=gate)
    assert first.pending[0].text == f"Pay? ({wanted}; no one yet approved it)"

    await approve(journal, question, BOB)
    await approve(journal, question, CYD)
    second = await resume(journal, gate=gate)
    assert (second.status, RAN) == ("waiting", [])
    assert second.pending[0].text.endswith("; cyd@acme, bob@acme approved it)")
    await approve(journal, question, Principal("kit", "acme"))
    assert ((await resume(journal, gate=gate)).answer, RAN) == ("Done.", ["paid 9"])


async def test_no_approval_of_all_calls_stands_for_two_people() -> None:
    journal = MemoryJournal()
    question = await ask(journal, ApprovalRule(people=2))
    await approve(journal, question, BOB, seconds=3_600)
    assert (await resume(journal)).status == "waiting"


async def test_a_callback_cannot_show_who_approved() -> None:
    async def yes(action: Action, question: str) -> bool:
        return True

    engine = ReActEngine(
        runtime(call("pay", euros=9), "No.", approver=yes, gate=AskingThree())
    )
    result = await engine.run("Pay.", approvals=ApprovalRule(role="manager"))
    assert (result.answer, RAN) == ("No.", [])
    assert result.conversation.messages[-2].content == (
        "it needs the approval of 3 people and a person with the role 'manager', which a callback cannot show: "
        "wait for decisions with Runtime(approver=Suspend())"
    )


async def test_gates_that_ask_together_want_all_their_approvals() -> None:
    class Managers(InstantGate):
        version = "managers-1"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return Ask("Pay?", (ApprovalRule(role="manager"),))

    journal, gate = MemoryJournal(), AllOf(ApprovalGate(), Managers())
    question = await ask(journal, None, gate=gate)
    await approve(journal, question, ANN)
    assert (await resume(journal, gate=gate)).status == "waiting"
    await approve(journal, question, BOB)
    assert (await resume(journal, gate=gate)).answer == "Done."
