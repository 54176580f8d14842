"""The command line itself, with typer: commands, their options, and what their `--help` teaches."""

import sys
from collections.abc import Sequence
from typing import Annotated, Never, TypeAlias

import typer

from .._internal.version import __version__
from ..errors import ConfigError
from .config import CommandOptions
from .control import commands
from .exit_status import MISUSED, ensure_streams, escape_unencodable, report_error
from .inspect_runs import list_runs, show_run, verify_runs
from .options import Journal, Run, SharedOptions, end, with_shared_options
from .plugins import list_engines, list_plugins, show_engine
from .run import Question, copy_to_fork, resume_run, start_run
from .worker import parse_resolution, send_resolution, serve

LinesOfJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="A line of JSON for each.")
]


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str]) -> Never:
    """Do what the arguments say, and exit."""
    try:
        ensure_streams()
    except ConfigError as error:
        report_error(error, debug=False)
        sys.exit(MISUSED)
    escape_unencodable(sys.stdout)
    app(list(arguments), prog_name="loopwright")
    sys.exit(0)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loopwright {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from.")
    ] = False,
) -> None:
    """Run published agent loops from a shell, durably: every run is kept in a journal and can be resumed.

    \b
    loopwright engines                       what can be run
    loopwright run "..." --provider ...      run it
    loopwright runs; loopwright show RUN     what happened
    loopwright resume RUN --provider ...     go on after a crash, Ctrl-C or a question
    loopwright approvals                     what runs ask people; approve, deny, answer
    loopwright steer RUN "..."               a control on a run at work; pause, stop, abort
    loopwright worker --provider ...         go on with all that was left
    """


@app.command()
def engines(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show this engine's options.")
    ] = None,
) -> None:
    """List the installed engines, or show the options of one with types, defaults and meanings.

    \b
    Example: loopwright engines react
    Exit status: 0, or 2 for an engine that is unknown or broken.
    """
    end(context, list_engines if name is None else lambda: show_engine(name))


@app.command()
@with_shared_options
def run(
    context: typer.Context,
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION", help="The task; - reads it from standard input."
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(
            "--engine", "-e", metavar="NAME", help="See `loopwright engines`."
        ),
    ] = "react",
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A system message.")
    ] = None,
    attach: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="An image or document, or its URL. Repeatable."
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The run's name; a fresh one without it."),
    ] = None,
    saga: Annotated[
        bool,
        typer.Option(
            "--saga",
            help="Undo what tools did, where they can, unless the run completes.",
        ),
    ] = False,
    *,
    given: SharedOptions,
) -> None:
    """Run an engine on a question: the answer goes to standard output, progress to standard error.

    Ctrl-C suspends the run, so that `loopwright resume` can go on with it.

    \b
    Examples:
      loopwright run "Is it warmer in Paris or in London?" \\
          --provider openai:gpt-4.1-mini --tools my_tools:weather
      loopwright run - --engine tree-of-thoughts -o beam_width=3 <puzzle.txt >answer.txt
    \b
    Exit status: 0 completed, 1 failed, 2 wrong usage or configuration, 3 a limit was reached,
      4 stuck, 5 waiting for a decision, 6 aborted, 130 interrupted by Ctrl-C.
    """
    asked = Question(question, engine, system, tuple(attach or ()), run_id, saga)
    interaction = given.interaction(context)
    end(context, lambda: start_run(asked, given.chosen(), interaction))


@app.command()
@with_shared_options
def resume(
    context: typer.Context,
    run: Run,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", "-e", metavar="NAME", help="The run's own engine without it."
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Even if its owner may be alive, which is then fenced off.",
        ),
    ] = False,
    *,
    given: SharedOptions,
) -> None:
    """Go on with a run where its journal ends: after a crash, after Ctrl-C, or to answer what it waits for.

    Nothing that is recorded is done or paid for again. Model and tools are given again, since a journal holds no code;
    options and limits are those of the run, unless given. A finished run gives its recorded result.

    \b
    Example: loopwright resume run-1f2e3d4c --provider openai:gpt-4.1-mini --tools my_tools:weather
    Exit status: as of `loopwright run`.
    """
    interaction = given.interaction(context)
    end(
        context,
        lambda: resume_run(
            run, given.chosen(), interaction, engine=engine, take_over=take_over
        ),
    )


@app.command()
@with_shared_options
def worker(
    context: typer.Context,
    lease: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="A run that its worker leaves alone for so long is taken over.",
        ),
    ] = 30.0,
    max_concurrency: Annotated[
        int, typer.Option(metavar="N", help="Runs at work at the same time.")
    ] = 10,
    poll: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Between two looks into the journal."),
    ] = 1.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Take up what there is, print each run with its status (--json: its result), and end.",
        ),
    ] = False,
    *,
    given: SharedOptions,
) -> None:
    """Take up the runs of a journal that nobody works on, until Ctrl-C or SIGTERM, which leaves them to other workers.

    Those are runs whose process died or let its lease pass, that another worker released, or that were told what they
    wait for (`loopwright approve`, `deny`, `answer`, `resolve`) or to end. What Ctrl-C suspended is left alone. Model
    and tools are given as for `loopwright resume`; a run keeps its options and limits. Start as many workers on one
    journal as you like, on one machine. Calls that need a yes wait for `loopwright approve`, unless --yes.

    \b
    Example: loopwright worker --journal runs.db --provider openai:gpt-4.1-mini --tools my_tools:weather
    Exit status: 0, 1 if the journal failed, 2 for wrong usage or configuration.
    """
    interaction = given.interaction(context)
    end(
        context,
        lambda: serve(
            given.chosen(),
            interaction,
            lease=lease,
            max_concurrency=max_concurrency,
            poll=poll,
            once=once,
        ),
    )


@app.command()
def resolve(
    context: typer.Context,
    run: Run,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="The place of the call; see `loopwright show RUN`."
        ),
    ],
    done: Annotated[
        str | None,
        typer.Option(
            "--done",
            metavar="TEXT",
            help="It took effect; the model is told this result.",
        ),
    ] = None,
    not_done: Annotated[
        bool, typer.Option("--not-done", help="It took no effect: make it (again).")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Nobody knows: the model is told so.")
    ] = False,
    journal: Journal = None,
) -> None:
    """Say what came of a call that was interrupted or failed; it counts once, when the run is resumed.

    A run asks with --on-unknown ask, or because its tool says so (Escalate). `loopwright show RUN` ends with what it
    asks. A worker takes the run up by itself then.

    \b
    Example: loopwright resolve run-1f2e3d4c '3#0' --done 'invoice 17 was paid at noon'
    Exit status: 0, 1 if the journal failed, or 2 for a run or a call that is not there, or a word that is missing.
    """
    end(
        context,
        lambda: send_resolution(
            run, key, parse_resolution(done, not_done, unknown), journal
        ),
    )


app.registered_commands += commands.registered_commands


@app.command()
def fork(
    context: typer.Context,
    run: Run,
    at: Annotated[
        int,
        typer.Option(
            "--at",
            metavar="N",
            help="The last entry that both have; see `loopwright show`.",
        ),
    ],
    new_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The new run's id; a fresh one without it."),
    ] = None,
    journal: Journal = None,
) -> None:
    """Copy a run's entries 1 to N into a new run, to go another way from there; prints the new run's id.

    \b
    Example: loopwright resume "$(loopwright fork run-1f2e3d4c --at 7)" --provider openai:gpt-4.1
    Exit status: 0, 1 if the journal failed, or 2 for a run or an entry that is not there.
    """
    end(context, lambda: copy_to_fork(run, at, new_id, CommandOptions(journal=journal)))


@app.command()
def runs(
    context: typer.Context,
    journal: Journal = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="Only these: running, released, suspended, waiting, completed, stuck, limit, aborted, failed.",
        ),
    ] = None,
    json: LinesOfJson = False,
) -> None:
    """List the runs of a journal, newest first.

    \b
    Example: loopwright runs --status waiting
    Exit status: 0, 1 if the journal cannot be read, 2 for wrong usage or configuration.
    """
    end(context, lambda: list_runs(journal, status=status, as_json=json))


@app.command()
def show(
    context: typer.Context,
    run: Run,
    journal: Journal = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Texts in full, not cut to the width of the screen."
        ),
    ] = False,
    json: LinesOfJson = False,
) -> None:
    """Show what happened in a run: model calls, thoughts, tool calls with the gate's verdict, results, facts, the end.

    A line begins with the number of its entry (for `loopwright fork --at`) and its place in the program.

    \b
    Example: loopwright show run-1f2e3d4c --full | less
    Exit status: 0, 1 if the journal cannot be read, 2 for a run that is not there.
    """
    end(context, lambda: show_run(run, journal, as_json=json, full=full))


@app.command()
def verify(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id.")
    ] = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="Every run of the journal.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="The head hash that you kept: finds a cut end."
        ),
    ] = None,
    journal: Journal = None,
) -> None:
    """Check that nothing in a run's journal was changed, cut off or lost.

    \b
    Example: loopwright verify --all
    Exit status: 0 all is whole, 1 something is damaged (entry and problem are printed), 2 wrong usage.
    """

    def work() -> int:
        if (run is None) != all_runs:
            raise ConfigError("verify: name one run, or say --all")
        if all_runs and head is not None:
            raise ConfigError("--head: belongs to one run; name it")
        return verify_runs(run, journal, head=head)

    end(context, work)


@app.command()
def plugins(
    context: typer.Context,
    no_load: Annotated[
        bool,
        typer.Option(
            "--no-load", help="Import nothing; what is broken is not found then."
        ),
    ] = False,
) -> None:
    """List every installed entry point: engines, providers, toolboxes, gates, journals.

    The state is ok, broken (with the error), conflict (two distributions claim a name), shadowing (a built-in has the
    name) or off (LOOPWRIGHT_PLUGINS does not name its distribution).

    \b
    Example: loopwright plugins --no-load
    Exit status: 0, also if some are broken.
    """
    end(context, lambda: list_plugins(load=not no_load))
