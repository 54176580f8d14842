"""Signed commands: who sends a command to a run is proved where the run takes it, be it in another process.

sender: CommandSigner(signer)                 signs what `runtime.control(run_id)` sends
run:    CommandSigner(keys=KeyFile.read(...))  refuses what is not signed with one of its keys
"""

import base64
import contextlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..clock import Clock, SystemClock
from ..errors import ConfigError
from ..journals.base import Command
from ..messages import JsonObject, canonical_json
from ..principals import Principal, read_principal
from .signatures import KeyFile, Signer, is_signed

MIN_SECRET_BYTES = 32
MAX_AGE = 300.0  # seconds
SIGNATURE = "signature"
"""The field of a command's body with the key, the time, the nonce and the signature itself."""
_PROBE = b"loopwright: does this key fit?"


class HmacSigner:
    """Signs with a secret that sender and run share (HMAC-SHA-256): each of the two can sign for the other.

    Args:
        key_id: the name of the secret.
        secret: at least 32 bytes, or a text of as many. Take it from a secrets manager.

    Raises `ConfigError` for a secret that is too short.
    """

    def __init__(self, key_id: str, secret: bytes | str) -> None:
        if not key_id or not key_id.isprintable():
            raise ConfigError(f"key_id: must be a printable name, got {key_id!r}")
        self.key_id, self._secret = key_id, _check_secret("secret", secret)

    def sign(self, data: bytes) -> bytes:
        """Return the digest of some bytes."""
        return hmac.digest(self._secret, data, "sha256")

    def __repr__(self) -> str:
        return f"HmacSigner({self.key_id!r})"


class CommandSigner:
    """Signs the commands that this process sends, and checks those that its runs take: `Runtime(commands=...)`.

    Args:
        signer: signs: an `Ed25519Signer` (extra `signatures`), an `HmacSigner`, or a `Signer` of your own; `None` for a
            process that sends nothing.
        keys: what a command must be signed with: a `KeyFile` of Ed25519 keys, or secrets for HMAC by their names; `None`
            takes unsigned commands too.
        tenants: for keys that may not speak for every tenant, the tenants of their principals.
        max_age: seconds that a command may take from its signature to the inbox.
        clock: the source of time, for tests.

    Raises `ConfigError` for a key that does not fit: too short, unknown, or not the other half of the signer's.
    """

    def __init__(
        self,
        signer: Signer | None = None,
        keys: KeyFile | Mapping[str, bytes | str] | None = None,
        *,
        tenants: Mapping[str, Iterable[str]] | None = None,
        max_age: float = MAX_AGE,
        clock: Clock | None = None,
    ) -> None:
        if not max_age > 0:
            raise ConfigError(f"max_age: must be seconds above 0, got {max_age!r}")
        self._signer, self._clock, self._max_age = (
            signer,
            clock or SystemClock(),
            max_age,
        )
        self._keys = keys
        if keys is not None and not isinstance(keys, KeyFile):
            self._keys = {name: _check_secret(name, key) for name, key in keys.items()}
        self._tenants = {
            name: frozenset(given) for name, given in (tenants or {}).items()
        }
        for name in self._tenants:
            if not self._has_key(name):
                raise ConfigError(f"tenants: there is no key {name!r} among the keys")
        if signer is not None and keys is not None:
            self._check_fit(signer)

    @property
    def checks(self) -> bool:
        """Whether an unsigned command is refused."""
        return self._keys is not None

    def sign(self, run_id: str, kind: str, body: JsonObject) -> JsonObject:
        """Return the body of a command with its signature; as it is for a process that does not sign."""
        if self._signer is None:
            return body
        made: dict[str, Any] = {
            "key_id": self._signer.key_id,
            "at": self._clock.wall(),
            "nonce": secrets.token_hex(16),
        }
        signed = self._signer.sign(_signed_bytes(run_id, kind, body, made))
        made["value"] = base64.b64encode(signed).decode()
        return {**body, SIGNATURE: made}

    def find_problem(self, sent: Command) -> str:
        """Return why a command is not what the holder of a key sent to this run; empty if it is."""
        if self._keys is None:
            return ""
        found, body = sent.body.get(SIGNATURE), dict(sent.body)
        if not isinstance(found, dict):
            return "it is not signed, and this run takes signed commands only"
        made = cast("dict[str, Any]", body.pop(SIGNATURE))
        key_id, at = made.get("key_id"), made.get("at")
        if not isinstance(key_id, str) or not isinstance(at, (int, float)):
            return "its signature is not complete"
        return self._find_problem(sent, body, made, key_id, at)

    def _find_problem(
        self,
        sent: Command,
        body: JsonObject,
        made: Mapping[str, Any],
        key_id: str,
        at: float,
    ) -> str:
        unsigned = {name: value for name, value in made.items() if name != "value"}
        data = _signed_bytes(sent.run_id, sent.kind, body, unsigned)
        if not self._is_signed(key_id, data, at, _decode(made.get("value"))):
            return f"its signature is not of the key {key_id!r}, or that key does not count"
        if abs(sent.at - at) > self._max_age:
            return f"it was signed over {self._max_age:g} s before it was sent"
        principal = read_principal(body.get("principal"))
        allowed = self._tenants.get(key_id)
        if allowed is not None and (
            principal is None or principal.tenant not in allowed
        ):
            return f"the key {key_id!r} may not speak for {principal or 'no principal'}"
        return ""

    def _is_signed(self, key_id: str, data: bytes, at: float, value: bytes) -> bool:
        if isinstance(self._keys, KeyFile):
            key = self._keys.find(key_id)
            if key is None or not key.counts_at(at):
                return False
            if 0 < key.revoked <= self._clock.wall():  # whatever time a thief writes
                return False
            return is_signed(key.public_key, data, value)
        secret = cast("Mapping[str, bytes]", self._keys).get(key_id)
        if secret is None:
            return False
        return hmac.compare_digest(hmac.digest(secret, data, "sha256"), value)

    def _has_key(self, key_id: str) -> bool:
        if isinstance(self._keys, KeyFile):
            return self._keys.find(key_id) is not None
        return key_id in (self._keys or {})

    def _check_fit(self, signer: Signer) -> None:
        """Raise `ConfigError` if what the signer signs would not be taken."""
        if not self._has_key(signer.key_id):
            raise ConfigError(
                f"signer: its key {signer.key_id!r} is not among the keys; add it, or leave the signer out"
            )
        made, now = signer.sign(_PROBE), self._clock.wall()
        if not self._is_signed(signer.key_id, _PROBE, now, made):
            raise ConfigError(
                f"signer: the key {signer.key_id!r} among the keys is another one, or does not count now"
            )


class SenderCheck:
    """Checks who sends the commands of one run; each signature counts once.

    Args:
        run_id: the run.
        signer: checks signatures; `None` takes unsigned commands.
        received: the bodies of the commands that the run has received.
    """

    def __init__(
        self,
        run_id: str,
        signer: CommandSigner | None,
        received: Iterable[JsonObject] = (),
    ) -> None:
        self._run_id, self._signer = run_id, signer
        self.starter: Principal | None = None
        """Who started the run."""
        self._nonces = {_find_nonce(body) for body in received}

    def find_problem(self, sent: Command) -> str:
        """Return why a new command is refused for its sender; empty if it is not."""
        if self._signer is not None and self._signer.checks:
            problem = self._check_signature(self._signer, sent)
            if problem:
                return problem
        sender = read_principal(sent.body.get("principal"))
        tenant = "" if self.starter is None else self.starter.tenant
        if sender is not None and tenant and not sender.may_reach(tenant):
            return f"{sender} is not of the tenant that started the run"
        return ""

    def _check_signature(self, signer: CommandSigner, sent: Command) -> str:
        problem, nonce = signer.find_problem(sent), _find_nonce(sent.body)
        if problem:
            return problem
        if not nonce or nonce in self._nonces:
            return "its signature was used for another command"
        self._nonces.add(nonce)
        return ""


def _signed_bytes(
    run_id: str, kind: str, body: Mapping[str, Any], made: Mapping[str, Any]
) -> bytes:
    return canonical_json(
        ["loopwright.command.1", run_id, kind, dict(body), dict(made)]
    )


def _find_nonce(body: JsonObject) -> str:
    found = body.get(SIGNATURE)
    nonce = found.get("nonce") if isinstance(found, dict) else None
    return nonce if isinstance(nonce, str) else ""


def _decode(value: object) -> bytes:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return base64.b64decode(value, validate=True)
    return b""


def _check_secret(name: str, secret: object) -> bytes:
    raw = secret.encode() if isinstance(secret, str) else secret
    if not isinstance(raw, bytes) or len(raw) < MIN_SECRET_BYTES:
        found = f"{len(raw)} bytes" if isinstance(raw, bytes) else type(raw).__name__
        raise ConfigError(
            f"{name}: a secret for HMAC needs at least {MIN_SECRET_BYTES} bytes, got {found}; "
            "make one with secrets.token_hex(32)"
        )
    return raw
