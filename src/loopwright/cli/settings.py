"""`loopwright settings`: read and write what an application reads anew with each run, with the file of `--config`."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import typer

from .._internal import dataclasses
from ..agents.settings_editor import SettingsEditor
from ..compose.composition import load
from ..gates.base import Suspend
from ..journals.memory import MemoryJournal
from ..messages import Json
from ..principals import Principal
from .options import end
from .text import clean, json_text

ConfigFile: TypeAlias = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The file of the application (agents.toml), whose [runtime] names the settings.",
    ),
]
Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="engine.NAME.OPTION or agent.NAME.OPTION, .prompts.NAME, .limits.NAME, .enabled, or agent.NAME.instructions.",
    ),
]
AnyName: TypeAlias = Annotated[
    str, typer.Argument(metavar="[NAME]", help="Only this setting.")
]
Value: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="VALUE",
        help="JSON, or else a text; null removes the setting. - reads a text from standard input.",
    ),
]
Who: TypeAlias = Annotated[
    str,
    typer.Option(
        "--principal",
        metavar="WHO",
        help="Who writes, as ID@TENANT:ROLE,ROLE; it needs the role admin.",
    ),
]
Reason: TypeAlias = Annotated[
    str, typer.Option(metavar="TEXT", help="Why, for the history.")
]
LinesOfJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

commands = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Read and write prompts, options and limits that runs read as they begin.",
)


@commands.command()
def get(
    context: typer.Context,
    name: AnyName = "",
    config: ConfigFile = "agents.toml",
    json: LinesOfJson = False,
) -> None:
    """Print the settings, or one of them.

    \b
    Example: loopwright settings get --config agents.toml
    Exit status: 0, 1 if the settings cannot be read, 2 for wrong usage or configuration.
    """

    async def work(editor: SettingsEditor) -> None:
        now = await editor.read()
        chosen = {one: value for one, value in now.values.items() if name in ("", one)}
        if json:
            _write(json_text({"version": now.version, "values": chosen}))
            return
        for one, value in sorted(chosen.items()):
            _write(f"{one} = {json_text(value)}")
        sys.stderr.write(f"version {now.version}\n")

    end(context, lambda: _edit(config, "reader", work))


@commands.command("set")
def set_(
    context: typer.Context,
    name: Name,
    value: Value,
    principal: Who,
    config: ConfigFile = "agents.toml",
    reason: Reason = "",
) -> None:
    """Change a setting; runs that begin from now on read it.

    \b
    Example: loopwright settings set agent.support.limits.max_llm_calls 10 --principal ann:admin
    Exit status: 0, 1 if the settings cannot be written, 2 for a setting that the code does not take.
    """

    async def work(editor: SettingsEditor) -> None:
        given = sys.stdin.read() if value == "-" else _parse(value)
        version = await editor.set(name, given, reason=reason)
        _write(f"version {version}")

    end(context, lambda: _edit(config, principal, work))


@commands.command()
def history(
    context: typer.Context,
    name: AnyName = "",
    config: ConfigFile = "agents.toml",
    json: LinesOfJson = False,
) -> None:
    """Print the changes of all settings or of one, the oldest first.

    \b
    Example: loopwright settings history engine.react.max_iterations
    Exit status: 0, 1 if the settings cannot be read, 2 for wrong usage or configuration.
    """

    async def work(editor: SettingsEditor) -> None:
        for one in await editor.history(name):
            if json:
                _write(json_text(dataclasses.asdict(one)))
                continue
            why = f"  ({one.reason})" if one.reason else ""
            before, after = json_text(one.before), json_text(one.value)
            _write(f"{one.version}  {one.by}  {one.name}: {before} -> {after}{why}")

    end(context, lambda: _edit(config, "reader", work))


@commands.command()
def revert(
    context: typer.Context,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="0 has none.")],
    principal: Who,
    config: ConfigFile = "agents.toml",
    reason: Reason = "",
) -> None:
    """Write the settings as they were in an earlier version, as a new one.

    \b
    Example: loopwright settings revert 12 --principal ann:admin
    Exit status: 0, 1 if the settings cannot be written, 2 for a version that is not there.
    """

    async def work(editor: SettingsEditor) -> None:
        _write(f"version {await editor.revert(version, reason=reason)}")

    end(context, lambda: _edit(config, principal, work))


def _edit(
    config: str, who: str, work: Callable[[SettingsEditor], Awaitable[None]]
) -> int:
    """Do something with the settings of a file; return the exit status."""

    async def run() -> None:
        principal = Principal.parse(who)
        journal = MemoryJournal()
        async with load(config, approver=Suspend(), journal=journal) as composed:
            await work(SettingsEditor(composed.runtime, principal))

    asyncio.run(run())
    return 0


def _parse(value: str) -> Json:
    try:
        found: Json = json.loads(value)
    except ValueError:
        return value
    return found


def _write(line: str) -> None:
    sys.stdout.write(f"{clean(line)}\n")
