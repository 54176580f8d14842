"""The services of a command from the file of `--config`, which has what most other options choose."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from .._kernel.session.services import Observer
from ..agents.recorded_engine import build_recorded
from ..compose.composition import CodeServices, Composition, load
from ..compose.file import read_file
from ..compose.secrets import PREFIX, Environment
from ..compose.services import at
from ..compose.services import open_journal as open_named_journal
from ..engine import LoopEngine
from ..errors import ConfigError
from ..events.run import RunStarted
from ..gates.base import Approver, Suspend
from ..journals.base import Journal
from .config import CommandOptions, open_codec, open_journal


def open_composition(
    chosen: CommandOptions,
    approver: Approver | Suspend,
    *,
    observers: Sequence[Observer] = (),
    lease: float | None = None,
    journal: Journal | None = None,
) -> Composition:
    """Return what the file of `--config` describes; raise `ConfigError` for an option that it stands in the place of.

    Tools of this directory can be imported.
    """
    file = chosen.config or ""
    for option, value in chosen.list_services():
        if value:
            raise ConfigError(
                f"{option}: {file} describes the services; change it there, or leave --config out"
            )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    given: CodeServices = {
        "approver": approver,
        "observers": observers,
        "journal": journal or find_journal(chosen),
    }
    if lease is not None:
        given["lease"] = lease
    return load(file, **given)


def with_journal(chosen: CommandOptions) -> CommandOptions:
    """Return the options with the journal that the file of `--config` names, so that hints to people name it, too."""
    if chosen.config is None or chosen.journal:
        return chosen
    named = read_file(chosen.config).runtime.journal
    if not isinstance(named, str) or not named or named.startswith(PREFIX):
        return chosen
    return dataclasses.replace(chosen, journal=named)


def find_journal(chosen: CommandOptions) -> Journal:
    """Return the journal of `--journal`, else that of the file of `--config`, else the command line's default."""
    if chosen.config is None or chosen.journal:
        return open_journal(chosen.journal)
    with at(chosen.config):
        named = open_named_journal(
            read_file(chosen.config).runtime.journal, Environment(), open_codec()
        )
    return named or open_journal(None)


def rebuild_composed(composition: Composition, started: RunStarted) -> LoopEngine:
    """Return the engine of a run of a file, without looking at its journal."""
    runtime = composition.runtime
    if started.agent:
        return runtime.agents.find(started.agent, "of this journal").rebuild(started)
    return build_recorded(runtime.engine, started.engine, started.options)
