"""Tools that change while a run is at work: what a step begins with is what it ends with."""

from loopwright import ReActEngine, Runtime, Tool, ToolSource, tool
from loopwright.testing import ScriptedProvider, call


@tool(effect="read")
def first() -> str:
    """First."""
    return "the first"


@tool(effect="read")
def second() -> str:
    """Second."""
    return "the second"


class Changing:
    """Has another tool each time it is asked."""

    def __init__(self, *lists: tuple[Tool, ...]) -> None:
        self._lists, self._turn = lists, 0

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._lists[self._turn]

    async def renewed(self) -> tuple[Tool, ...]:
        self._turn = min(self._turn + 1, len(self._lists) - 1)
        return self.tools


async def test_a_changed_list_takes_effect_with_the_next_model_call_and_not_before() -> None:
    source = Changing((first,), (first,), (second,))
    assert isinstance(source, ToolSource)
    model = ScriptedProvider([[call("first"), call("second")], [call("first"), call("second")], "done"])
    runtime = Runtime(model, tools=source)

    result = await ReActEngine(runtime).run("Go.")

    assert [[spec.name for spec in request.tools] for request in model.requests] == [["first"], ["second"], ["second"]]
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "the first",
        "There is no tool 'second'. Tools: first.",
        "There is no tool 'first'. Tools: second.",
        "the second",
    ]
    assert [each.name for each in runtime.tools] == ["first"]


async def test_a_list_that_cannot_be_used_changes_nothing() -> None:
    source = Changing((first,), (first, second, first))

    result = await ReActEngine(Runtime(ScriptedProvider([call("first"), "done"]), tools=[source])).run("Go.")

    assert [m.content for m in result.conversation.messages if m.role == "tool"] == ["the first"]
