"""Requests of the page: what their parameters and bodies say, or why they are refused."""

from typing import Any, cast

from pydantic_core import from_json

from ..journals.listing import RunFilter
from .guard import RefusedRequest
from .users import ConsoleUser
from .web import Request

MAX_PAGE = 500
"""The maximum number of runs or entries of one answer."""


def read_run(request: Request) -> str:
    """Return the id of the run that a request is about."""
    run_id = request.query_params.get("run")
    if not run_id:
        raise RefusedRequest(400, "run: name the run's id")
    return run_id


def read_after(request: Request) -> int:
    """Return the number of the last entry that a watcher has seen."""
    given = request.headers.get("last-event-id") or request.query_params.get(
        "after", "0"
    )
    return _parse_number("after", given, None)


def read_number(
    request: Request, name: str, default: int, largest: int | None = MAX_PAGE
) -> int:
    """Return a parameter that is a whole number; a limit is at most that of a page."""
    is_page = name == "limit"
    given = request.query_params.get(name, str(default))
    return _parse_number(name, given, largest if is_page else None)


def _parse_number(name: str, text: str, largest: int | None) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise RefusedRequest(
            400, f"{name}: must be a whole number of at least 0, got {text[:40]!r}"
        )
    number = int(text)
    return number if largest is None else min(number, largest)


def read_filter(request: Request, user: ConsoleUser) -> RunFilter:
    """Return which runs are asked for, of those of the user's tenant."""
    given = request.query_params
    pairs = [pair.partition("=") for pair in given.getlist("tag")]
    tags = {name: value for name, _, value in pairs}
    if user.tenant and tags.get("tenant", user.tenant) != user.tenant:
        raise RefusedRequest(403, f"tag: {user.name} sees the runs of its tenant alone")
    return RunFilter(
        tuple(given.getlist("status")),
        engine=given.get("engine", ""),
        agent=given.get("agent", ""),
        thread=given.get("thread", ""),
        tags=tags,
        text=given.get("text", ""),
        tenant=user.tenant,
    )


def check_json(request: Request) -> None:
    """Refuse a body that does not say it is JSON."""
    content_type = request.headers.get("content-type", "")
    if not content_type.startswith("application/json"):
        raise RefusedRequest(415, "content-type: must be application/json")


async def read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request's body."""
    check_json(request)
    try:
        body = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise RefusedRequest(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RefusedRequest(400, "the body must be a JSON object")
    return cast("dict[str, Any]", body)
