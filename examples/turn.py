"""Turn: a chat that asks before it destroys, plans with a rollback, and tells its model how many rounds are left.

Four messages: a question, one that would delete everything, a trip whose hotel is sold out, and one whose tool fails. No
model is needed: `reply` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

from typing import Any

from loopwright import Request, Runtime, ToolContext, ToolError, tool
from loopwright.engines import TurnEngine
from loopwright.testing import Line, ScriptedProvider, call

FILES = ["notes.txt", "old.log"]
BOOKED: list[str] = []


@tool(effect="read", trusted=True)
async def list_files() -> str:
    """List the files of the user."""
    return ", ".join(FILES) or "no files"


@tool(effect="destructive", trusted=True)
async def delete_file(name: str) -> str:
    """Delete a file."""
    if name not in FILES:
        raise ToolError(f"there is no {name!r}; there are {', '.join(FILES)}")
    FILES.remove(name)
    return f"{name} is deleted"


async def cancel(ctx: ToolContext[None], result: str) -> str:
    """Cancel what was booked."""
    BOOKED.remove(str(ctx.arguments["what"]))
    return "cancelled"


@tool(effect="write", compensate=cancel, trusted=True)
async def book(what: str) -> str:
    """Book something."""
    if what == "hotel":
        raise ToolError("sold out")
    BOOKED.append(what)
    return f"{what} is booked"


def reply(request: Request) -> Line:
    """The model's part: what it says next is a function of what it has read."""
    texts = [one.content for one in request.conversation]
    if "has to be asked" in texts[-1]:
        return "Do you mean old.log only, or your notes too?"
    if "Plan how" in texts[-1]:
        return '1. book("flight")\n2. book("hotel")\njoin()'
    if "Decision:" in texts[-1]:
        return "Decision: FINISH"
    if "These steps were carried out" in texts[-1]:
        return "The flight is booked, the hotel is sold out."
    results = [one.content for one in request.conversation if one.role == "tool"]
    if "delete all files" in texts[0]:
        return "old.log is gone." if results else call("delete_file", name="old.log")
    if "Which files" in texts[0]:
        return "You have notes.txt." if results else call("list_files")
    if not results:
        return call("delete_file", name="note.txt")
    return "There is no note.txt; do you mean notes.txt?"


async def answer(question: str) -> str:
    """The user's part."""
    print(f"  asked: {question}")
    return "Only old.log."


async def approve(action: Any, question: str) -> bool:
    """Let destructive calls run that the user wanted."""
    return True


def main() -> None:
    """Take four messages, and print how each was assessed and its outcome."""
    runtime = Runtime(
        ScriptedProvider(reply), tools=[list_files, delete_file, book], user=answer, approver=approve
    )  # fmt: skip
    engine = TurnEngine(runtime, max_rounds=4)
    for task in (
        "delete all files",
        "Which files do I have?",
        "first book the flight, then book the hotel, and finally send Ana the dates",
        "Throw note.txt away, please.",
    ):
        print(f"User: {task}")
        result = engine.run_sync(task)
        assessment: Any = result.fact("Assessment")
        print(f"  assessed: {assessment['decision']} ({assessment['reason']})")
        for message in result.conversation:
            if message.role == "tool" and message.content.startswith("[tool_result"):
                print(f"  {message.content.splitlines()[0].partition(' seconds')[0]}]")
        print(f"  {result.status}: {result.answer}")
    print(f"files: {FILES}, booked: {BOOKED}")


if __name__ == "__main__":
    main()
