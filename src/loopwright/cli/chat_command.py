"""The command `chat`, with typer."""

from importlib import import_module
from typing import Annotated, TypeAlias

import typer

from .options import SharedOptions, end, with_shared_options

commands = typer.Typer(rich_markup_mode=None)


Target: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="[AGENT|PROVIDER]",
        help="A model as provider:model, or an agent of your own as package.module:object. "
        "By default what --provider says.",
    ),
]
ThreadName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="The conversation to continue; by default a new one."
    ),
]
EngineName: TypeAlias = Annotated[
    str, typer.Option("--engine", "-e", metavar="NAME", help="The engine of a model.")
]
Instructions: TypeAlias = Annotated[
    str, typer.Option(metavar="TEXT", help="Instructions for a model.")
]


@commands.command()
@with_shared_options
def chat(
    context: typer.Context,
    whom: Target = "",
    thread: ThreadName = None,
    engine: EngineName = "react",
    system: Instructions = "",
    *,
    given: SharedOptions,
) -> None:
    """Talk with a model or an agent; the journal keeps the conversation.

    What is typed while an answer is made guides it. Ctrl-C stops the answer and keeps the conversation, Ctrl-D leaves.

    \b
    Examples:
      loopwright chat openai:gpt-4.1-mini --tools my_tools:weather
      loopwright chat my_app:support --thread user-42
    Exit status: 0, or 2 for wrong usage or configuration.
    """
    chosen, interaction = given.chosen(), given.interaction(context)

    def work() -> int:
        chats = import_module(".chat", __package__)  # its terminal is slow to load
        target = chats.ChatTarget(whom, thread, engine, system)
        status: int = chats.hold_chat(target, chosen, interaction)
        return status

    end(context, work)
