"""What a person begins from the page: a message to a thread, or a task for an engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from .._internal import dataclasses
from .._kernel.control.run_watch import RunWatch
from .._kernel.durability.history import load_messages, make_plain, open_conversation
from ..agents import Agent
from ..attachments import Attachment
from ..engine import LoopEngine, ProviderName
from ..errors import ConfigError, LoopwrightError
from ..events.effects import ModelReplied
from ..events.entry import Entry
from ..events.run import RunFinished, RunStarted, RunSuspended
from ..events.run_settings import RunSettings
from ..journals.capabilities import list_page
from ..journals.listing import MAX_TAG_VALUE, RunFilter
from ..messages import Message
from ..plugins import available_engines, load_engine_class
from ..principals import Principal
from ..providers.base import Provider
from ..runtime import Runtime
from ..settings.configured_engine import read_settings
from .actions import NO_RUNTIME
from .digest import RunDigest
from .streams import Item
from .threads import call_in_thread
from .users import ConsoleUser

IMAGE, DOCUMENT = "image/", "application/pdf"
STARTER_TAG = "started-by"
"""The tag of a run with the name of the person who started it from the page."""


LOOK, MAX_LOOKS = 0.01, 1000
"""Seconds between two looks for a run that was begun, and after how many it is named though the journal has it not."""
OWN_MODEL = "model"
"""The option of every engine that names its own model, in the place of the runtime's."""
ORIGIN_TAG = "begun-again-from"
"""The tag of a run that works anew on what another one began with, with the id of that one."""


class Launcher:
    """Begins runs and turns with the runtime of a console; they continue when the page is closed."""

    def __init__(self, runtime: Runtime | None) -> None:
        self._given = runtime

    @property
    def _runtime(self) -> Runtime:
        if self._given is None:
            raise ConfigError(NO_RUNTIME)
        return self._given

    def find_problem(self, user: ConsoleUser) -> str:
        """Return why a user cannot begin anything; empty if they can."""
        problem = user.find_problem("operate")
        return problem or ("" if self._given is not None else NO_RUNTIME)

    def list_choices(self) -> dict[str, Any]:
        """Return the names of what can be begun, and of the models that an engine may use for parts of its work."""
        if self._given is None:
            return {"agents": (), "engines": (), "models": (), "parts": {}}
        engines, known = sorted(available_engines()), self._given.providers
        models = {name: _describe_model(known[name]) for name in known}
        return {
            "agents": sorted(self._given.agents),
            "engines": engines,
            "models": list(models),
            "served": {"": _describe_model(self._given.provider), **models},
            "parts": {name: _list_parts(name) for name in engines} if models else {},
        }

    def _find_agent(self, name: object) -> Agent[Any]:
        found = self._runtime.agents.get(str(name))
        if found is None:
            known = ", ".join(self._runtime.agents) or "none"
            raise ConfigError(f"agent: must be one of {known}, got {name!r:.80}")
        return found

    async def start(self, body: Mapping[str, Any], user: ConsoleUser) -> str:
        """Begin a run of an agent or an engine; return its id."""
        runtime, task = self._runtime, _read_text(body)
        agent, engine = body.get("agent"), str(body.get("engine"))
        models = _read_models("" if agent else engine, body)
        begun: Agent[Any] | LoopEngine = (
            _replace_model(self._find_agent(agent), models)
            if agent
            else runtime.engine(engine, **models)
        )
        settings = await call_in_thread(read_settings, runtime) if models else None
        _check_settings(begun, settings, models)
        handle = begun.start(
            task, deltas=True, on_disconnect="continue", **_name_starter(user)
        )  # the page may show its words
        async with handle as run:
            return await self._wait_until_stored(run.run_id)

    async def begin_again(
        self, engine: str, first: Entry, text: str, user: ConsoleUser
    ) -> str:
        """Have an engine work anew on the conversation with which a run began; return the new run's id.

        It is as sensitive, and as untrusted, as that run was then.
        """
        started = first.event
        if not isinstance(started, RunStarted) or started.label == "secret":
            raise ConfigError(
                "engine: the conversation that the run began with is secret or missing"
            )
        given = open_conversation(self._runtime.journal, started)
        await load_messages(given)
        added = (Message("user", text),) if text else ()
        messages = (*given.messages, *added)
        task = make_plain(messages, given.label, given.untrusted)
        options = _name_starter(user)
        tags = {**options.pop("tags", {}), ORIGIN_TAG: first.run_id[:MAX_TAG_VALUE]}
        handle = self._runtime.engine(engine).start(
            task, deltas=True, on_disconnect="continue", tags=tags, **options
        )
        async with handle as run:
            return await self._wait_until_stored(run.run_id)

    async def send(self, body: Mapping[str, Any], user: ConsoleUser) -> str:
        """Send a message to a thread, which steers a turn at work; return the turn's run."""
        thread_id = body.get("thread")
        if not isinstance(thread_id, str) or not thread_id:
            raise ConfigError(f"thread: name the conversation, got {thread_id!r:.80}")
        agent = self._find_agent(body.get("agent") or "")
        text, attachments = _read_text(body), _read_attachments(body)
        turn = agent.thread(thread_id).start(
            text, deltas=True, busy="steer", on_disconnect="continue", attachments=attachments,
            timeout=0, **_name_starter(user),
        )  # fmt: skip
        async with turn as begun:
            return await self._wait_until_stored(begun.run_id)

    async def _wait_until_stored(self, run_id: str) -> str:
        """Return the id of a run once the journal has it: the page asks for it at once."""
        for _ in range(MAX_LOOKS):
            if await call_in_thread(self._is_stored, run_id):
                break
            await asyncio.sleep(LOOK)
        return run_id

    def _is_stored(self, run_id: str) -> bool:
        found = list_page(self._runtime.journal, RunFilter(text=run_id))
        return any(info.run_id == run_id for info in found)

    async def follow_words(
        self,
        run_id: str,
        known: int,
        keep_alive: float,
        hides: Callable[[RunDigest], bool],
    ) -> AsyncIterator[Item]:
        """Send the words of the replies of a run of this process as they come.

        Args:
            run_id: the run.
            known: how many of its entries are there already.
            keep_alive: seconds after which a stream without news says that it lives.
            hides: whether what follows the entries that a digest has read is hidden.
        """
        digest = RunDigest()
        watch = self._runtime.attach(run_id, deltas=True)
        async with watch:
            while (item := await _wait(watch, keep_alive)) is not None:
                if isinstance(item, Entry):
                    digest.read([item])
                    for news in _tell(item) if item.seq > known else ():
                        yield news
                elif item == "":
                    yield None, "", None
                elif not hides(digest):
                    words = {"key": item.key, "attempt": item.attempt, "text": item.text}  # fmt: skip
                    yield None, "words", words
        yield None, "gone", {"run": run_id}


def _tell(entry: Entry) -> Iterator[Item]:
    """Yield what an entry says of the words before it: they are a whole reply, or the run stands."""
    if isinstance(entry.event, ModelReplied):
        yield None, "replied", {"key": entry.key}
    if isinstance(entry.event, (RunFinished, RunSuspended)):
        yield None, "stood", {"run": entry.run_id, "seq": entry.seq}


async def _wait(watch: RunWatch[Any], seconds: float) -> Any:
    """Return the next item, an empty text if there is none in time, and `None` at the end."""
    try:
        return await asyncio.wait_for(anext(watch), seconds)
    except TimeoutError:
        return ""
    except StopAsyncIteration:
        return None


def _describe_model(provider: Provider) -> str:
    return f"{provider.name}/{provider.model}"


def _replace_model(agent: Agent[Any], models: Mapping[str, str]) -> Agent[Any]:
    """Return an agent whose engine has another model as its own; the run records that, so that a resume keeps it."""
    if not models:
        return agent
    engine = dataclasses.replace(agent.engine, **cast("dict[str, Any]", models))
    return dataclasses.replace(agent, engine=engine)


def _check_settings(
    begun: Agent[Any] | LoopEngine,
    settings: RunSettings | None,
    models: Mapping[str, str],
) -> None:
    """Raise `ConfigError` for a model in place of which the run would use one of the settings."""
    values: Mapping[str, object] = {} if settings is None else settings.values
    owners = [f"engine.{begun.name}"]
    if isinstance(
        begun, Agent
    ):  # its settings take precedence over those of its engine
        owners = [f"engine.{begun.engine.name}", f"agent.{begun.name}"]
    for part, name in models.items():
        chosen = [full for owner in owners if (full := f"{owner}.{part}") in values]
        if chosen and values[chosen[-1]] != name:
            raise ConfigError(
                f"models: {part} would be {values[chosen[-1]]!r} by the setting {chosen[-1]}, got {name!r}; "
                "change that, or choose no model"
            )


def _list_parts(engine: str) -> list[str]:
    """Return the options of an engine that name models: for parts of its work, such as its plan."""
    try:
        found = load_engine_class(engine)
    except LoopwrightError:  # a plug-in that cannot be loaded; starting it says why
        return []
    kinds = (ProviderName, "ProviderName")
    return [
        field.name
        for field in dataclasses.fields(found)
        if field.type in kinds and field.name != OWN_MODEL
    ]


def _read_models(engine: str, body: Mapping[str, Any]) -> dict[str, str]:
    """Return which model an engine uses as its own, and for which part of its work; of an agent only the first is chosen."""
    given: object = body.get("models") or {}
    if not isinstance(given, dict):
        raise ConfigError(f"models: must be an object, got {given!r:.80}")
    named = cast("dict[str, Any]", given)
    models = {part: name for part, name in named.items() if name}
    known = [*(_list_parts(engine) if models and engine else ()), OWN_MODEL]
    for part, name in models.items():
        if part not in known or not isinstance(name, str):
            raise ConfigError(
                f"models: {engine or 'an agent'} uses models for {', '.join(known)}, got {part!r:.40}: {name!r:.40}"
            )
    return models


def _name_starter(user: ConsoleUser) -> dict[str, Any]:
    """Return who starts a run: a principal, for gates; a plain name is recorded only."""
    if isinstance(user.sender, Principal):
        return {"principal": user.sender}
    return {"tags": {STARTER_TAG: user.sender[:MAX_TAG_VALUE]}}


def _read_text(body: Mapping[str, Any]) -> str:
    text = body.get("text")
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"text: must say something, got {text!r:.80}")
    return text


def _read_attachments(body: Mapping[str, Any]) -> tuple[Attachment, ...]:
    given: object = body.get("attachments") or []
    if not isinstance(given, list):
        raise ConfigError(f"attachments: must be a list, got {given!r:.80}")
    return tuple(map(_read_attachment, cast("Sequence[object]", given)))


def _read_attachment(value: Any) -> Attachment:
    known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    media_type, data = str(known.get("type", "")), str(known.get("data", ""))
    name = str(known.get("name", ""))[:200]
    if media_type.startswith(IMAGE):
        return Attachment("image", media_type, data=data, name=name)
    if media_type == DOCUMENT:
        return Attachment("document", media_type, data=data, name=name)
    raise ConfigError(
        f"attachments: {name!r} must be an image or a PDF, got {media_type!r:.80}"
    )
