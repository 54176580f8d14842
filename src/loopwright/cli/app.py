"""The commands of `loopwright`, with typer: arguments, options and the texts of `--help`."""

import sys
from collections.abc import Sequence
from typing import Annotated, Never, TypeAlias

import typer

from .._internal.version import __version__
from .._kernel.session.service_checks import accepted_versions
from ..errors import ConfigError
from .audit import commands as audit_commands
from .chat_command import commands as chat_commands
from .config import CommandOptions
from .console import commands as console_commands
from .control import commands
from .exit_status import MISUSED, ensure_streams, escape_unencodable, report_error
from .inspect_runs import choose_runs, list_runs, show_run, verify_runs
from .metrics import commands as metrics_commands
from .options import (
    Accepts,
    Attachments,
    EngineName,
    Journal,
    MaxConcurrency,
    NewRunId,
    OfEngine,
    OfStatus,
    OfTenant,
    OwnPrincipal,
    OwnThread,
    OwnVersion,
    Poll,
    Run,
    Saga,
    SharedOptions,
    SystemText,
    TaskText,
    WithText,
    end,
    with_shared_options,
)
from .plugins import list_engines, list_plugins, show_engine
from .replay_check import check_replays
from .run import Task, copy_to_fork, resume_run, start_run
from .schedules import commands as schedule_commands
from .settings import commands as settings_commands
from .upkeep import Tags, Thread, parse_tags, tag_tenant
from .upkeep import commands as upkeep_commands
from .worker import parse_resolution, send_resolution, serve

LinesOfJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON for each.")
]

Lease: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="A run whose worker does not renew its lease for so long is taken over.",
    ),
]
Once: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--once",
        help="Resume the runs that there are, print each with its status (--json: its result), and exit.",
    ),
]
CallKey: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The key of the call; see `loopwright show RUN`."
    ),
]
DoneText: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--done",
        metavar="TEXT",
        help="The call took effect; the model reads this result.",
    ),
]
NotDone: TypeAlias = Annotated[
    bool,
    typer.Option("--not-done", help="The call took no effect: make it (again)."),
]
Unknown: TypeAlias = Annotated[
    bool,
    typer.Option("--unknown", help="The outcome is not known; the model reads that."),
]


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str]) -> Never:
    """Run the command that the arguments name, and exit with its status."""
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
        bool, typer.Option("--debug", help="Print the traceback of an error.")
    ] = False,
) -> None:
    """Run published agent loops from a shell. Every run is recorded in a journal and can be resumed.

    \b
    loopwright engines                       list the engines
    loopwright run "..." --provider ...      run an engine
    loopwright chat PROVIDER:MODEL           talk; the journal keeps the conversation
    loopwright runs; loopwright show RUN     list runs, show what happened in one
    loopwright resume RUN --provider ...     resume a run after a crash, Ctrl-C or a question
    loopwright approvals                     list the decisions that runs wait for; approve, deny, answer
    loopwright steer RUN "..."               control a run while it runs; pause, stop, abort
    loopwright worker --provider ...         resume all runs that no process works on
    loopwright console --open                watch and steer runs in a browser
    """


@app.command()
def engines(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show this engine's options.")
    ] = None,
) -> None:
    """List the installed engines, or show the options of one with types, defaults and descriptions.

    \b
    Example: loopwright engines react
    Exit status: 0, or 2 for an engine that is unknown or broken.
    """
    end(context, list_engines if name is None else lambda: show_engine(name))


@app.command()
@with_shared_options
def run(
    context: typer.Context,
    question: TaskText,
    engine: EngineName = "react",
    system: SystemText = None,
    attach: Attachments = None,
    run_id: NewRunId = None,
    saga: Saga = False,
    thread: OwnThread = None,
    principal: OwnPrincipal = None,
    *,
    given: SharedOptions,
) -> None:
    """Run an engine on a task: the answer goes to standard output, progress to standard error.

    Ctrl-C suspends the run, so that `loopwright resume` can continue it.

    \b
    Examples:
      loopwright run "Is it warmer in Paris or in London?" \\
          --provider openai:gpt-4.1-mini --tools my_tools:weather
      loopwright run - --engine tree-of-thoughts -o beam_width=3 <puzzle.txt >answer.txt
      loopwright run "And tomorrow?" --thread ada --provider openai:gpt-4.1-mini
    \b
    Exit status: 0 completed, 1 failed, 2 wrong usage or configuration, 3 a limit was reached,
      4 stuck, 5 waiting for a decision, 6 aborted, 130 interrupted by Ctrl-C.
    """
    files = tuple(attach or ())
    task = Task(question, engine, system, files, run_id, saga, thread, principal)
    interaction = given.interaction(context)
    end(context, lambda: start_run(task, given.chosen(), interaction))


@app.command()
@with_shared_options
def resume(
    context: typer.Context,
    run: Run,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", "-e", metavar="NAME", help="By default the engine of the run."
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Resume it even if its owner may be alive; the owner is fenced off.",
        ),
    ] = False,
    *,
    given: SharedOptions,
) -> None:
    """Resume a run where its journal ends: after a crash, after Ctrl-C, or once it has the decision it waits for.

    No recorded effect is repeated or paid for again. Pass model and tools again, since a journal holds no code; options
    and limits are those of the run unless you pass others. A finished run prints its recorded result.

    \b
    Example: loopwright resume run-1f2e3d4c --provider openai:gpt-4.1-mini --tools my_tools:weather
    Exit status: as for `loopwright run`.
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
    lease: Lease = 30.0,
    max_concurrency: MaxConcurrency = 10,
    poll: Poll = 1.0,
    once: Once = False,
    accepts: Accepts = None,
    *,
    given: SharedOptions,
) -> None:
    """Resume the runs of a journal that no process works on, until Ctrl-C or SIGTERM releases them to other workers.

    Those are runs whose process died or whose lease expired, that another worker released, or that received the
    decision they wait for (`loopwright approve`, `deny`, `answer`, `resolve`) or a command to end. A run that Ctrl-C
    suspended is not resumed. Pass model and tools as for `loopwright resume`; a run keeps its options and limits. Start
    as many workers on one journal as you like, on one machine. Calls that need approval wait for `loopwright approve`,
    unless you pass --yes.

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
            accepts=tuple(accepts or ()),
        ),
    )


@app.command()
@with_shared_options
def replay_check(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(metavar="JOURNAL", help="The journal; it is only read."),
    ],
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="Only runs of that status: waiting."),
    ] = None,
    *,
    given: SharedOptions,
) -> None:
    """Replay stored runs with the code that is installed, and print those that it cannot continue.

    No model is called, no tool runs, and nothing is written: run it before a deploy, on a copy of the journal. Pass model
    and tools as for `loopwright worker`.

    \b
    Example: loopwright replay-check runs.db --status waiting --provider openai:gpt-4.1-mini --tools my_tools:weather
    Exit status: 0 if the code continues every run, 1 if one diverges or could not be checked, 2 for wrong usage.
    """
    chosen = given.chosen()
    end(
        context,
        lambda: check_replays(file, chosen, status=status, as_json=given.json),
    )


@app.command()
def resolve(
    context: typer.Context,
    run: Run,
    key: CallKey,
    done: DoneText = None,
    not_done: NotDone = False,
    unknown: Unknown = False,
    journal: Journal = None,
) -> None:
    """Resolve a call that was interrupted or failed: say its outcome; that counts once, when the run is resumed.

    A run asks for it with --on-unknown ask, or because of its tool's recovery (Escalate). `loopwright show RUN` ends
    with the question. A worker resumes the run by itself then.

    \b
    Example: loopwright resolve run-1f2e3d4c '3#0' --done 'invoice 17 was paid at noon'
    Exit status: 0, 1 if the journal failed, or 2 for an unknown run or call, or a missing resolution.
    """
    end(
        context,
        lambda: send_resolution(
            run, key, parse_resolution(done, not_done, unknown), journal
        ),
    )


app.registered_commands += chat_commands.registered_commands
app.registered_commands += commands.registered_commands
app.registered_commands += upkeep_commands.registered_commands
app.registered_commands += audit_commands.registered_commands
app.registered_commands += console_commands.registered_commands
app.registered_commands += metrics_commands.registered_commands
app.add_typer(schedule_commands, name="schedule")
app.add_typer(settings_commands, name="settings")


@app.command()
def fork(
    context: typer.Context,
    run: Run,
    at: Annotated[
        int,
        typer.Option(
            "--at",
            metavar="N",
            help="The last entry to copy; see `loopwright show`.",
        ),
    ],
    new_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of the new run; by default a new one."),
    ] = None,
    journal: Journal = None,
) -> None:
    """Copy a run's entries 1 to N into a new run, which continues from there; prints the id of the new run.

    \b
    Example: loopwright resume "$(loopwright fork run-1f2e3d4c --at 7)" --provider openai:gpt-4.1
    Exit status: 0, 1 if the journal failed, or 2 for an unknown run or entry.
    """
    end(context, lambda: copy_to_fork(run, at, new_id, CommandOptions(journal=journal)))


@app.command()
def runs(
    context: typer.Context,
    journal: Journal = None,
    status: OfStatus = None,
    tag: Tags = None,
    thread: Thread = "",
    tenant: OfTenant = "",
    engine: OfEngine = "",
    text: WithText = "",
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="The newest N of them.")
    ] = None,
    app_version: OwnVersion = "",
    accepts: Accepts = None,
    due: Annotated[
        bool,
        typer.Option("--due", help="Follow-ups that are not done, or have failed."),
    ] = False,
    json: LinesOfJson = False,
) -> None:
    """List the runs of a journal, newest first.

    A run that cannot be resumed here is marked: its engine is not installed, or (with --app-version) its version is not
    served.

    \b
    Example: loopwright runs --status waiting --tag user=42 --limit 20
    Exit status: 0, 1 if the journal cannot be read, 2 for wrong usage or configuration.
    """

    def work() -> int:
        tags = tag_tenant(parse_tags(tag), tenant)
        where = choose_runs(status, tags, thread, engine, text, due=due)
        versions = accepted_versions(app_version, accepts or ())
        return list_runs(journal, where, limit, versions, as_json=json)

    end(context, work)


@app.command()
def show(
    context: typer.Context,
    run: Run,
    journal: Journal = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Print texts in full, not cut to the width of the screen."
        ),
    ] = False,
    json: LinesOfJson = False,
) -> None:
    """Show the timeline of a run: model calls, thoughts, tool calls with the gate's decision, results, facts, the end.

    A line begins with the number of its entry (for `loopwright fork --at`) and its key, the place in the program.

    \b
    Example: loopwright show run-1f2e3d4c --full | less
    Exit status: 0, 1 if the journal cannot be read, 2 for an unknown run.
    """
    end(context, lambda: show_run(run, journal, as_json=json, full=full))


@app.command()
def verify(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id.")
    ] = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="Check every run of the journal.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="The head hash that you kept: finds a truncated end."
        ),
    ] = None,
    journal: Journal = None,
) -> None:
    """Verify that no entry of a run was changed, truncated or lost.

    \b
    Example: loopwright verify --all
    Exit status: 0 all intact, 1 a run is damaged (entry and problem are printed), 2 wrong usage.
    """

    def work() -> int:
        if (run is None) != all_runs:
            raise ConfigError("verify: pass the id of one run, or --all")
        if all_runs and head is not None:
            raise ConfigError("--head: belongs to one run; pass its id")
        return verify_runs(run, journal, head=head)

    end(context, work)


@app.command()
def plugins(
    context: typer.Context,
    no_load: Annotated[
        bool,
        typer.Option(
            "--no-load", help="Import nothing; broken entry points are not found then."
        ),
    ] = False,
) -> None:
    """List every installed entry point: engines, providers, toolboxes, gates, journals.

    The state is ok, broken (with the error), conflict (two distributions have the same name), shadowing (the name is a
    built-in's) or off (LOOPWRIGHT_PLUGINS does not name its distribution).

    \b
    Example: loopwright plugins --no-load
    Exit status: 0, also if some are broken.
    """
    end(context, lambda: list_plugins(load=not no_load))
