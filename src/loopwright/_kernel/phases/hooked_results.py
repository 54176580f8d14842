"""Let hooks change the result of a tool, and any text that is recorded as they left it."""

from collections.abc import Callable

from ...hooks.base import About, Stage
from ...hooks.changes import TextReader, replace_text
from ...messages import Observation
from ...tools.base import Tool
from .hook_stages import WITHOUT, HookStages

EXECUTED = ("ok", "error")
Check = Callable[[str], object]
"""Reads a changed text as what it must be; raises `ValueError`."""


async def hook_result(
    hooks: HookStages, key: str, tool: Tool, observation: Observation
) -> Observation:
    """Return the result of a call as hooks left it; it is durable before a hook sees what changed the world."""
    if observation.status not in EXECUTED or not hooks.select("after_tool"):
        return observation
    is_over = hooks.has_gone_on()
    if not is_over and tool.effect != "read":
        await hooks.prepare()
    before = observation.text
    about = About(tool=tool.name)
    text = await change_text(hooks, "after_tool", key, before, is_over, None, about)
    if text == before:
        return observation
    limit = tool.max_output_chars or hooks.max_output_chars
    return replace_text(observation, text[:limit])


async def change_text(
    hooks: HookStages,
    stage: Stage,
    key: str,
    text: str,
    is_over: bool,
    check: Check | None,
    about: About = WITHOUT,
) -> str:
    """Return a text as hooks left it: as recorded, where the run continued from there."""
    recorded = hooks.recorded(key, stage)
    if is_over:
        return str(hooks.replay(recorded, text))
    take = TextReader(hooks.clean, check)
    await hooks.reach(key)
    selected = hooks.select(stage, about.purpose)
    return str(await hooks.run(selected, stage, key, text, take, about))
