"""Webhooks: what services are sent, and the tool that sends it over guarded connections."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast

from .._internal import dataclasses
from ..errors import ConfigError, ToolError
from ..messages import JsonObject
from ..plugins import plugin
from ..security.secret_store import is_secret_source, read_secret
from ..toolboxes.json_service import parse_service_url, send_json
from ..toolboxes.ssrf_guard import GuardedTransport
from ..tools.base import Tool, ToolContext, tool
from ..tools.recovery import DeadLetter, RecoveryContext, Retry

Format: TypeAlias = Callable[[JsonObject, JsonObject], JsonObject]
"""Makes the JSON that a service is sent of what is known of a run, and of the options of the webhook."""
QUEUE = "delivery"
"""The queue of dead letters."""
BASE_DELAY, MAX_DELAY = 1.0, 60.0
MAX_DISCORD, MAX_TELEGRAM = 2_000, 4_096
"""Characters of a message."""
MAX_REPLY = 100_000


class Target(Protocol):
    """What the tool needs to know of a webhook."""

    @property
    def url(self) -> str:
        """Its address, or the name of a variable."""
        ...

    @property
    def allow_private(self) -> tuple[str, ...]:
        """Private places that it may be at."""
        ...

    @property
    def attempts(self) -> int:
        """How often it is tried."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds for each."""
        ...


@dataclasses.dataclass(frozen=True)
class DeliveryRetry(Retry):
    """`Retry` that waits for a circuit breaker, too, since a delivery is in no hurry."""

    def applies(self, context: RecoveryContext) -> bool:
        """Whether the call may be made again."""
        is_open = context.failed.failure == "open" and context.has_budget
        return is_open or super().applies(context)


def format_json(facts: JsonObject, options: JsonObject) -> JsonObject:
    """Return what is known of the run, and the options beside it."""
    return {**options, **facts}


def format_discord(facts: JsonObject, options: JsonObject) -> JsonObject:
    """Return a message of a Discord webhook (Execute Webhook); options are its other fields, such as `username`."""
    text = _text_of(facts)[:MAX_DISCORD]
    # What a model wrote must not alarm a whole channel.
    return {"allowed_mentions": {"parse": []}, **options, "content": text}


def format_telegram(facts: JsonObject, options: JsonObject) -> JsonObject:
    """Return a message of Telegram's Bot API (sendMessage); options need its `chat_id`."""
    return {
        **options,
        "chat_id": options["chat_id"],
        "text": _text_of(facts)[:MAX_TELEGRAM],
    }


def _text_of(facts: JsonObject) -> str:
    text = facts["answer"] or f"{facts['status']}: {facts['error'] or facts['run_id']}"
    return str(text)


def load_format(name: str) -> Format:
    """Return the format of a name; raise `ConfigError` for an unknown one."""
    built_in = _FORMATS.get(name)
    return _load_installed(name) if built_in is None else built_in


def _load_installed(name: str) -> Format:
    loaded: Any = plugin("webhooks", name).load()
    if not callable(loaded):
        raise ConfigError(f"format: {name!r} is not a function of facts and options")
    return cast("Format", loaded)


def resolve_url(url: str) -> str:
    """Return the address that a webhook names; raise `ConfigError` for one that is missing or cannot be."""
    text = read_secret(url, "url") if is_secret_source(url) else url
    parse_service_url("url", text)
    return text


def read_origin(url: str) -> str:
    """Return scheme, host and port of a webhook, which is all of it that is recorded."""
    found = parse_service_url("url", resolve_url(url))
    port = "" if found.port is None else f":{found.port}"
    return f"{found.scheme}://{found.hostname}{port}"


def build_webhook_tool(name: str, targets: Mapping[str, Target]) -> Tool:
    """Return the tool that sends to the webhooks of one host, by their numbers."""
    patient = max(targets.values(), key=lambda one: one.attempts)
    retry = DeliveryRetry(patient.attempts, BASE_DELAY, MAX_DELAY)

    @tool(
        effect="idempotent",
        name=name,
        timeout=max(one.timeout for one in targets.values()) + 1.0,
        outbound=True,
        destinations=("url",),
        content=("body",),
        recovery=[retry, DeadLetter(QUEUE)],
    )
    async def send(ctx: ToolContext[Any], url: str, target: str, body: str) -> str:
        """Send what a run answered to a webhook.

        Args:
            url: scheme, host and port of the webhook.
            target: its number.
            body: the JSON that is sent.
        """
        known = targets.get(target)
        if known is None or read_origin(known.url) != url:
            raise ToolError("this is not the webhook that the follow-up sends to")
        return await _send(known, body, ctx.idempotency_key)

    return send


async def _send(target: Target, body: str, key: str) -> str:
    """Send once, and return which host took it."""
    url = resolve_url(target.url)
    found = parse_service_url("url", url)
    port = found.port or (443 if found.scheme == "https" else 80)
    guarded = GuardedTransport(
        allow_private=target.allow_private, ports=[port], max_bytes=MAX_REPLY,
        timeout=target.timeout, max_idle=0,
    )  # fmt: skip
    headers = {"idempotency-key": key}
    await send_json(guarded, "POST", url, headers=headers, body=body)
    return f"{found.hostname} took it"


_FORMATS: dict[str, Format] = {
    "json": format_json,
    "discord": format_discord,
    "telegram": format_telegram,
}
