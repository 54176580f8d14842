"""The contracts of providers and gates: ours keep them, and each check notices what it is for."""

import asyncio
import contextlib
import copy
import dataclasses
import itertools
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest import SkipTest

import pytest

from loopwright import (
    Action,
    Allow,
    AllowAll,
    Ask,
    Completion,
    DefaultGate,
    Delta,
    Deny,
    DenyAll,
    LoopEngine,
    MemoryJournal,
    Modify,
    PolicyGate,
    PolicyState,
    Provider,
    ProviderError,
    Request,
    Run,
    Runtime,
    Usage,
)
from loopwright.gates import Decision, InstantGate
from loopwright.journals import (
    Claim,
    RunInfo,
    chain_hash,
    ensure_claimable,
    verify_chain,
)
from loopwright.providers import CallDelta, Capabilities, OpenAIProvider
from loopwright.testing import (
    EngineContract,
    GateContract,
    JournalContract,
    ProviderContract,
    RecordingProvider,
    ReplayingProvider,
    ScriptedProvider,
    call,
)

# --- providers that keep it ---


def sensible(request: Request) -> Any:
    """A call if there is leave to, else an answer."""
    if request.schema is not None:
        return json.dumps({"name": "blue"})
    asked = request.conversation.messages[-1]
    if request.tools and request.tool_choice == "auto" and asked.role == "user":
        return Completion(
            "I look.",
            (call("look", what="sky"),),
            finish_reason="tool_calls",
            usage=Usage(10, 5),
        )
    return f"Of {asked.content[:20]}: blue."


class Failing(ScriptedProvider):
    """Is always down."""

    def __init__(self) -> None:
        super().__init__(
            lambda _: ProviderError(
                "it is down", status=503, retryable=False, retry_after=1.0
            )
        )


class TestScriptedProvider(ProviderContract):
    def provider(self) -> Provider:
        return ScriptedProvider(sensible)

    def failing(self) -> Iterable[Provider]:
        yield Failing()


class Plain:
    """A provider without a stream."""

    name, model, capabilities = "plain", "plain-1", Capabilities(native_tools=False)

    async def complete(self, request: Request) -> Completion:
        """Answer."""
        await asyncio.sleep(0)
        return Completion("blue", answer="blue")


class TestAProviderThatCannotStream(ProviderContract):
    def provider(self) -> Provider:
        return Plain()


class TestRecordingProvider(ProviderContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._paths = (tmp_path / f"{number}.json" for number in itertools.count())

    def provider(self) -> Provider:
        return RecordingProvider(ScriptedProvider(sensible), next(self._paths))

    def failing(self) -> Iterable[Provider]:
        yield RecordingProvider(Failing(), next(self._paths))


class Rewinding(ReplayingProvider):
    """A cassette that begins anew with each call: the contract asks more often than was recorded."""

    async def complete(self, request: Request) -> Completion:
        """Replay the first reply."""
        self._given.clear()
        return await super().complete(request)


class TestReplayingProvider(ProviderContract):
    @pytest.fixture(autouse=True)
    def _recorded(self, tmp_path: Path) -> None:
        self._fine, self._bad = tmp_path / "fine.json", tmp_path / "bad.json"

        async def record() -> None:
            fine = RecordingProvider(ScriptedProvider(sensible), self._fine)
            bad = RecordingProvider(Failing(), self._bad)
            for request in TestScriptedProvider().requests():
                await fine.complete(request)
                with pytest.raises(ProviderError):
                    await bad.complete(request)

        asyncio.run(record())

    def provider(self) -> Provider:
        return Rewinding(self._fine)

    def failing(self) -> Iterable[Provider]:
        yield Rewinding(self._bad)


class ChatCompletions(BaseHTTPRequestHandler):
    """An endpoint that answers as `sensible` does, whole or in pieces."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.startswith("/down"):
            return self._send(503, "text/plain", b"down")
        if self.path.startswith("/rubbish"):
            return self._send(200, "application/json", b'{"choices": 7}')
        last = asked["messages"][-1]
        if (
            asked.get("tools")
            and asked.get("tool_choice", "auto") == "auto"
            and last["role"] == "user"
        ):
            function = {"name": "look", "arguments": '{"what": "sky"}'}
            calls = [
                {"id": "call_1", "index": 0, "type": "function", "function": function}
            ]
            message, reason = (
                {"role": "assistant", "content": "I look.", "tool_calls": calls},
                "tool_calls",
            )
        else:
            text = (
                '{"name": "blue"}'
                if asked.get("response_format")
                else f"Of {str(last['content'])[:20]}: blue."
            )
            message, reason = {"role": "assistant", "content": text}, "stop"
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        whole = {"model": "m-1", "usage": usage}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self._send(
                200,
                "application/json",
                json.dumps({**whole, "choices": [choice]}).encode(),
            )
        pieces = [
            {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**whole, "choices": []},
        ]
        lines = [
            f"data: {json.dumps({'model': 'm-1', **piece})}\n\n" for piece in pieces
        ]
        return self._send(
            200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode()
        )

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the report clean."""


class Server(ThreadingHTTPServer):
    """Lets many knock at once."""

    request_queue_size = 128


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Server(("127.0.0.1", 0), ChatCompletions) as listening:
        threading.Thread(
            target=listening.serve_forever, args=(0.01,), daemon=True
        ).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


class TestOpenAIProvider(ProviderContract):
    @pytest.fixture(autouse=True)
    def _address(self, server: str) -> None:
        self._server = server

    def provider(self) -> Provider:
        return OpenAIProvider("m-1", base_url=f"{self._server}/v1", api_key="k")

    def failing(self) -> Iterable[Provider]:
        for place in ("down", "rubbish"):
            yield OpenAIProvider("m-1", base_url=f"{self._server}/{place}", api_key="k")


# --- providers that do not ---


REPLIES: dict[str, Callable[[str], Any]] = {
    "says two things": lambda answer: Completion(
        answer, (call("look", what="x"),), answer
    ),
    "says nothing": lambda answer: Completion(answer),
    "gives a text": lambda answer: answer,
    "calls what it was not offered": lambda answer: Completion(answer, (call("wipe"),)),
    "counts none as 0": lambda answer: Completion(
        answer, answer=answer, usage=Usage(0, 5)
    ),
    "counts a part twice": lambda answer: Completion(
        answer, answer=answer, usage=Usage(5, 5, cached_tokens=9)
    ),
    "cannot be written": lambda answer: Completion(answer, answer=answer, flags=({1},)),  # type: ignore[arg-type]
}


class Wrong(ScriptedProvider):
    """One thing is wrong with it."""

    def __init__(self, fault: str) -> None:
        super().__init__(sensible, model="" if fault == "no model" else "script")
        self.fault, self.busy = fault, 0

    async def complete(self, request: Request) -> Completion:
        said = await super().complete(request)
        if self.fault in REPLIES:
            return REPLIES[self.fault](said.answer or "blue")
        behave = getattr(self, f"_{self.fault.replace(' ', '_')}", None)
        return said if behave is None else await behave(request, said)

    async def _changes_the_schema(
        self, request: Request, said: Completion
    ) -> Completion:
        for spec in request.tools:
            spec.schema.pop("required", None)  # type: ignore[attr-defined]
        return said

    async def _renames_itself(self, _: Request, said: Completion) -> Completion:
        self.model = "model-2"
        return said

    async def _remembers(self, _: Request, said: Completion) -> Completion:
        return Completion(f"{len(self.requests)}", answer=f"{len(self.requests)}")

    async def _mixes(self, _: Request, said: Completion) -> Completion:
        self.busy += 1
        await asyncio.sleep(0)
        others = self.busy > 1
        self.busy -= 1
        return Completion("another's", answer="another's") if others else said

    async def _breaks_when_cancelled(self, _: Request, said: Completion) -> Completion:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise RuntimeError("what now?") from None
        return said

    async def _swallows_cancellation(self, _: Request, said: Completion) -> Completion:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return said

    async def _goes_on_for_ever(self, _: Request, said: Completion) -> Completion:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)
        return said

    async def _needs_one_loop(self, _: Request, said: Completion) -> Completion:
        self.first = getattr(self, "first", asyncio.get_running_loop())
        if self.first is not asyncio.get_running_loop():
            raise RuntimeError("another loop")
        return said

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        whole = Completion("blue", answer="blue")
        if self.fault == "streams without an end":
            yield Delta(text="blue")
        elif self.fault == "streams another text":
            yield Delta(text="red")
            yield Delta(completion=whole)
        elif self.fault == "streams the end twice":
            yield Delta(completion=whole)
            yield Delta(completion=whole)
        elif self.fault == "streams another call":
            yield Delta(call=CallDelta(0, "c", "look", '{"what": "sea"}'))
            yield Delta(completion=Completion(calls=(call("look", what="sky"),)))
        else:
            async for delta in super().stream(request):
                yield delta


class WrongStream(Wrong):
    """One thing is wrong with how it streams."""

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        whole = await self.complete(request)
        if self.fault == "swallows cancellation of a stream":
            await self._swallows_cancellation(request, whole)
        if self.fault == "mixes streams":
            self.said = ""
            for word in whole.text.split():
                self.said += word
                await asyncio.sleep(0)
            whole = dataclasses.replace(whole, text=self.said)
        yield Delta(completion=whole)


STREAM_FAULTS = ("mixes streams", "swallows cancellation of a stream")
WRONG = [
    ("no model", "test_it_says_who_it_is_and_what_it_can_do", "name and model"),
    ("renames itself", "test_it_says_who_it_is_and_what_it_can_do", "after use"),
    (
        "says two things",
        "test_it_answers_every_kind_of_request",
        "one of calls, answer and problem",
    ),
    (
        "says nothing",
        "test_it_answers_every_kind_of_request",
        "one of calls, answer and problem",
    ),
    ("gives a text", "test_it_answers_every_kind_of_request", "of type str"),
    (
        "calls what it was not offered",
        "test_it_answers_every_kind_of_request",
        "not offered",
    ),
    (
        "changes the schema",
        "test_it_changes_nothing_of_a_request",
        "the request after the call",
    ),
    (
        "counts none as 0",
        "test_usage_says_what_is_known_and_none_of_what_is_not",
        "input_tokens is 0",
    ),
    (
        "counts a part twice",
        "test_usage_says_what_is_known_and_none_of_what_is_not",
        "cached_tokens is part",
    ),
    ("cannot be written", "test_a_reply_survives_the_journal", "as the journal has it"),
    (
        "streams without an end",
        "test_a_stream_says_what_a_whole_reply_says",
        "the completion comes once",
    ),
    (
        "streams the end twice",
        "test_a_stream_says_what_a_whole_reply_says",
        "the completion comes once",
    ),
    (
        "streams another text",
        "test_a_stream_says_what_a_whole_reply_says",
        "streamed was 'red'",
    ),
    (
        "streams another call",
        "test_a_stream_says_what_a_whole_reply_says",
        "the calls in chunks",
    ),
    ("remembers", "test_calls_at_the_same_time_do_not_mix", "replies at the same time"),
    ("mixes", "test_calls_at_the_same_time_do_not_mix", "replies at the same time"),
    (
        "mixes streams",
        "test_streams_at_the_same_time_do_not_mix",
        "streams at the same time",
    ),
    (
        "streams the end twice",
        "test_streams_at_the_same_time_do_not_mix",
        "the completion comes once",
    ),
    (
        "breaks when cancelled",
        "test_a_cancelled_call_ends_and_the_next_one_works",
        "cancelled, it raised",
    ),
    (
        "swallows cancellation",
        "test_a_cancelled_call_ends_and_the_next_one_works",
        "it continued and gave a reply",
    ),
    (
        "swallows cancellation of a stream",
        "test_a_cancelled_call_ends_and_the_next_one_works",
        "it continued and gave a reply",
    ),
    (
        "goes on for ever",
        "test_a_cancelled_call_ends_and_the_next_one_works",
        r"it was at work 0\.05 seconds later",
    ),
]


@pytest.mark.parametrize(
    ("fault", "check", "words"), WRONG, ids=[fault for fault, *_ in WRONG]
)
def test_the_contract_notices_a_provider_that_breaks_it(
    fault: str, check: str, words: str
) -> None:
    class Contract(ProviderContract):
        patience = 0.05

        def provider(self) -> Provider:
            return (WrongStream if fault in STREAM_FAULTS else Wrong)(fault)

        def requests(self) -> list[Request]:
            return fresh(super().requests())

    with pytest.raises(AssertionError, match=words):
        getattr(Contract(), check)()


def fresh(requests: list[Request]) -> list[Request]:
    """The requests, each with tools of its own, so that one that is spoilt spoils no other test."""
    return copy.deepcopy(requests)


def test_the_contract_notices_a_provider_for_one_event_loop_only() -> None:
    class Contract(ProviderContract):
        def provider(self) -> Provider:
            return Wrong("needs one loop")

    with pytest.raises(RuntimeError, match="another loop"):
        Contract().test_one_provider_serves_several_event_loops()


class Raising(ScriptedProvider):
    """Fails in a way of its own."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(lambda _: error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("a bug"), "ProviderError expected, got ValueError"),
        (ProviderError(""), "says nothing"),
        (ProviderError("x", retryable="no"), "retryable: 'no'"),  # type: ignore[arg-type]
        (ProviderError("x", status=7), "status: 7"),
        (ProviderError("x", retry_after=-1.0), "retry_after: -1.0"),
    ],
)
def test_the_contract_notices_a_provider_that_fails_in_a_way_of_its_own(
    error: BaseException, words: str
) -> None:
    class Contract(TestScriptedProvider):
        def failing(self) -> Iterable[Provider]:
            yield Raising(error)

    with pytest.raises(AssertionError, match=words):
        Contract().test_it_raises_provider_errors_and_nothing_else()


def test_what_a_provider_cannot_be_asked_is_skipped_and_not_passed() -> None:
    with pytest.raises(SkipTest, match="plain does not stream"):
        TestAProviderThatCannotStream().test_a_stream_says_what_a_whole_reply_says()
    with pytest.raises(SkipTest, match="failing"):
        TestAProviderThatCannotStream().test_it_raises_provider_errors_and_nothing_else()
    with pytest.raises(SkipTest, match="plain does not stream"):
        TestAProviderThatCannotStream().test_streams_at_the_same_time_do_not_mix()


# --- gates ---


class Careful(InstantGate):
    """A gate with all four verdicts."""

    version = "careful-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Deny what is destructive, ask about other tools, lower-case what is put."""
        if action.effect == "destructive":
            return Deny("not here")
        if action.tool not in ("look", "put"):
            return Ask("really?")
        what = str(action.arguments.get("what", ""))
        if action.tool == "put" and what != what.upper():
            return Modify({"what": what.upper()}, "in capitals")
        return Allow()


class TestDefaultGate(GateContract):
    def gate(self) -> PolicyGate:
        return DefaultGate()


class TestAllowAll(GateContract):
    def gate(self) -> PolicyGate:
        return AllowAll()


class TestDenyAll(GateContract):
    def gate(self) -> PolicyGate:
        return DenyAll()

    def broken(self) -> Iterable[PolicyGate]:
        yield DenyAll()


class TestAGateOfAllVerdicts(GateContract):
    def gate(self) -> PolicyGate:
        return Careful()


class Silent:
    """A gate whose service does not answer."""

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Never decide."""
        raise ConnectionError("nobody there")


class WrongGate:
    """One thing is wrong with it."""

    made: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, fault: str) -> None:
        self.fault, self.number, self.asked = fault, next(self.made), 0
        self.version = f"v{self.number}" if fault == "another version each" else "v"

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        self.asked += 1
        if self.fault in VERDICTS:
            return VERDICTS[self.fault]
        if self.fault == "writes into the arguments":
            action.arguments["seen"] = True  # type: ignore[index]
        elif self.fault == "depends on which it is":
            return Deny(f"gate {self.number}")
        elif self.fault == "changes its version":
            self.version = f"v{self.asked}"
        elif self.fault == "gives nothing to many":
            asked = self.asked
            await asyncio.sleep(0)
            return Allow() if asked == self.asked else None
        return Allow()


VERDICTS: dict[str, Any] = {
    "gives a bool": True,
    "gives no reason": Deny(" "),
    "asks nothing": Ask(""),
}
WRONG_GATES = [
    ("gives a bool", "test_it_decides_about_any_action", "no decision about"),
    (
        "gives no reason",
        "test_it_decides_about_any_action",
        "a reason that says nothing",
    ),
    (
        "asks nothing",
        "test_it_decides_about_any_action",
        "a question that asks nothing",
    ),
    (
        "writes into the arguments",
        "test_it_changes_nothing_that_it_is_shown",
        "changed in place",
    ),
    (
        "depends on which it is",
        "test_it_decides_the_same_again",
        "decisions of two gates",
    ),
    ("another version each", "test_it_decides_the_same_again", "versions of two gates"),
    (
        "another version each",
        "test_it_is_not_asked_again_about_what_is_recorded",
        "it was asked again",
    ),
    ("changes its version", "test_it_decides_the_same_again", "versions after use"),
    (
        "gives nothing to many",
        "test_it_can_be_asked_by_many_at_once",
        "no decision when asked by many",
    ),
    ("allows when broken", "test_it_fails_closed", "which is broken"),
]


@pytest.mark.parametrize(
    ("fault", "check", "words"), WRONG_GATES, ids=[fault for fault, *_ in WRONG_GATES]
)
def test_the_contract_notices_a_gate_that_breaks_it(
    fault: str, check: str, words: str
) -> None:
    class Contract(GateContract):
        def gate(self) -> PolicyGate:
            return WrongGate(fault)

        def broken(self) -> Iterable[PolicyGate]:
            yield Silent()
            yield WrongGate(fault)

    with pytest.raises(AssertionError, match=words):
        getattr(Contract(), check)()


def test_the_contract_notices_a_gate_that_decides_by_what_no_journal_holds() -> None:
    asked = itertools.count()

    class Moody(InstantGate):
        version = "moody"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return Allow() if next(asked) % 3 else Deny("not today")

    class Contract(GateContract):
        def gate(self) -> PolicyGate:
            return Moody()

    with pytest.raises(AssertionError, match="cut after entry"):
        Contract().test_it_is_not_asked_again_about_what_is_recorded()


def test_a_gate_without_a_broken_example_does_not_pass_as_failing_closed() -> None:
    with pytest.raises(SkipTest, match="broken\\(\\) gives no gates"):
        TestAllowAll().test_it_fails_closed()


# --- engines ---


class Endless(LoopEngine):
    """Turns as often as the model wants, by no count of the run."""

    name = "endless"

    async def solve(self, run: Run) -> str:
        conversation = run.conversation
        while True:
            proposal = await run.reason(conversation)
            if proposal.answer is not None:
                return proposal.answer
            conversation = conversation.observe(
                proposal, await run.act(await run.gate(proposal))
            )


def test_the_contract_notices_an_engine_that_minds_no_limit_of_its_turns() -> None:
    class Contract(EngineContract):
        def engine(self, runtime: Runtime) -> LoopEngine:
            return Endless(runtime)

    Contract().test_it_obeys_limits()
    with pytest.raises(
        AssertionError, match="with max_iterations=3 it asked its model 200 times"
    ):
        Contract().test_it_turns_no_more_often_than_it_may()


# --- journals ---


class WrongJournal(MemoryJournal):
    """One thing is wrong with it."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.kept_claims, self.batch_claims = self.batch_claims, cast("Any", self)

    async def barrier(self, claim: Any) -> None:
        if self.fault != "fences nobody":
            await super().barrier(claim)

    def append(self, claim: Any, entries: Any, *, status: str | None = None) -> None:
        if self.fault == "fences nobody" and claim.header is None:
            claim.fence = self._runs[claim.run_id].info.fence
        if self.fault == "loses an entry" and len(entries) > 1:
            entries = entries[:-1]
        if self.fault == "mends the chain":
            entries = [dataclasses.replace(e, hash=chain_hash("", e)) for e in entries]
        super().append(
            claim, entries, status=None if self.fault == "keeps the owner" else status
        )

    def append_end(self, claim: Any, entries: Any, *, status: str, due: Any) -> None:
        if self.fault == "stores what is due at once":
            super().append_end(self.create(due[0].header), [], status=status, due=due)
        if self.fault == "follows a run twice":
            self._runs.pop(due[0].header.run_id, None)
        lost = self.fault == "forgets what is due"
        super().append_end(claim, entries, status=status, due=[] if lost else due)

    def runs(self, *, unfinished: bool = False) -> Any:
        infos = super().runs(unfinished=unfinished and self.fault != "lists the ended")
        return infos[::-1] if self.fault == "oldest first" else infos

    def read(self, run_id: str) -> Any:
        return (
            self._find(run_id).entries
            if self.fault == "shows its own list"
            else super().read(run_id)
        )

    def _begin(self, claim: Any, header: Any) -> None:
        if self.fault == "begins a run twice":
            self._runs.pop(header.run_id, None)
        super()._begin(claim, header)

    def verify(self, run_id: str, head: str | None = None) -> Any:
        if self.fault in ("seq", "run_id"):  # which it does not look at
            kept = self._find(run_id)
            right = [
                {"seq": number, "run_id": run_id}
                for number, _ in enumerate(kept.entries, 1)
            ]
            entries = [
                dataclasses.replace(entry, **{self.fault: fields[self.fault]})
                for entry, fields in zip(kept.entries, right, strict=True)
            ]
            return verify_chain(
                run_id, entries, dataclasses.replace(kept.info, head_seq=len(entries))
            )
        return super().verify(
            run_id, None if self.fault == "forgets the head" else head
        )

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Any:
        if self.fault == "judges by wall clocks":
            self.lease_watch.compute_left = lambda info: (  # type: ignore[method-assign]
                (info.lease_until or math.inf) - time.time()
            )
        if self.fault == "knows one machine":
            self.lease_watch.can_compare_clock = lambda _: True  # type: ignore[method-assign]
        if self.fault == "minds no lease":
            self._find(run_id).info = dataclasses.replace(
                self._find(run_id).info, lease_until=None
            )
        if self.fault != "claims in two steps":
            take_over = take_over or self.fault == "minds no owner"
            return await super().claim(run_id, owner, take_over=take_over, lease=lease)
        info = self._find(run_id).info
        ensure_claimable(info, take_over, self.lease_watch)
        await asyncio.sleep(0)
        self._find(run_id).info = dataclasses.replace(
            info, fence=info.fence + 1, owner=owner
        )
        return Claim(run_id, info.fence + 1, info.head_seq, info.head_hash)

    async def claim_next(
        self, runs: Sequence[RunInfo], owners: Sequence[str], **options: Any
    ) -> list[Claim]:
        if self.fault == "claims what moved":
            known = {info.run_id: info for info in self.runs()}
            runs = [known.get(run.run_id, run) for run in runs]
        if self.fault != "claims the next in two steps":
            return await self.kept_claims.claim_next(runs, owners, **options)
        free = [run.run_id for run in runs][: len(owners)]
        await asyncio.sleep(0)
        pairs = zip(free, owners, strict=True)
        return [await self.claim(*pair, take_over=True, **options) for pair in pairs]

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        record = self._find(run.run_id)
        if self.fault == "returns for anybody":
            record.info = dataclasses.replace(run, fence=record.info.fence + 1)
        await self.kept_claims.return_claim(claim, run)
        if self.fault == "returns with a trace":
            record.info = dataclasses.replace(record.info, owner=None, wake_at=0.0)
        if self.fault == "returns and fences nobody":
            record.info = dataclasses.replace(record.info, fence=claim.fence)

    async def renew(self, claim: Any, lease: float) -> None:
        info = self._find(claim.run_id).info
        if self.fault == "renews for anybody":
            claim.fence = info.fence
        await super().renew(claim, lease)
        if self.fault == "renews the wall clock's end only":
            now = self._find(claim.run_id).info
            self._find(claim.run_id).info = dataclasses.replace(
                info, lease_until=now.lease_until
            )
        if self.fault == "renews in memory only":
            self._find(claim.run_id).info = info
        if self.fault == "renews what was freed" and info.owner is None:
            self._find(claim.run_id).info = dataclasses.replace(info, lease_until=lease)

    def send(self, run_id: str, kind: str, body: Any) -> int:
        if self.fault == "keeps anything":
            self._find(run_id).commands.append((0.0, kind, b"{}"))
            return 1
        number = super().send(run_id, kind, body)
        return 1 if self.fault == "numbers all alike" else number

    def inbox(self, run_id: str, after: int = 0) -> Any:
        if self.fault == "begins anew":
            after = 0
        return super().inbox(run_id, after)[
            :: -1 if self.fault == "newest first" else 1
        ]


WRONG_JOURNALS = [
    (
        "fences nobody",
        "test_a_worker_that_was_taken_over_is_stopped_for_good",
        "nothing was raised",
    ),
    ("loses an entry", "test_entries_come_back_as_they_were_given", "the entries"),
    ("mends the chain", "test_any_text_and_time_come_back", "run '0"),
    (
        "keeps the owner",
        "test_a_status_other_than_running_frees_the_run",
        "status and owner",
    ),
    ("oldest first", "test_runs_are_listed_newest_first", "the list of runs"),
    ("shows its own list", "test_what_is_read_is_a_copy", "the entries"),
    (
        "forgets the head",
        "test_another_head_than_the_caller_kept_is_found",
        "another head is not noticed",
    ),
    (
        "minds no owner",
        "test_a_run_with_a_live_owner_is_busy",
        "RunBusy expected, nothing was raised",
    ),
    (
        "claims in two steps",
        "test_of_several_that_claim_one_run_one_writes_it",
        "different fences",
    ),
    (
        "fences nobody",
        "test_of_several_that_claim_one_run_one_writes_it",
        "Fenced expected, nothing was raised",
    ),
    (
        "begins a run twice",
        "test_of_two_new_runs_with_one_id_the_first_to_write_has_it",
        "ConfigError expected",
    ),
    (
        "seq",
        "test_an_entry_that_does_not_fit_the_chain_is_found",
        "an entry with another seq",
    ),
    (
        "run_id",
        "test_an_entry_that_does_not_fit_the_chain_is_found",
        "an entry with another run_id",
    ),
    (
        "minds no lease",
        "test_a_run_whose_lease_is_over_is_claimed_from_a_live_owner",
        "was not free",
    ),
    (
        "minds no owner",
        "test_a_run_is_busy_until_its_lease_is_over",
        "RunBusy expected, nothing was raised",
    ),
    (
        "renews in memory only",
        "test_a_lease_that_is_renewed_does_not_end",
        "the end of the lease",
    ),
    (
        "judges by wall clocks",
        "test_wall_clocks_decide_nothing_about_a_lease",
        "wall clock set by",
    ),
    (
        "knows one machine",
        "test_a_run_of_another_machine_is_free_once_its_lease_was_not_renewed",
        "was not free",
    ),
    (
        "renews the wall clock's end only",
        "test_a_run_of_another_machine_is_free_once_its_lease_was_not_renewed",
        "RunBusy expected, nothing was raised",
    ),
    (
        "renews for anybody",
        "test_only_the_owner_renews_a_lease",
        "Fenced expected, nothing was raised",
    ),
    (
        "renews what was freed",
        "test_a_run_that_is_freed_has_no_lease",
        "owner and lease: suspended",
    ),
    (
        "keeps the owner",
        "test_a_run_that_is_freed_has_no_lease",
        "owner and lease: suspended",
    ),
    ("lists the ended", "test_unfinished_runs_are_listed_alone", "the unfinished runs"),
    (
        "keeps anything",
        "test_what_is_no_command_is_refused",
        "ConfigError expected, nothing was raised",
    ),
    ("newest first", "test_commands_come_back_as_they_were_sent", "the commands"),
    (
        "begins anew",
        "test_an_inbox_is_read_from_where_its_reader_is",
        "commands after the third",
    ),
    ("numbers all alike", "test_many_send_at_once", "the commands"),
    (
        "claims what moved",
        "test_the_next_runs_are_claimed_and_any_that_is_not_free_is_passed_over",
        "the claims",
    ),
    (
        "claims the next in two steps",
        "test_of_workers_that_claim_the_next_runs_at_once_each_gets_others",
        "the runs",
    ),
    (
        "returns with a trace",
        "test_a_claim_that_is_returned_leaves_no_trace",
        "the run",
    ),
    (
        "returns and fences nobody",
        "test_a_claim_that_is_returned_leaves_no_trace",
        "the fence did not grow",
    ),
    (
        "returns for anybody",
        "test_a_claim_that_another_owner_has_is_not_returned",
        "the runs",
    ),
    (
        "forgets what is due",
        "test_what_is_due_is_stored_released_with_the_end",
        "the runs",
    ),
    (
        "stores what is due at once",
        "test_of_an_end_that_is_fenced_nothing_is_due",
        "the runs",
    ),
    (
        "follows a run twice",
        "test_what_is_due_under_a_taken_id_is_left_out",
        "the entries of what was due first",
    ),
]


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    WRONG_JOURNALS,
    ids=[fault for fault, *_ in WRONG_JOURNALS],
)
def test_the_contract_notices_a_journal_that_breaks_it(
    fault: str, check: str, words: str, tmp_path: Path
) -> None:
    class Contract(JournalContract):
        def journal(self, folder: Path) -> Any:
            journal = WrongJournal()
            journal.fault = fault
            return journal

    with pytest.raises(AssertionError, match=words):
        getattr(Contract(), check)(tmp_path)


@pytest.mark.parametrize("contract", [ProviderContract, GateContract, JournalContract])
def test_a_contract_without_its_part_says_what_to_override(
    contract: Any, tmp_path: Path
) -> None:
    class TestNothing(contract):
        pass

    method = {
        ProviderContract: "provider",
        GateContract: "gate",
        JournalContract: "journal",
    }[contract]
    arguments = [tmp_path] if contract is JournalContract else []
    with pytest.raises(
        NotImplementedError, match=rf"TestNothing: override {method}\(self"
    ):
        getattr(TestNothing(), method)(*arguments)
