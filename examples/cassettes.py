"""Cassettes: a model is asked once, its replies are kept in a file, and every later run of the test needs no model.

`cassette(path, provider)` records where there is no file and replays where there is one. A replayed reply belongs to
the request that it was given to: a prompt, a tool or a setting that has changed is a `CassetteMiss` that says what is
different, and no wrong reply. Keys and other secrets are not written.

No model is needed: `SCRIPT` plays the one that is recorded. For a real one put "openai:gpt-4.1-mini" in place of the
`ScriptedProvider`; everything else stays. It is touched only while something is recorded: replaying needs no key.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from loopwright import Provider, ReActEngine, Runtime, ToolCall, tool
from loopwright.testing import CassetteMiss, ScriptedProvider, call, cassette

SCRIPT: list[str | ToolCall] = [
    call("departures", station="Porto"),
    "The 17:40 to Lisbon is the next one.",
]


@tool(effect="read")
def departures(station: str) -> str:
    """The next trains of a station."""
    return {"Porto": "17:40 Lisbon, 18:05 Braga"}.get(station, "none")


def ask(model: Provider, question: str) -> str | None:
    """What would be a test: an agent answers a question."""
    return ReActEngine(Runtime(model, tools=[departures])).run_sync(question).answer


def main() -> None:
    """Record, replay, and ask for something that was not recorded."""
    question = "Which train leaves Porto next?"
    with TemporaryDirectory() as folder:
        tape = Path(folder, "trains.json")
        real = ScriptedProvider(SCRIPT)
        with cassette(tape, real) as model:
            print(f"Recorded: {ask(model, question)}")
        print(f"  {len(real.requests)} calls of the model, {tape.name} written")

        with cassette(tape) as model:  # no provider: no model is called
            print(f"Replayed: {ask(model, question)}")
        print(f"  {len(real.requests)} calls of the model, as before")

        try:
            with cassette(tape) as model:
                ask(model, "And after that?")
        except CassetteMiss as missed:
            print("Missed:")
            print(
                *[
                    line
                    for line in str(missed).splitlines()
                    if line.startswith(("-", "+"))
                ],
                sep="\n",
            )
            print("  the block ends with an error that shows what is different")


if __name__ == "__main__":
    main()
