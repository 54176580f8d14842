"""Write what a run did as a skill: the order of its tools, with placeholders for their arguments, in a SKILL.md."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from .._internal.regex import compile_late
from ..errors import ToolError
from ..toolboxes.sandbox_root import SandboxRoot
from ..toolboxes.skills import FILE, MAX_DESCRIPTION, MAX_NAME
from .transcript import SucceededCall

MAX_STEPS = 12
MAX_SKILLS = 50
"""Skills of one folder, which the toolbox reads by default."""
PLAIN_NAME = compile_late(r"[A-Za-z_][\w.-]{0,63}")
NOTHING = ""


def write_skill(folder: str, calls: Sequence[SucceededCall], min_calls: int) -> str:
    """Write a skill of the calls of a run, unless it is there; return its name, empty where there is nothing to learn.

    It holds names of tools and of arguments, and no text of the run: models read a skill as the application's own words.
    """
    steps = _merge_repeats(calls)
    has_several = len({step.tool for step in steps}) > 1
    is_long_enough = len(calls) >= min_calls > 0
    if not (has_several and is_long_enough) or len(steps) > MAX_STEPS:
        return NOTHING
    name, files = _name(steps), SandboxRoot(folder)
    if Path(folder, name).exists() or _count(files) >= MAX_SKILLS:
        return NOTHING
    try:
        files.write(f"{name}/{FILE}", _format(name, steps).encode())
    except ToolError as error:
        raise OSError(str(error)) from None
    return name


def _count(files: SandboxRoot) -> int:
    return sum(1 for _ in files.root.glob(f"*/{FILE}"))


def _merge_repeats(calls: Sequence[SucceededCall]) -> list[SucceededCall]:
    """Return the calls without those that only repeat the one before with other arguments."""
    steps: list[SucceededCall] = []
    for call in calls:
        names = tuple(name for name in call.arguments if PLAIN_NAME.fullmatch(name))
        step = SucceededCall(call.tool, names)
        if PLAIN_NAME.fullmatch(call.tool) and steps[-1:] != [step]:
            steps.append(step)
    return steps


def _name(steps: Sequence[SucceededCall]) -> str:
    """Return the name of a skill, which is the same for the same steps."""
    text = json.dumps([[step.tool, *step.arguments] for step in steps])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    words = dict.fromkeys(
        re.sub(r"[^a-z0-9]+", "-", step.tool.lower()) for step in steps
    )
    slug = "-".join(word.strip("-") for word in words if word.strip("-"))
    return f"{slug[: MAX_NAME - 9].strip('-')}-{digest}".strip("-")


def _format(name: str, steps: Sequence[SucceededCall]) -> str:
    tools = list(dict.fromkeys(step.tool for step in steps))
    described = f"Use {', then '.join(tools)}, as a run did that completed."
    lines = [f"{number}. {_format_step(step)}" for number, step in enumerate(steps, 1)]
    return "\n".join(
        [
            "---",
            f"name: {name}",
            f"description: {json.dumps(described[:MAX_DESCRIPTION])}",
            f"allowed-tools: {json.dumps(' '.join(tools))}",
            "---",
            "",
            "Fill the placeholders from the task and from the results of earlier steps:",
            "",
            *lines,
            "",
        ]
    )


def _format_step(step: SucceededCall) -> str:
    given = ", ".join(f"{name}={{{name}}}" for name in step.arguments)
    return f"Call `{step.tool}`{f' with {given}' if given else ''}."
