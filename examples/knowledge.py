"""Knowledge across runs: what one run learns, another recalls, within the scope of its user, until it is forgotten.

`Runtime(knowledge=...)` gives a model what matches the talk before it reasons, and two tools: `recall_knowledge` and
`store_knowledge`. The tag `user` of a run says whose knowledge it uses; no other user's runs see it. Forgetting removes
a fact from the file, its index and its log.

No model is needed: `answer` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import tempfile
from pathlib import Path

from loopwright import ReActEngine, Request, Runtime, ToolCall
from loopwright.knowledge import SQLiteKnowledge
from loopwright.testing import ScriptedProvider, call


def answer(request: Request) -> str | ToolCall:
    """Say what a model would say: it stores what it is told, and uses what it is given."""
    messages = request.conversation.messages
    if any(message.role == "tool" for message in messages):
        return "I will remember that."
    known = [m.content for m in messages if m.origin == "memory"]
    if messages[0].content.startswith("Remember"):
        return call("store_knowledge", subject="Ada", predicate="is allergic to", object="nuts")  # fmt: skip
    return "The salad: nuts are in the cake." if known else "The nut cake!"


async def main() -> None:
    """Learn something, use it, keep it from others, and forget it."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteKnowledge(Path(folder) / "memory.db")
        engine = ReActEngine(Runtime(ScriptedProvider(answer), knowledge=store))
        ada, bob = {"user": "ada"}, {"user": "bob"}

        learned = await engine.run("Remember: Ada is allergic to nuts.", tags=ada)
        print(f"Ada:  {learned.answer}")
        question = "What should Ada eat, is she allergic to nuts?"
        print(f"Ada:  {(await engine.run(question, tags=ada)).answer}")
        print(f"Bob:  {(await engine.run('What should I eat?', tags=bob)).answer}")

        print(f"Forgotten: {await store.forget(scope='ada')}")
        print(f"Known: {len(await store.search('nuts', scope='ada'))}")
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
