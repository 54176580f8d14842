"""Delivery: what a run answered is sent to a webhook, which is busy at first; the caller has the answer before.

The webhook is a small server of this script. It sees one idempotency key, however often it is tried.

No model is needed. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from `loopwright.providers`) in place of
the `ScriptedProvider`, and the address of a webhook, such as one of Discord, in place of the server's.
"""

import asyncio
import json
import logging

import structlog

from loopwright import ReActEngine, Runtime
from loopwright.followups import Deliver, Webhook
from loopwright.testing import FakeClock, ScriptedProvider

# The failure of the first attempt is expected here, and would be logged as a warning.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
keys: list[str] = []


async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be busy the first time, then take what comes."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head if ": " in line)
    body = json.loads(await reader.readexactly(int(fields["content-length"])))
    keys.append(fields["idempotency-key"])
    status = 503 if len(keys) == 1 else 204
    if status == 204:
        print(f"received: {body['answer']}")
    writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: 0\r\n\r\n".encode())
    writer.close()


async def main() -> None:
    """Run, and let it be delivered."""
    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hook = Webhook(
            url=f"http://127.0.0.1:{port}/answers", allow_private=("127.0.0.1",)
        )
        model = ScriptedProvider(["It rains in Bergen."])
        # The clock is a test's, so that the pause between two attempts takes a moment.
        async with Runtime(
            model, after=[Deliver(to=[hook])], clock=FakeClock()
        ) as runtime:
            result = await ReActEngine(runtime).run("Where does it rain?", run_id="r")
            print(f"the caller has: {result.answer}")
            await runtime.drain()
            delivered = await runtime.resume("r@after:deliver")
        print(f"{delivered.answer}, {len(keys)} attempts, {len(set(keys))} key")


asyncio.run(main())
