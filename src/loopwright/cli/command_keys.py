"""The keys by which commands are signed and checked, as the environment names them."""

import os
from pathlib import Path

from ..errors import ConfigError
from ..security.signatures import Ed25519Signer, KeyFile
from ..security.signed_commands import CommandSigner

KEY_VARIABLE, KEYS_VARIABLE = "LOOPWRIGHT_SIGNING_KEY", "LOOPWRIGHT_COMMAND_KEYS"


def open_command_signer() -> CommandSigner | None:
    """Return what signs the commands of this process and checks those of its runs; `None` without keys."""
    key, keys = os.environ.get(KEY_VARIABLE), os.environ.get(KEYS_VARIABLE)
    if not key and not keys:
        return None
    try:
        signer = _read_signer(key) if key else None
        return CommandSigner(signer, KeyFile.read(keys) if keys else None)
    except ConfigError as error:
        raise ConfigError(f"{KEY_VARIABLE}, {KEYS_VARIABLE}: {error}") from None


def _read_signer(named: str) -> Ed25519Signer:
    """Return the signer of "KEY_ID:FILE", a file with a private key in base64."""
    key_id, _, path = named.partition(":")
    try:
        return Ed25519Signer(key_id, Path(path).read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"must be KEY_ID:FILE with a private key in base64, got {named!r}: {error}"
        ) from None
