"""What the goal cycle knows from earlier runs, and what it leaves for later ones, in the runtime's store of knowledge."""

import asyncio
import dataclasses
from collections.abc import Sequence

from ..errors import ConfigError, Denied, EngineError, KnowledgeError
from ..knowledge import KnowledgeBridge, Remembered
from ..labels import LabelledText
from ..parsing.spotlighting import fence
from ..run import Run

MAX_MEMORIES, MAX_DOCUMENTS = 5, 3
MAX_SHOWN = 200
"""Characters of an item that a planner reads."""
MAX_STORED = 2_000
"""Characters of an output or an answer that is stored."""
DOCUMENT = "document"
REASONING = "reasoning"
STORE_ERRORS = (KnowledgeError, ConfigError, Denied, EngineError)


@dataclasses.dataclass(frozen=True)
class PriorKnowledge:
    """Fact: how many memories and documents the planner was shown."""

    memories: int
    documents: int


@dataclasses.dataclass(frozen=True)
class KnowledgeFailed:
    """Fact: the store of knowledge could not be read or written; the run continues without."""

    problem: str


async def recall_prior(run: Run, bridge: KnowledgeBridge | None) -> str:
    """Return what a planner is to know from earlier, as data; empty for nothing."""
    if bridge is None:
        return ""

    async def search() -> list[str]:
        async with asyncio.timeout(bridge.timeout):
            found = await bridge.store.search(
                run.task, limit=2 * MAX_MEMORIES, threshold=bridge.threshold, scope=run.scope
            )  # fmt: skip
            documents = await bridge.store.search(
                run.task, kinds=(DOCUMENT,), limit=MAX_DOCUMENTS, threshold=bridge.threshold, scope=run.scope
            )  # fmt: skip
        memories = [item for item in found if item.kind != DOCUMENT][:MAX_MEMORIES]
        return [*map(_format_item, memories), *map(_format_item, documents)]

    try:
        lines = await run.lookup(
            "prior_knowledge", search, into=list[str], untrusted=False
        )
    except STORE_ERRORS as error:
        if bridge.required:
            raise
        run.note(KnowledgeFailed(str(error)))
        return ""
    if not lines:
        return ""
    documents = sum(line.endswith(f"({DOCUMENT})") for line in lines)
    run.note(PriorKnowledge(len(lines) - documents, documents))
    delimiter = run.new_id().replace("-", "")[:16]
    return fence("\n".join(lines), source="knowledge", delimiter=delimiter)


def _format_item(item: Remembered) -> str:
    text = " ".join(item.text.split())[:MAX_SHOWN]
    line = f"- {text} ({item.kind})"
    return LabelledText(line, label=item.label, untrusted=item.untrusted)


async def store_reasoning(
    run: Run, bridge: KnowledgeBridge | None, texts: Sequence[str]
) -> None:
    """Store what a run found, once, with what it has read so far as its provenance."""
    if bridge is None or not texts:
        return
    labelled = [run.label_text(text[:MAX_STORED]) for text in texts]
    key, scope = run.new_id(), run.scope

    async def keep() -> None:
        for number, text in enumerate(labelled):
            item = Remembered(
                text, kind=REASONING, label=text.label, untrusted=text.untrusted, source_run=run.run_id, scope=scope
            )  # fmt: skip
            await bridge.store.store(item, key=f"{key}:{number}")

    try:
        await run.effect("keep_reasoning", keep, into=type(None))
    except STORE_ERRORS as error:
        run.note(KnowledgeFailed(str(error)))
