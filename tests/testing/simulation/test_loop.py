"""The simulated loop: virtual time, an order that the seed decides, threads as steps, and processes that die."""

import asyncio
import contextvars
import gc
import random
import sys
import time

import pytest

from loopwright.testing.simulation.host import HostClock, SimulatedHost
from loopwright.testing.simulation.loop import HOST, SimulatedLoop, make_loop


def simulated(seed: int = 1, width: int = 8) -> SimulatedLoop:
    return make_loop(random.Random(seed), width)


async def _note_order(number: int, notes: list[int]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)
        notes.append(number)


def orders(seed: int, width: int = 8) -> list[int]:
    notes: list[int] = []

    async def race() -> None:
        await asyncio.gather(*(_note_order(number, notes) for number in range(5)))

    simulated(seed, width).run_until_complete(race())
    return notes


def test_an_hour_of_sleep_costs_no_time() -> None:
    loop, began = simulated(), time.monotonic()

    loop.run_until_complete(asyncio.sleep(3600))

    assert loop.time() == 3600
    assert time.monotonic() - began < 1


def test_the_seed_decides_the_order_of_ready_tasks() -> None:
    assert orders(1) == orders(1)
    assert len({tuple(orders(seed)) for seed in range(20)}) > 10


def test_a_width_of_one_is_the_order_of_asyncio() -> None:
    notes: list[int] = []

    async def race() -> None:
        await asyncio.gather(*(_note_order(number, notes) for number in range(5)))

    asyncio.run(race())

    assert orders(7, width=1) == notes


def test_plain_callbacks_keep_the_order_in_which_they_were_registered() -> None:
    notes: list[int] = []

    async def register() -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_soon(notes.append, number)
        await asyncio.sleep(1)

    simulated().run_until_complete(register())

    assert notes == list(range(20))


def test_a_thread_is_a_step_some_time_later() -> None:
    loop = simulated()

    assert loop.run_until_complete(asyncio.to_thread(lambda: "done")) == "done"
    assert loop.time() > 0


def test_an_error_in_a_thread_reaches_who_waits_for_it() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        simulated().run_until_complete(asyncio.to_thread(fail))


def test_a_timeout_ends_what_hangs() -> None:
    async def hang() -> None:
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().create_future()

    loop = simulated()
    with pytest.raises(TimeoutError):
        loop.run_until_complete(hang())
    assert loop.time() == 5


def test_a_world_in_which_nothing_is_left_to_do_is_an_error() -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing is left to do"):
        simulated().run_until_complete(hang())


def test_a_dead_process_does_nothing_more_not_even_its_clean_up() -> None:
    loop, notes = simulated(), list[str]()
    host = SimulatedHost("one", HostClock(loop))

    async def work() -> None:
        try:
            for number in range(10):
                notes.append(f"step {number}")
                await asyncio.sleep(1)
        finally:
            notes.append("clean-up")

    async def world() -> None:
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        task = loop.create_task(work(), context=context)
        await asyncio.sleep(2.5)
        host.kill(seen=True)
        await asyncio.sleep(100)
        assert not task.done()

    loop.run_until_complete(world())

    assert notes == ["step 0", "step 1", "step 2"]
    loop.close()


def test_clean_up_of_a_dead_process_that_waits_is_closed_without_a_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    loop, notes = simulated(), list[str]()

    async def wait() -> None:
        try:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1000)
            notes.append("waited")

    async def nest() -> None:
        try:
            await wait()
        finally:
            await wait()

    async def world() -> None:
        loop.create_task(nest())
        await asyncio.sleep(1)

    loop.run_until_complete(world())
    loop.close()
    gc.collect()

    assert complaints == []
    assert notes == []


def test_a_frozen_process_continues_where_it_was() -> None:
    loop, times = simulated(), list[float]()
    host = SimulatedHost("one", HostClock(loop))

    async def work() -> None:
        for _ in range(3):
            times.append(loop.time())
            await asyncio.sleep(1)

    async def world() -> None:
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        task = loop.create_task(work(), context=context)
        await asyncio.sleep(0.5)
        host.frozen_until = 40
        await task

    loop.run_until_complete(world())

    assert times == [0, 40, 41]
