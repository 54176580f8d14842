"""Runs that must not send what is private: a classifier, a gate, a model and what became of it after any crash."""

from collections.abc import Callable
from typing import Any

from loopwright import (
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    LoopEngine,
    PolicyState,
    Request,
    Runtime,
    Tool,
    tool,
)
from loopwright._kernel.durability.replay import Replay
from loopwright.events import Entry, ToolFinished
from loopwright.gates import InstantGate
from loopwright.labels import Label, is_at_least
from loopwright.testing import ScriptedProvider, crashed

PRIVATE = "a private number"
HOME = "private data stays here"
REPAIR = "failed. Its arguments"


class Private:
    """Finds sensitive what calls itself private."""

    def label(self, text: str) -> Label:
        return "sensitive" if "private" in text else "public"


class KeepsAtHome(InstantGate):
    """Sends nothing from a run that has read private data; of `burn` it asks a person."""

    version = "home-1"

    def __init__(self) -> None:
        self.untrusted: list[bool] = []

    def decide(self, action: Action, state: PolicyState) -> Decision:
        if action.tool == "burn":
            return Ask("May it?")
        if action.tool != "send":
            return Allow()
        self.untrusted.append(state.untrusted)
        return Deny(HOME) if is_at_least(state.label, "sensitive") else Allow()


@tool
async def send(text: str) -> str:
    """Send."""
    return "sent"


@tool(effect="destructive")
async def burn(what: str) -> str:
    """Burn."""
    return "burnt"


def turns(*lines: Any, repaired: str = "") -> Callable[[Request], Any]:
    """A model that says the n-th line once it has read n results, and proposes `repaired` for a call that failed."""

    def model(request: Request) -> Any:
        messages = request.conversation.messages
        if REPAIR in messages[0].content:
            return repaired
        return lines[
            min(sum(message.role == "tool" for message in messages), len(lines) - 1)
        ]

    return model


def process(
    model: Callable[[Request], Any], tools: list[Tool], **options: Any
) -> Runtime:
    given: dict[str, Any] = {"gate": KeepsAtHome(), "classifier": Private(), **options}
    return Runtime(ScriptedProvider(model), tools=[send, *tools], **given)


def sent(entries: list[Entry]) -> list[str]:
    """What became of the calls of `send`."""
    events = [entry.event for entry in entries]
    return [
        event.status
        for event in events
        if isinstance(event, ToolFinished) and event.tool == "send"
    ]


async def stays_after_any_crash(
    make: Callable[[Any], LoopEngine], journal: Any, least: int = 1
) -> None:
    """Nothing is sent, wherever the run is cut and goes on; and its label is that of the journal."""
    entries = journal.read("r")
    assert sent(entries) == ["denied"]
    for cut in range(least, len(entries)):
        again = crashed(entries, cut)
        for command in journal.inbox("r"):
            again.send("r", command.kind, command.body)
        result = await make(again).resume("r")
        where = f"cut after {cut}: {entries[cut - 1].kind}"
        assert (result.status, sent(again.read("r"))) == ("completed", ["denied"]), (
            where
        )
        assert Replay(again.read("r")).totals.label == Replay(entries).totals.label, (
            where
        )
