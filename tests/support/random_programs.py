"""Random programs of the verbs of a run, and random edits of them, as a next release makes them."""

import asyncio
import dataclasses
import random
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from loopwright import LoopEngine, Run, ToolCall

SIMPLE = ("ask", "pay", "look", "both", "effect", "note", "now", "pause", "reason")
"""The steps that hold no other steps; `both` is two calls in one proposal."""
SILENT = ("note", "now", "pause")
"""The steps that return nothing."""
NESTED = ("gather", "delegate", "if")
MAX_STEPS, MAX_DEPTH, MAX_BRANCHES, MAX_YIELDS = 4, 2, 3, 6


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: what it does, with which text, and the steps inside, of each branch."""

    kind: str
    text: str
    inside: "tuple[Program, ...]" = ()


Program: TypeAlias = tuple[Step, ...]


class Stepping(LoopEngine):
    """Runs a program; the answer is a digest of all that its steps returned."""

    name = "stepping"
    program: Any = ()

    async def solve(self, run: Run) -> str:
        """Run the steps."""
        return await follow(self, run, self.program)


def digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


async def follow(engine: Stepping, run: Run, program: Program, found: str = "") -> str:
    """Run the steps of a program one after another; return a digest of what they returned."""
    for step in program:
        if step.kind == "patched":
            code = step.inside[not run.patched(step.text)]
            found = await follow(engine, run, code, found)
            continue
        found = digest(found + await _do(engine, run, step, found))
    return found


async def _do(engine: Stepping, run: Run, step: Step, before: str) -> str:
    if step.kind in SILENT:
        await _do_silent(run, step)
        return ""
    if step.inside:
        return await _do_nested(engine, run, step, before)
    return await _do_effect(run, step, before)


async def _do_effect(run: Run, step: Step, before: str) -> str:
    match step.kind:
        case "ask":
            return await run.ask(f"{step.text} {before}")
        case "reason":
            asked = run.conversation.user(f"{step.text} {before}")
            return (await run.reason(asked)).answer or ""
        case "effect":
            return await run.effect(step.text, lambda: _value(step.text), into=str)
        case _:
            names = ("pay", "look") if step.kind == "both" else (step.kind,)
            calls = [ToolCall(name, {"what": step.text}) for name in names]
            acted = await run.act(await run.gate(run.propose(*calls)))
            return "".join(observation.content for observation in acted)


async def _do_silent(run: Run, step: Step) -> None:
    if step.kind == "note":
        run.note(step.text)
    elif step.kind == "now":
        run.now()
    else:
        for _ in range(int(step.text)):
            await asyncio.sleep(0)


async def _value(text: str) -> str:
    return digest(text)


async def _do_nested(engine: Stepping, run: Run, step: Step, before: str) -> str:
    if step.kind == "if":
        chosen = step.inside[zlib.crc32(before.encode()) % 2]
        return await follow(engine, run, chosen)
    if step.kind == "delegate":
        child = dataclasses.replace(engine, program=step.inside[0])
        return (await run.delegate(child, step.text)).answer or ""

    def work(program: Program) -> Any:
        async def branch(inner: Run) -> str:
            return await follow(engine, inner, program)

        return branch

    return "".join(await run.gather(*map(work, step.inside)))


def make_program(source: random.Random, depth: int = 0) -> Program:
    """Return a program of a few steps, at random."""
    return tuple(
        make_step(source, depth) for _ in range(source.randint(1, MAX_STEPS - depth))
    )


def make_step(source: random.Random, depth: int) -> Step:
    """Return a step at random; the deeper, the simpler."""
    kinds = SIMPLE if depth == MAX_DEPTH else (*SIMPLE, *NESTED, "gather", "gather")
    kind = source.choice(kinds)
    text = f"{kind}-{source.randrange(6)}"
    if kind == "pause":
        return Step(kind, str(source.randint(1, MAX_YIELDS)))
    if kind in SIMPLE:
        return Step(kind, text)
    number = {"if": 2, "delegate": 1}.get(kind) or source.randint(2, MAX_BRANCHES)
    return Step(
        kind, text, tuple(make_program(source, depth + 1) for _ in range(number))
    )


def edit_program(source: random.Random, program: Program, depth: int = 0) -> Program:
    """Return a program with one change somewhere in it."""
    steps = list(program)
    nested = [index for index, step in enumerate(steps) if step.inside]
    if nested and source.random() < 0.6:
        index = source.choice(nested)
        steps[index] = _edit_inside(source, steps[index], depth + 1)
        return tuple(steps)
    index = source.randrange(len(steps) + 1)
    change = source.choice(("insert", "pay", "delete", "replace", "swap", "slower"))
    if change == "insert" or index == len(steps):
        steps.insert(index, make_step(source, depth))
    elif change == "pay":
        steps.insert(index, Step("pay", f"new-{source.randrange(6)}"))
    elif change == "slower":
        steps.insert(index, Step("pause", str(MAX_YIELDS)))
    elif change == "replace":
        steps[index] = make_step(source, depth)
    elif change == "swap":
        other = source.randrange(len(steps))
        steps[index], steps[other] = steps[other], steps[index]
    elif len(steps) > 1:
        del steps[index]
    return tuple(steps)


def patch_program(source: random.Random, program: Program, depth: int = 0) -> Program:
    """Return a program in which one place has new code, which is behind `Run.patched`, in place of old code."""
    steps = list(program)
    nested = [index for index, step in enumerate(steps) if step.inside]
    if nested and source.random() < 0.6:
        index = source.choice(nested)
        inside = list(steps[index].inside)
        number = source.randrange(len(inside))
        inside[number] = patch_program(source, inside[number], depth + 1)
        steps[index] = dataclasses.replace(steps[index], inside=tuple(inside))
        return tuple(steps)
    start = source.randrange(len(steps) + 1)
    end = source.randint(start, len(steps))
    new = make_program(source, min(depth, MAX_DEPTH))
    steps[start:end] = [Step("patched", "change", (new, tuple(steps[start:end])))]
    return tuple(steps)


def _edit_inside(source: random.Random, step: Step, depth: int) -> Step:
    """Return a step with a change in one of its branches, or with one more or less."""
    inside: Sequence[Program] = list(step.inside)
    number = source.randrange(len(inside))
    change = source.random() if step.kind == "gather" else 1.0
    if change < 0.15:
        changed = [*inside, make_program(source, depth)]
    elif change < 0.35 and len(inside) > 1:
        changed = [one for index, one in enumerate(inside) if index != number]
    else:
        changed = list(inside)
        changed[number] = edit_program(source, changed[number], depth)
    return dataclasses.replace(step, inside=tuple(changed))
