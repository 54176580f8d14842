"""What one warm ReAct turn with one tool call on SQLite runs through: `python tests/benchmarks/trace_of_a_turn.py [-v]`.

A turn is what happens between two requests to the model: the reply is recorded, the call is judged and made, and the
next request is recorded. Counted are the files of the package, the functions, the calls, and how often one call is
followed by one in another file. A coroutine that is resumed counts as called again; methods of dataclasses, and what
runs in the threads of tools and journal do not count. `-v` prints each call.
"""

import asyncio
import itertools
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import loopwright
from loopwright import Completion, ReActEngine, Request, Runtime, tool
from loopwright._internal import dataclasses
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call

PACKAGE = Path(loopwright.__file__).parent
RUNS = 6  # the shortest trace counts: the first are not warm, and the inbox may be polled in any
TRACED = 2  # the request of a run whose reply begins the turn


class Call(NamedTuple):
    """A function that was called or resumed, and its file."""

    file: str
    function: str


class Trace:
    """Collects the calls of the package's functions while it is on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._prefix = f"{PACKAGE}/"

    def start(self) -> None:
        """Forget what was collected, and collect."""
        self.calls.clear()
        sys.setprofile(self._observe)

    def stop(self) -> None:
        """Collect no more."""
        sys.setprofile(None)

    def summary(self) -> str:
        """Return the four counts as a line."""
        files = [one.file for one in self.calls]
        switches = sum(one != next_ for one, next_ in itertools.pairwise(files))
        return (
            f"{len(set(files))} files, {len(set(self.calls))} functions, "
            f"{switches} switches between files, {len(self.calls)} calls"
        )

    def _observe(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(self._prefix)
        if event == "call" and is_ours and code.co_filename != dataclasses.__file__:
            file = code.co_filename.removeprefix(self._prefix)
            self.calls.append(Call(file, code.co_qualname))


class TracingProvider(ScriptedProvider):
    """Plays a script, and traces from the start of one request to the start of the next."""

    trace: Trace
    count = 0

    async def complete(self, request: Request) -> Completion:
        """Return the next reply."""
        self.trace.stop()
        self.count += 1
        if self.count == TRACED:
            self.trace.start()
        return await super().complete(request)


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def trace_turn() -> Trace:
    """Run the same task a few times, and return the shortest trace of a turn."""
    traces: list[Trace] = []
    script = [call("add", a=1, b=2), call("add", a=3, b=3), call("add", a=6, b=4), "10"]
    with tempfile.TemporaryDirectory() as folder:
        journal = SQLiteJournal(Path(folder) / "runs.db")
        for _ in range(RUNS):
            provider, trace = TracingProvider(script), Trace()
            provider.trace = trace
            traces.append(trace)
            runtime = Runtime(provider, tools=[add], journal=journal)
            result = await ReActEngine(runtime).run("What is 1 + 2 + 3 + 4?")
            trace.stop()
            assert result.answer == "10"
        await journal.close()
    return min(traces, key=lambda one: len(one.calls))


def main() -> None:
    """Print the counts, and with -v the calls by file."""
    trace = asyncio.run(trace_turn())
    file = ""
    for one in trace.calls if "-v" in sys.argv[1:] else ():
        print(f"{one.file if one.file != file else '':40} {one.function}")
        file = one.file
    print(trace.summary())


if __name__ == "__main__":
    main()
