"""The model class that is asked for is the type of the output, and a run has one only if it completed."""

from typing import Any, assert_type

from pydantic import BaseModel

from loopwright import (
    Delta,
    Entry,
    LoopEngine,
    ReActEngine,
    Result,
    Run,
    RunHandle,
    Runtime,
)


class Forecast(BaseModel):
    city: str


class Child(LoopEngine):
    name = "child"

    async def solve(self, run: Run) -> str:
        return (await run.delegate(ReActEngine(self.runtime), run.task)).answer or ""


async def use(engine: ReActEngine, runtime: Runtime) -> Result:
    result = await engine.run("x", output=Forecast)
    assert_type(result, Result[Forecast | None])
    assert_type(result.raise_for_status().output, Forecast)
    assert_type(
        engine.run_sync("x", output=Forecast).raise_for_status().output, Forecast
    )
    assert_type((await engine.resume("x", output=Forecast)).output, Forecast | None)
    assert_type(
        runtime.resume_sync("x", output=Forecast).raise_for_status().output, Forecast
    )
    async with engine.start("x", output=Forecast, deltas=True) as run:
        async for item in run:
            assert_type(item, Entry | Delta)
        assert_type((await run.result()).output, Forecast | None)
    handle: RunHandle[Entry] = engine.start("x")
    async with handle as watched:
        assert_type([entry async for entry in watched], list[Entry])
    print(result.output.city)  # error
    loose: list[Result] = [await engine.run("x"), result]
    any_output: Any = (await runtime.engine("react").run("x")).output
    print(any_output)
    return loose[0]
