"""What the page reads: runs, entries, questions, threads, costs, settings and schedules, and what is streamed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from .digest import RunDigest
from .launcher import Launcher
from .requests import read_after, read_filter, read_number, read_run
from .responses import send_events, send_json
from .schedules import ConsoleSchedules
from .service import ConsoleService
from .settings import ConsoleSettings
from .streams import Streams
from .thread_approvals import ConsoleApprovals
from .threads import call_in_thread, scan_in_thread
from .users import ConsoleUser
from .web import Request, Response

Handler: TypeAlias = Callable[[Request, ConsoleUser], Awaitable[Response]]
KEEP_ALIVE = 15.0
"""Seconds after which a stream without news says that it lives."""


class Reads:
    """Answers what the page reads; each answer has what the user may see."""

    def __init__(
        self,
        service: ConsoleService,
        launcher: Launcher,
        settings: ConsoleSettings,
        schedules: ConsoleSchedules,
        approvals: ConsoleApprovals,
    ) -> None:
        self._service, self._launcher, self._approvals = service, launcher, approvals
        self._settings, self._schedules = settings, schedules
        self._streams = Streams(service)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Return what answers, by the last part of the path."""
        return {
            "session": self._show_session,
            "runs": self._list_runs,
            "run": self._show_run,
            "entries": self._list_entries,
            "entry": self._show_entry,
            "tools": self._list_tools,
            "search": self._search,
            "questions": self._list_questions,
            "attention": self._answer_with(self._service.list_attention),
            "threads": self._list_threads,
            "approvals": self._list_approvals,
            "thread": self._show_thread,
            "costs": self._sum_costs,
            "verify": self._verify,
            "settings": self._list_settings,
            "schedules": self._list_schedules,
            "events": self._stream_run,
            "news": self._stream_news,
            "words": self._stream_words,
        }

    def _answer_with(self, work: Callable[[ConsoleUser], Any]) -> Handler:
        """Return a handler that answers what a function of the user says, asked in a thread."""

        async def answer(request: Request, user: ConsoleUser) -> Response:
            return send_json(await self._read(work, user))

        return answer

    async def _find_run(self, request: Request, user: ConsoleUser) -> str:
        """Return the run that is asked for; raise `UnknownRun` for one that the user may not see."""
        run_id = read_run(request)
        await self._read(self._service.check_run, run_id, user)
        return run_id

    async def _show_session(self, request: Request, user: ConsoleUser) -> Response:
        missing = {
            "settings": self._settings.find_problem(user),
            "schedules": self._schedules.find_problem(),
            "start": self._launcher.find_problem(user),
        }
        session = await self._read(self._service.describe_session, user)
        choices = self._launcher.list_choices()
        return send_json({**session, "missing": missing, **choices})

    async def _list_runs(self, request: Request, user: ConsoleUser) -> Response:
        where, limit = read_filter(request, user), read_number(request, "limit", 50)
        before = request.query_params.get("before") or None
        found = await self._read(
            self._service.list_runs, where, limit, before, user.tenant
        )
        return send_json(found)

    async def _show_run(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        return send_json(await self._read(self._service.show_run, run_id, user))

    async def _list_entries(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        after = read_number(request, "after", 0)
        limit = read_number(request, "limit", 100)
        rows = await self._read(
            self._service.list_rows, run_id, after, limit, user.name
        )
        return send_json({"rows": rows})

    async def _show_entry(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        seq = read_number(request, "seq", 1, largest=None)
        return send_json(await self._service.show_entry(run_id, seq, user.name))

    async def _list_tools(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        return send_json({"tools": await self._service.list_tools(run_id, user.name)})

    async def _search(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        text = request.query_params.get("text", "")
        kinds = frozenset(request.query_params.getlist("kind"))
        found = await scan_in_thread(
            self._service.search, run_id, text, kinds, user.name
        )
        return send_json({"seqs": found})

    async def _list_questions(self, request: Request, user: ConsoleUser) -> Response:
        found = await self._read(self._service.list_questions, user)
        return send_json({"questions": found})

    async def _list_threads(self, request: Request, user: ConsoleUser) -> Response:
        found = await self._read(self._service.list_threads, user)
        return send_json({"threads": found})

    async def _list_approvals(self, request: Request, user: ConsoleUser) -> Response:
        name = request.query_params.get("thread", "")
        return send_json({"approvals": await self._approvals.show(name, user)})

    async def _show_thread(self, request: Request, user: ConsoleUser) -> Response:
        name = request.query_params.get("thread", "")
        return send_json(await self._read(self._service.show_thread, name, user))

    async def _verify(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        return send_json(await scan_in_thread(self._service.verify, run_id))

    async def _sum_costs(self, request: Request, user: ConsoleUser) -> Response:
        return send_json(await scan_in_thread(self._service.sum_costs, user))

    async def _list_settings(self, request: Request, user: ConsoleUser) -> Response:
        return send_json(await self._settings.list(user))

    async def _list_schedules(self, request: Request, user: ConsoleUser) -> Response:
        return send_json(await self._schedules.list(user))

    async def _read(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Read the journal in a thread."""
        return await call_in_thread(work, *arguments)

    # --- live ---

    async def _stream_run(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        after = read_after(request)
        await self._read(self._service.records.read, run_id, 0, 1)  # 404 at once
        events = self._streams.follow_run(run_id, after, user.name, KEEP_ALIVE)
        return send_events(events)

    async def _stream_news(self, request: Request, user: ConsoleUser) -> Response:
        return send_events(self._streams.follow_all(user, KEEP_ALIVE))

    async def _stream_words(self, request: Request, user: ConsoleUser) -> Response:
        run_id = await self._find_run(request, user)
        info = await self._read(self._service.records.find, run_id)  # 404 at once

        def hides(digest: RunDigest) -> bool:
            return self._service.hides(digest, digest.seq, run_id, user.name)

        words = self._launcher.follow_words(run_id, info.head_seq, KEEP_ALIVE, hides)
        return send_events(words)
