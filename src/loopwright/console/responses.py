"""Responses of the console: JSON, streams of events, the page's files, and refusals without a stack."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from importlib.resources import files
from typing import Any, cast

from pydantic_core import to_json

from ..errors import (
    ConfigError,
    Denied,
    JournalError,
    LoopwrightError,
    RunBusy,
    SettingsError,
    ThreadBusy,
    UnknownRun,
)
from .guard import RefusedRequest
from .web import JSONResponse, Request, Response, StreamingResponse

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
STATUSES: Mapping[type[Exception], int] = {
    UnknownRun: 404,
    Denied: 403,
    RunBusy: 409,
    ConfigError: 409,
    ThreadBusy: 409,
    SettingsError: 409,
    JournalError: 503,
}


def send_json(value: object) -> Response:
    """Answer with JSON, whatever text a model may have written."""
    # Unlike `json`, this accepts every text that a model may write.
    body = to_json(value, inf_nan_mode="strings", fallback=repr)
    return Response(body, media_type="application/json")


def send_events(items: AsyncIterator[Any]) -> Response:
    """Send a stream as server-sent events: a number is the id, a text is a comment."""

    async def write() -> AsyncIterator[bytes]:
        async with contextlib.aclosing(cast("Any", items)) as opened:
            async for seq, kind, value in opened:
                yield _format_event(seq, kind, value)

    return send_stream(write())


async def format_ag_ui(items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Write events of AG-UI, which say their type themselves."""
    async with contextlib.aclosing(cast("Any", items)) as opened:
        async for seq, event in opened:
            if event is None:
                yield b": alive\n\n"
                continue
            number = b"" if seq is None else b"id: %d\n" % seq
            data = event.model_dump_json(by_alias=True, exclude_none=True).encode()
            yield b"%sdata: %s\n\n" % (number, data)


def send_stream(events: AsyncIterator[bytes]) -> Response:
    """Send what is written as it comes."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def _format_event(seq: int | None, kind: str, value: object) -> bytes:
    if not kind:
        return b": alive\n\n"
    data = to_json(value, inf_nan_mode="strings", fallback=repr)
    number = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)


async def send_page(request: Request) -> Response:
    """Answer with the page itself."""
    return _read_file("index.html")


async def send_file(request: Request) -> Response:
    """Answer with one of the page's own files."""
    return _read_file(request.path_params["name"])


def _read_file(name: str) -> Response:
    ending = "." + name.rpartition(".")[2]
    folder = files("loopwright.console") / "static"
    known = {file.name for file in folder.iterdir()}
    if name not in known or ending not in TYPES:
        raise RefusedRequest(404, f"there is no file {name[:100]!r}")
    return Response((folder / name).read_bytes(), media_type=TYPES[ending])


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer an error with its status and its text; never with a stack."""
    if isinstance(error, RefusedRequest):
        status = error.status
    else:
        matching = (code for kind, code in STATUSES.items() if isinstance(error, kind))
        status = next(matching, 500)
    known = isinstance(error, (RefusedRequest, LoopwrightError))
    text = str(error) if known else "the console failed; its log says why"
    return JSONResponse({"error": text, "status": status}, status_code=status)


async def _refuse_path(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    text = {404: "there is nothing here", 405: "this cannot be asked that way"}
    answer = {"error": text.get(status, "refused"), "status": status}
    return JSONResponse(answer, status_code=status)


REFUSALS: Mapping[Any, Any] = {
    RefusedRequest: _refuse,
    LoopwrightError: _refuse,
    404: _refuse_path,
    405: _refuse_path,
    Exception: _refuse,
}
"""How errors are answered, by their class or status."""
