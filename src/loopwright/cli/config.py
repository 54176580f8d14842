"""The services of a runtime, made from the options of the command line; every error names its option."""

import contextlib
import json
import mimetypes
import os
import pkgutil
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from .._internal import dataclasses
from .._kernel.session.services import OnUnknown
from ..attachments import Attachment, detect_media_type
from ..errors import ConfigError
from ..events.describe import format_value
from ..events.payloads import Codec
from ..events.run import RunStarted
from ..gates.base import PolicyGate
from ..journals.base import Journal
from ..limits import Limits
from ..plugins import build_gate, build_journal, build_provider, build_tools, plugins
from ..providers.base import Provider
from ..providers.dialects.text_tools import TextTools
from ..providers.prices import Price
from ..runtime import Runtime
from ..security.aes_codec import AESCodec
from ..tools.base import Tool

JOURNAL, JOURNAL_VARIABLE = "loopwright.db", "LOOPWRIGHT_JOURNAL"
PROVIDER_VARIABLE = "LOOPWRIGHT_PROVIDER"
KEYS_VARIABLE = "LOOPWRIGHT_JOURNAL_KEYS"


@dataclasses.dataclass(frozen=True)
class CommandOptions:
    """The options of `run`, `resume` and `worker` as they were typed; `None` or empty if left out."""

    provider: str | None = None
    tools: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    journal: str | None = None
    gate: str | None = None
    dialect: str | None = None
    price: str | None = None
    limits: Mapping[str, float | None] = dataclasses.field(
        default_factory=dict[str, float | None]
    )
    output: str | None = None
    on_unknown: OnUnknown | None = None
    app_version: str = ""
    config: str | None = None
    agent: str = ""

    def list_services(self) -> list[tuple[str, object]]:
        """Return the options, with their values, in the place of which a file of `--config` stands."""
        limits = [(f"--{name.replace('_', '-')}", value) for name, value in self.limits.items()]  # fmt: skip
        return [
            ("--provider", self.provider),
            ("--tools", self.tools),
            ("--option", self.options),
            ("--gate", self.gate),
            ("--dialect", self.dialect),
            ("--price", self.price),
            ("--on-unknown", self.on_unknown),
            ("--app-version", self.app_version),
            *limits,
        ]

    def repeat(self) -> list[str]:
        """Return the arguments that choose the same for another command about the run."""
        # The journal has the other options of the engine.
        code = [one for one in self.options if one.partition("=")[2].startswith("@")]
        pairs = [
            ("--config", self.config),
            ("--journal", self.journal),
            ("--provider", self.provider),
            ("--gate", self.gate),
            ("--dialect", self.dialect),
            ("--price", self.price),
            ("--output", self.output),
            ("--on-unknown", self.on_unknown),
            ("--app-version", self.app_version or None),
            *(("--tools", spec) for spec in self.tools),
            *(("--option", option) for option in code),
        ]
        arguments: list[str] = []
        for name, value in pairs:
            if value is not None:
                arguments += [name, value]
        return arguments


def resolve_journal(chosen: str | None) -> str:
    """Return the journal: as chosen, else as the environment says, else a file in this directory."""
    return chosen or os.environ.get(JOURNAL_VARIABLE) or JOURNAL


def open_journal(chosen: str | None) -> Journal:
    """Return the journal, which opens no file before it is used."""
    codec = open_codec()
    with _name_option("--journal"):
        return build_journal(resolve_journal(chosen), codec)


def open_codec() -> Codec | None:
    """Return the codec of the key file that the environment names; `None` if it names none."""
    named = os.environ.get(KEYS_VARIABLE)
    if named is None:
        return None
    if not named.strip():
        raise ConfigError(
            f"{KEYS_VARIABLE}: is empty, and nothing would be encrypted; name a key file, or unset the variable"
        )
    with _name_option(KEYS_VARIABLE):
        return AESCodec.from_file(named)


def open_provider(chosen: CommandOptions) -> Provider:
    """Return the model, behind a dialect if one is chosen or if it has no native tool calls."""
    spec = chosen.provider or os.environ.get(PROVIDER_VARIABLE)
    if not spec:
        known = ", ".join(plugins("providers"))
        raise ConfigError(
            f'--provider: name the model, like "openai:gpt-4.1-mini", or set {PROVIDER_VARIABLE}. Installed: {known}'
        )
    with _name_option("--provider"):
        provider = build_provider(spec)
    if chosen.dialect is None and provider.capabilities.native_tools:
        return provider
    with _name_option("--dialect"):
        return TextTools(provider, chosen.dialect or "auto")


def open_tools(specs: Iterable[str]) -> list[Tool | Callable[..., Any]]:
    """Return the tools of toolboxes and of objects: a function, a `Tool`, or a list of those."""
    tools: list[Tool | Callable[..., Any]] = []
    for spec in specs:
        if spec.partition(":")[0] in plugins("toolboxes"):
            with _name_option("--tools"):
                tools += build_tools(spec)
            continue
        found = load_object("--tools", spec)
        tools += (
            cast("list[Any]", found) if isinstance(found, (list, tuple)) else [found]
        )
    return tools


def open_gate(spec: str | None) -> PolicyGate | None:
    """Return the policy gate, if one is chosen."""
    with _name_option("--gate"):
        return None if spec is None else build_gate(spec)


def build_limits(
    given: Mapping[str, float | None], recorded: Mapping[str, object] | None = None
) -> Limits:
    """Return the limits of a run: as given, else as recorded, else the default ones."""
    known = {field.name for field in dataclasses.fields(Limits)}  # pyright: ignore[reportArgumentType] - pydantic's
    kept = {name: value for name, value in (recorded or {}).items() if name in known}
    chosen: dict[str, Any] = {
        **kept,
        **{name: value for name, value in given.items() if value is not None},
    }
    return Limits(**chosen)


def parse_prices(price: str | None, provider: Provider) -> dict[str, Price]:
    """Return the price per million tokens: "0.4,1.6" is 0.4 for input and 1.6 for output."""
    if price is None:
        return {}
    try:
        sent, received = map(float, price.split(","))
    except ValueError:
        raise ConfigError(
            f'--price: must be the price of a million input and output tokens, like "0.4,1.6", got {price!r}'
        ) from None
    with _name_option("--price"):
        return {provider.model: Price(sent, received)}


def parse_engine_options(runtime: Runtime, texts: Iterable[str]) -> dict[str, Any]:
    """Return the engine's options from `name=value`; a value is JSON, `@package.module:object`, or else a text."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(
                f"--option: write name=value, like beam_width=3, got {text!r}"
            )
        about = f"--option {name}"
        try:
            options[name] = build_option(runtime, _option_value(about, value), about)
        except RecursionError:
            raise ConfigError(f"{about}: this is nested too deeply") from None
    return options


def build_option(runtime: Runtime, value: Any, about: str) -> Any:
    """Return an option as the engine takes it: {"engine": name, "options": {...}} becomes an engine.

    Raises `ConfigError`, which begins with `about`, for an engine that cannot be made.
    """
    if not isinstance(value, dict):
        return value
    nested = cast("dict[str, Any]", value)
    if "engine" not in nested or not nested.keys() <= {"engine", "options"}:
        return nested
    engine, options = nested["engine"], nested.get("options", {})
    if not isinstance(engine, str):
        raise ConfigError(
            f'{about}: "engine" must be the name of an engine, got {format_value(engine)}'
        )
    if not isinstance(options, dict):
        raise ConfigError(
            f'{about}: "options" must be a JSON object, like {{"max_iterations": 4}}, got {format_value(options)}'
        )
    given = cast("dict[str, Any]", options)
    built = {
        name: build_option(runtime, inner, f"{about}.{name}")
        for name, inner in given.items()
    }
    with _name_option(about):
        return runtime.engine(engine, **built)


def _option_value(about: str, value: str) -> Any:
    if value.startswith("@"):
        return load_object(about, value[1:])
    try:
        return json.loads(value)
    except ValueError:
        return value


def restore_options(
    runtime: Runtime, started: RunStarted, *, but: Set[str]
) -> dict[str, Any]:
    """Return the options in a run's first entry, without those that are given again."""
    return {
        name: build_option(runtime, value, f"recorded option {name}")
        for name, value in started.options.items()
        if name not in but
    }


def load_output_model(spec: str | None) -> type[BaseModel] | None:
    """Return the pydantic model class of the answer, if one is chosen."""
    if spec is None:
        return None
    found = load_object("--output", spec)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ConfigError(
            f"--output: {spec} is not a pydantic model class, but {found!r}"
        )
    return found


def load_attachments(sources: Sequence[str]) -> list[Attachment]:
    """Return images and documents from files or http(s) URLs."""
    with _name_option("--attach"):
        return [_attachment(source) for source in sources]


def _attachment(source: str) -> Attachment:
    is_url = source.startswith(("https://", "http://", "data:"))
    guessed = mimetypes.guess_type(source)[0] or ""
    if is_url:
        image = guessed.startswith("image/") or source.startswith("data:image/")
        return (Attachment.image if image else Attachment.document)(source)
    path = Path(source)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source!r} cannot be read: {error.strerror}") from None
    media_type = detect_media_type(content) or guessed or _text_type(content)
    made = Attachment.image if media_type.startswith("image/") else Attachment.document
    return made(content, media_type=media_type, name=path.name)


def _text_type(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        return ""
    return "text/plain"


def load_object(option: str, spec: str) -> Any:
    """Return the object that "package.module:object" names; the current directory is searched first."""
    module, colon, name = spec.partition(":")
    if not (colon and module and name):
        raise ConfigError(f"{option}: write package.module:object, got {spec!r}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return pkgutil.resolve_name(spec)
    except (Exception, SystemExit) as error:  # importing runs third-party code
        raise ConfigError(
            f"{option}: {spec!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def _name_option(option: str) -> Generator[None]:
    """Prefix the text of an error with the name of its option."""
    try:
        yield
    except ConfigError as error:
        if str(error).startswith((f"{option}:", f"{option.lstrip('-')}:")):
            raise
        raise ConfigError(f"{option}: {error}") from error
