"""`loopwright console`: serve a page over a journal."""

import asyncio
import getpass
import os
from importlib import import_module
from typing import Annotated, Any, TypeAlias

import typer

from ..gates.base import Suspend
from .config import CommandOptions
from .config_file import find_journal, open_composition
from .options import Config, Journal, end

TOKEN_VARIABLE = "LOOPWRIGHT_CONSOLE_TOKEN"
JournalFile: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOURNAL]",
        help="The journal; by default that of --journal. It need not exist yet.",
    ),
]
Host: TypeAlias = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="The address to listen at."),
]
Port: TypeAlias = Annotated[
    int,
    typer.Option(metavar="N", help="The port; 0 is any free one.", min=0, max=65535),
]
AllowedHosts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Another name by which browsers reach this host. Repeatable.",
    ),
]
UserName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Who you are, for the journal; by default your login name."
    ),
]
OpenPage: TypeAlias = Annotated[
    bool, typer.Option("--open", help="Open the page in a browser.")
]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def console(
    context: typer.Context,
    file: JournalFile = None,
    journal: Journal = None,
    config: Config = None,
    open_page: OpenPage = False,
    host: Host = "127.0.0.1",
    port: Port = 0,
    allow_host: AllowedHosts = None,
    user: UserName = None,
) -> None:
    """Serve a page that shows the runs of a journal live, steers and approves them, until Ctrl-C.

    It prints the address with a token, new at each start, without which nothing is shown. LOOPWRIGHT_CONSOLE_TOKEN sets
    the token for a server that is restarted. Runs may be at work in any process; they need not know of the page.
    With --config the page also starts, resumes and forks runs, talks to the agents of the file and has its settings.

    \b
    Example: loopwright console runs.db --open
    Example: loopwright console --config agents.toml --open
    Exit status: 0, or 2 for wrong usage or configuration.
    """

    chosen = CommandOptions(journal=file or journal, config=config)
    options: dict[str, Any] = {"host": host, "port": port, "open_page": open_page}
    options |= {"user": user or _find_login(), "hosts": tuple(allow_host or ())}

    def work() -> int:
        asyncio.run(_serve(chosen, options))
        return 0

    end(context, work)


async def _serve(chosen: CommandOptions, options: dict[str, Any]) -> None:
    """Serve a journal, or the runtime of the file of `--config`, until a signal."""
    server = import_module("..console.server", __package__)  # it needs the extra
    token = os.environ.get(TOKEN_VARIABLE) or None
    if chosen.config is None:
        await server.serve(find_journal(chosen), token=token, **options)
        return
    async with open_composition(chosen, Suspend()) as composed:
        await server.serve(composed.runtime, token=token, **options)


def _find_login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without an entry in the system's list
        return f"user {os.getuid()}"
