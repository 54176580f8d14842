"""A tool that the model's provider runs by itself: policy decides before each request, and the answer has its sources.

What such a tool looks for leaves this process, and is seen only afterwards. So a gate decides each time whether it is
offered, and once something sensitive was read it is offered no more.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIResponsesProvider("gpt-5.2")`,
`AnthropicProvider("claude-sonnet-4-6")` or `GeminiProvider("gemini-3-pro-preview")` in place of the `ScriptedProvider`.
"""

from loopwright import (
    Action,
    Allow,
    Completion,
    Deny,
    PolicyState,
    Price,
    ReActEngine,
    Runtime,
    Usage,
    tool,
)
from loopwright.events import GateDecided, ModelReplied
from loopwright.gates import Decision, InstantGate
from loopwright.messages import Source
from loopwright.providers import Capabilities, ProviderTool
from loopwright.testing import ScriptedProvider, call

MUSEUM = Source("https://museum.example/hours", "Opening hours")
SEARCHED = Completion(
    "On Mondays it is closed; I look when you are free.",
    (call("calendar", day="Tuesday"),),
    usage=Usage(1_200, 60),
    provider_calls=("web_search", "web_search"),
    sources=(MUSEUM,),
)
SCRIPT: list[Completion | str] = [
    SEARCHED,
    "Visit it on Tuesday at ten: you are free, and the museum is open.",
]


@tool(effect="read")
def calendar(day: str) -> str:
    """What is planned for a day."""
    return f"{day}: the morning is free"


class SearchPolicy(InstantGate):
    """The web may be searched until the calendar was read; nothing of it may leave by a search."""

    version = "search-1"

    def __init__(self) -> None:
        self._has_read = False

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Decide about a call, or about offering a tool of the provider."""
        if action.outbound and self._has_read:
            return Deny("the calendar was read")
        self._has_read |= action.tool == "calendar"
        return Allow()


def main() -> None:
    """Run it, and print what was decided, found and paid."""
    model = ScriptedProvider(
        SCRIPT, capabilities=Capabilities(provider_tools=("web_search",))
    )
    runtime = Runtime(
        model,
        tools=[calendar, ProviderTool("web_search", max_uses=3)],
        gate=SearchPolicy(),
        prices={"script": Price(input=1.0, output=4.0, provider_calls={"web_search": 0.01})},
    )  # fmt: skip
    result = ReActEngine(runtime).run_sync("When can I visit the museum?", run_id="m")
    for entry in runtime.journal.read("m"):
        if isinstance(entry.event, GateDecided):
            print(f"Gate     {entry.event.verdict} {entry.event.tool}")
        if isinstance(entry.event, ModelReplied):
            for source in entry.event.completion.sources:
                print(f"Source   {source.title}, {source.url}")
    print(f"Answer   {result.answer}")
    print(f"{result.tool_calls} tool calls, {result.usage.cost:.4f} spent")


if __name__ == "__main__":
    main()
