"""Tools of a store of knowledge: recall_knowledge and store_knowledge, within the scope of the run."""

import asyncio
import unicodedata
from typing import Annotated, Any, cast
from urllib.parse import quote

from pydantic import Field

from ..errors import ToolError
from ..knowledge.base import Knowledge, Relation, Remembered
from ..knowledge.bridge import (
    DirectoryRules,
    KnowledgeBridge,
    format_items,
    scope_of,
)
from ..labels import LabelledText, highest
from ..tools.base import Tool, ToolContext, tool
from ..tools.profile import ToolProfile
from ..tools.registry import ToolRegistry, Tools, as_items

MAX_RECALLED = 20
CONVENTIONS = "conventions"
Name = Annotated[str, Field(min_length=1, max_length=500)]


def knowledge_tools(
    store: Knowledge,
    *,
    threshold: float = 0.3,
    conventions: DirectoryRules | None = None,
) -> list[Tool]:
    """Return the tools of a store; the scope is that of the run, see `scope_of`, and a model can only narrow it.

    Results are as sensitive as the most sensitive item, and untrusted. What a model stores is as sensitive and as
    untrusted as the run that stores it. With `conventions`, the scope "conventions" has the rules for a directory.
    """
    return [_build_recall(store, threshold, conventions), _build_store(store)]


def _build_recall(
    store: Knowledge, threshold: float, conventions: DirectoryRules | None
) -> Tool:
    @tool(effect="read", label="public")
    async def recall_knowledge(
        ctx: ToolContext[Any],
        query: str,
        limit: Annotated[int, Field(ge=1, le=MAX_RECALLED)] = 5,
        scope: str | None = None,
        directory: str | None = None,
    ) -> str:
        """Search what is known from earlier.

        Args:
            query: words to look for, or a question.
            limit: the most items.
            scope: a part of what is known, such as a project, if it is divided; "conventions" for the rules of this project.
            directory: the directory whose rules are wanted, with that scope.
        """
        if conventions is not None and scope == CONVENTIONS:
            rules = await asyncio.to_thread(conventions.find, directory or ".")
            shown = [f"{rule.topic}:\n{rule.text}" for rule in rules[:limit]]
            return "\n\n".join(shown) or "There are no conventions for that directory."
        found = await store.search(
            query, limit=limit, threshold=threshold, scope=_narrow(ctx, scope)
        )
        text = format_items(found) or "Nothing is known about that."
        return LabelledText(text, label=highest(item.label for item in found))

    return recall_knowledge


def _build_store(store: Knowledge) -> Tool:
    @tool(effect="idempotent", trusted=True, label="public", destinations=())
    async def store_knowledge(
        ctx: ToolContext[Any],
        subject: Name,
        predicate: Name,
        object: Name,
        confidence: Annotated[float, Field(ge=0, le=1)] = 0.8,
    ) -> str:
        """Remember a fact for later; one of the same subject and predicate is superseded.

        Args:
            subject: what it is about, such as "Ada".
            predicate: what is said of it, such as "lives in".
            object: the value, such as "Bergen".
            confidence: how sure it is, from 0 to 1.
        """
        topic = f"{_normalize(subject)}|{_normalize(predicate)}"
        item = Remembered(
            f"{subject} {predicate} {object}", topic=topic, score=confidence,
            label=ctx.label, untrusted=ctx.untrusted, source_run=ctx.run_id, source_key=ctx.key, scope=_narrow(ctx, None),
            relations=(Relation(predicate, object),),
        )  # fmt: skip
        id = await store.store(item, key=ctx.idempotency_key)
        return "Stored." if id else "It was forgotten since, and is not stored again."

    return store_knowledge


def _normalize(name: str) -> str:
    """Return a name as a topic has it: the same for other cases, spaces and forms of Unicode, without a bar of its own."""
    composed = unicodedata.normalize("NFC", name).casefold()
    return " ".join(composed.split()).replace("|", "%7c")


def _narrow(ctx: ToolContext[Any], scope: str | None) -> str:
    """Return the scope of a run, or the part of it that a model names."""
    own = scope_of(ctx.tags, ctx.thread)
    if scope is None or not scope.strip("/ "):
        return own
    part = "/".join(quote(one, safe="") for one in scope.split("/") if one)
    if not own:
        raise ToolError("scope: this run has none that could be narrowed; leave it out")
    return f"{own}/{part}"


def build_registry(
    tools: Tools,
    profile: ToolProfile | None,
    knowledge: Knowledge | KnowledgeBridge | None,
) -> tuple[ToolRegistry, KnowledgeBridge | None, tuple[Tool, ...]]:
    """Return the tools with those of the store of knowledge, how runs use that, and its tools alone."""
    bridge, own = build_bridge(knowledge)
    if own:
        tools = (*as_items(tools), *own)
    registry = ToolRegistry(tools, choose=getattr(profile, "choose", None))
    return registry, bridge, own


def build_bridge(
    knowledge: Knowledge | KnowledgeBridge | None,
) -> tuple[KnowledgeBridge | None, tuple[Tool, ...]]:
    """Return how runs use a store of knowledge, and the tools that it gives to models."""
    bridge = knowledge if isinstance(knowledge, KnowledgeBridge) else None
    if knowledge is not None and bridge is None:
        bridge = KnowledgeBridge(cast("Knowledge", knowledge))
    if bridge is None or not bridge.tools:
        return bridge, ()
    tools = knowledge_tools(
        bridge.store, threshold=bridge.threshold, conventions=bridge.conventions
    )
    return bridge, tuple(tools)
