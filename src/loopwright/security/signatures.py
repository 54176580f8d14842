"""Ed25519 signatures and the file of public keys that a verifier brings, with the package cryptography."""

import base64
import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import canonical_json

KEY_BYTES = 32


class Signer(Protocol):
    """Signs bytes with the key `key_id`: `Ed25519Signer`, or a key in a device or a service."""

    @property
    def key_id(self) -> str:
        """Return the name of its key, as the key file has it."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return an Ed25519 signature of 64 bytes (RFC 8032)."""
        ...


def _load() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError as error:
        raise _build_missing("signatures") from error


def load_ciphers() -> Any:
    """Return the authenticated ciphers of cryptography; raise `ConfigError` without the extra `encryption`."""
    try:
        return import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError as error:
        raise _build_missing("encryption") from error


def _build_missing(extra: str) -> ConfigError:
    return ConfigError(
        f"{extra} needs cryptography; run: pip install 'loopwright[{extra}]'"
    )


class Ed25519Signer:
    """Signs with a private key in this process.

    Args:
        key_id: the name of the key in the key file.
        private_key: its 32 bytes, or those in base64. Take it from a secrets manager.

    Raises `ConfigError` for a key that does not fit, or without the extra `signatures`.
    """

    def __init__(self, key_id: str, private_key: bytes | str) -> None:
        if not key_id or not key_id.isprintable():
            raise ConfigError(f"key_id: must be a printable name, got {key_id!r}")
        raw = _read_key("private_key", private_key)
        self.key_id = key_id
        self._key = _load().Ed25519PrivateKey.from_private_bytes(raw)

    @classmethod
    def generate(cls, key_id: str) -> "tuple[Ed25519Signer, str]":
        """Return a signer with a new key, and that key in base64 for a secrets manager."""
        raw = os.urandom(KEY_BYTES)
        return cls(key_id, raw), base64.b64encode(raw).decode()

    @property
    def public_key(self) -> str:
        """Return the public key in base64."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes."""
        return cast("bytes", self._key.sign(data))

    def __repr__(self) -> str:
        return f"Ed25519Signer({self.key_id!r})"


def _read_key(field: str, key: bytes | str) -> bytes:
    raw: bytes = key if isinstance(key, bytes) else b""
    if isinstance(key, str):
        with contextlib.suppress(ValueError):
            raw = base64.b64decode(key, validate=True)
    if len(raw) != KEY_BYTES:
        raise ConfigError(
            f"{field}: must be an Ed25519 key of {KEY_BYTES} bytes, or those in base64; "
            f"got {len(raw)} bytes"
        )
    return raw


def is_signed(public_key: str, data: bytes, signature: bytes) -> bool:
    """Whether a signature of some bytes was made with the private half of a public key."""
    key = _load().Ed25519PublicKey.from_public_bytes(
        _read_key("public_key", public_key)
    )
    try:
        key.verify(signature, data)
    except Exception:  # noqa: BLE001 - InvalidSignature, or whatever a malformed one raises
        return False
    return True


@dataclasses.dataclass(frozen=True)
class PublicKey:
    """A public key and when it counts; times are wall clock, in seconds.

    Args:
        key_id: its name.
        public_key: its 32 bytes in base64.
        valid_from: what was signed before does not count.
        valid_to: what was signed from then on does not count; 0 for no end.
        revoked: when it was revoked: from then on nothing counts; 0 if it was not.
        signed_by: the key that vouches for it; empty for the first one, which you trust by bringing the file.
        signature: of name, key and beginning by that key, in base64.
    """

    key_id: str
    public_key: str
    valid_from: float = 0.0
    valid_to: float = 0.0
    revoked: float = 0.0
    signed_by: str = ""
    signature: str = ""

    @property
    def vouched(self) -> bytes:
        """Return what the key before it signs."""
        return canonical_json([self.key_id, self.public_key, self.valid_from])

    def counts_at(self, at: float) -> bool:
        """Whether what was signed at a time counts."""
        has_ended = 0 < self.valid_to <= at or 0 < self.revoked <= at
        return self.valid_from <= at and not has_ended


_FILE: TypeAdapter[dict[str, list[PublicKey]]] = TypeAdapter(
    dict[str, list[PublicKey]], config=ConfigDict(defer_build=True)
)


class KeyFile:
    """The public keys of a verifier, in their order: each but the first is signed by an earlier one.

    Raises `ConfigError` for a key that does not fit, a name that is there twice, or one that no earlier key signed while
    it counted.
    """

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        self.keys: tuple[PublicKey, ...] = tuple(keys)
        self._by_id: dict[str, PublicKey] = {}
        if not self.keys:
            raise ConfigError("keys: must not be empty; give at least one public key")
        for key in self.keys:
            self._add(key)

    def _add(self, key: PublicKey) -> None:
        where = f"keys: {key.key_id!r}"
        if key.key_id in self._by_id:
            raise ConfigError(f"{where} is given twice; give the second another name")
        _read_key(where, key.public_key)
        if self._by_id:
            voucher = self._by_id.get(key.signed_by)
            if voucher is None or not voucher.counts_at(key.valid_from):
                raise ConfigError(
                    f"{where} is not signed by an earlier key that counts; rotate with KeyFile.rotate"
                )
            signature = base64.b64decode(key.signature)
            if not is_signed(voucher.public_key, key.vouched, signature):
                raise ConfigError(
                    f"{where}: {key.signed_by!r} did not sign it; rotate with KeyFile.rotate"
                )
        self._by_id[key.key_id] = key

    def find(self, key_id: str) -> PublicKey | None:
        """Return the key of that name."""
        return self._by_id.get(key_id)

    def rotate(
        self, old: Signer, new: "Ed25519Signer | PublicKey", at: float
    ) -> "KeyFile":
        """Return a file with a new key that counts from a time on, signed by an older one."""
        public = new.public_key
        key = PublicKey(new.key_id, public, valid_from=at, signed_by=old.key_id)
        signature = base64.b64encode(old.sign(key.vouched)).decode()
        return KeyFile([*self.keys, dataclasses.replace(key, signature=signature)])

    def revoke(self, key_id: str, at: float) -> "KeyFile":
        """Return a file in which a key does not count from a time on."""
        if key_id not in self._by_id:
            raise ConfigError(
                f"key_id: there is no {key_id!r}; there are {list(self._by_id)}"
            )
        return KeyFile(
            dataclasses.replace(key, revoked=at) if key.key_id == key_id else key
            for key in self.keys
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file as JSON."""
        rows = [dataclasses.asdict(key) for key in self.keys]
        Path(path).write_bytes(canonical_json({"keys": rows}) + b"\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "KeyFile":
        """Return the keys in a file; raise `ConfigError` naming it."""
        try:
            found: Mapping[str, Sequence[PublicKey]] = _FILE.validate_python(
                from_json(Path(path).read_bytes())
            )
            return cls(found.get("keys", ()))
        except (OSError, ValueError, ValidationError, ConfigError) as error:
            raise ConfigError(f"key file {os.fspath(path)!r}: {error}") from error
