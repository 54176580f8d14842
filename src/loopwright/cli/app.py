"""The command line itself, with typer: commands, their options, and what their `--help` teaches."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Never, TypeAlias, get_type_hints

import typer

from ..errors import ConfigError
from ..version import __version__
from .approving import Approval
from .choices import Chosen
from .endings import MISUSED, carried_out, ensure_streams, printable, tell_error
from .plugins_view import list_engines, list_plugins, show_engine
from .running import Manner, Question, copy_to_fork, resume_run, start_run
from .showing import list_runs, show_run, verify_runs

Run: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as `loopwright runs` lists it.")]
Journal: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Where runs are kept: a SQLite file, or name:place of an installed journal ('memory' keeps nothing). "
        "Without it LOOPWRIGHT_JOURNAL, else loopwright.db in this folder.",
    ),
]
LinesOfJson: TypeAlias = Annotated[bool, typer.Option("--json", help="A line of JSON for each.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """The options that `run` and `resume` share, as typer reads them."""

    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME:MODEL", help="The model, like openai:gpt-4.1-mini. Without it LOOPWRIGHT_PROVIDER."),
    ] = None
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PKG:OBJECT",
            help="Tools: package.module:object (a function, a Tool, or a list of those; this folder can be imported), "
            "or name[:argument] of an installed toolbox. Repeatable.",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="An option of the engine: JSON, a plain text, or @package.module:object. Repeatable.",
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(metavar="PKG:MODEL", help="A pydantic model that the answer shall fit; printed as JSON."),
    ] = None
    journal: Journal = None
    gate: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The policy gate: default, allow-all, deny-all or an installed one."),
    ] = None
    yes: Annotated[
        bool | None,
        typer.Option("--yes/--ask", help="Approve all that the gate asks about / ask at the terminal (the default)."),
    ] = None
    wait: Annotated[
        bool, typer.Option("--wait", help="Ask nobody: leave the run waiting, to be decided with `loopwright resume`.")
    ] = False
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Tool calls in text: auto, react, json, xml. By itself for a model that has no tool calls of its own.",
        ),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(
            metavar="IN,OUT", help="What a million tokens sent and received cost: for --max-cost and figures."
        ),
    ] = None
    max_iterations: Annotated[int | None, typer.Option(metavar="N", help="Limit: turns of one loop.")] = None
    max_llm_calls: Annotated[int | None, typer.Option(metavar="N", help="Limit: model calls.")] = None
    max_tool_calls: Annotated[int | None, typer.Option(metavar="N", help="Limit: tool calls.")] = None
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="Limit: tokens sent and received.")] = None
    max_cost: Annotated[float | None, typer.Option(metavar="X", help="Limit: cost; see --price.")] = None
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Limit: time at work.")] = None
    json: Annotated[bool, typer.Option("--json", help="The whole result as JSON on standard output.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")] = False

    def chosen(self) -> Chosen:
        """What the run is made of."""
        limits = {
            "max_iterations": self.max_iterations,
            "max_llm_calls": self.max_llm_calls,
            "max_tool_calls": self.max_tool_calls,
            "max_tokens": self.max_tokens,
            "max_cost": self.max_cost,
            "timeout": self.timeout,
        }
        return Chosen(
            self.provider, tuple(self.tools or ()), tuple(self.option or ()), self.journal, self.gate, self.dialect,
            self.price, limits, self.output,
        )  # fmt: skip

    def manner(self, context: typer.Context) -> Manner:
        """How it is shown, and who is asked."""
        if self.wait and self.yes is not None:
            raise typer.BadParameter("choose one of --yes, --ask and --wait")
        approval: Approval | None = None if self.yes is None else "yes" if self.yes else "ask"
        return Manner(self.quiet, self.json, "wait" if self.wait else approval, _debug(context))


def with_given(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the fields of `Given` to a command's options, and hands them over as its argument `given`."""
    hints = get_type_hints(Given, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(Given)
    ]
    own = [parameter for parameter in inspect.signature(command).parameters.values() if parameter.name != "given"]

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        picked = {parameter.name: values.pop(parameter.name) for parameter in shared}
        command(**values, given=Given(**picked))

    parameters = [*own, *shared]
    vars(expanded)["__signature__"] = inspect.Signature(parameters)
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


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
        tell_error(error, debug=False)
        sys.exit(MISUSED)
    printable(sys.stdout)
    app(list(arguments), prog_name="loopwright")
    sys.exit(0)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loopwright {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Run published agent loops from a shell, durably: every run is kept in a journal and can be resumed.

    \b
    loopwright engines                       what can be run
    loopwright run "..." --provider ...      run it
    loopwright runs; loopwright show RUN     what happened
    loopwright resume RUN --provider ...     go on after a crash, Ctrl-C or a question
    """


def _debug(context: typer.Context) -> bool:
    return bool(context.find_root().params["debug"])


def _end(context: typer.Context, work: Callable[[], int]) -> Never:
    raise typer.Exit(carried_out(work, debug=_debug(context)))


@app.command()
def engines(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this engine's options.")] = None,
) -> None:
    """List the installed engines, or show the options of one with types, defaults and meanings.

    \b
    Example: loopwright engines react
    Exit status: 0, or 2 for an engine that is unknown or broken.
    """
    _end(context, list_engines if name is None else lambda: show_engine(name))


@app.command()
@with_given
def run(
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The task; - reads it from standard input.")],
    engine: Annotated[str, typer.Option("--engine", "-e", metavar="NAME", help="See `loopwright engines`.")] = "react",
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="A system message.")] = None,
    attach: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="An image or document, or its URL. Repeatable.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(metavar="ID", help="The run's name; a fresh one without it.")] = None,
    *,
    given: Given,
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
    asked = Question(question, engine, system, tuple(attach or ()), run_id)
    manner = given.manner(context)
    _end(context, lambda: start_run(asked, given.chosen(), manner))


@app.command()
@with_given
def resume(
    context: typer.Context,
    run: Run,
    engine: Annotated[
        str | None, typer.Option("--engine", "-e", metavar="NAME", help="The run's own engine without it.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Even if its owner may be alive, which is then fenced off.")
    ] = False,
    *,
    given: Given,
) -> None:
    """Go on with a run where its journal ends: after a crash, after Ctrl-C, or to answer what it waits for.

    Nothing that is recorded is done or paid for again. Model and tools are given again, since a journal holds no code;
    options and limits are those of the run, unless given. A finished run gives its recorded result.

    \b
    Example: loopwright resume run-1f2e3d4c --provider openai:gpt-4.1-mini --tools my_tools:weather
    Exit status: as of `loopwright run`.
    """
    manner = given.manner(context)
    _end(context, lambda: resume_run(run, given.chosen(), manner, engine=engine, take_over=take_over))


@app.command()
def fork(
    context: typer.Context,
    run: Run,
    at: Annotated[int, typer.Option("--at", metavar="N", help="The last entry that both have; see `loopwright show`.")],
    new_id: Annotated[str | None, typer.Option(metavar="ID", help="The new run's id; a fresh one without it.")] = None,
    journal: Journal = None,
) -> None:
    """Copy a run's entries 1 to N into a new run, to go another way from there; prints the new run's id.

    \b
    Example: loopwright resume "$(loopwright fork run-1f2e3d4c --at 7)" --provider openai:gpt-4.1
    Exit status: 0, 1 if the journal failed, or 2 for a run or an entry that is not there.
    """
    _end(context, lambda: copy_to_fork(run, at, new_id, Chosen(journal=journal)))


@app.command()
def runs(
    context: typer.Context,
    journal: Journal = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="Only these: running, suspended, waiting, completed, limit, stuck, aborted, failed."
        ),
    ] = None,
    json: LinesOfJson = False,
) -> None:
    """List the runs of a journal, newest first.

    \b
    Example: loopwright runs --status waiting
    Exit status: 0, 1 if the journal cannot be read, 2 for wrong usage or configuration.
    """
    _end(context, lambda: list_runs(journal, status=status, as_json=json))


@app.command()
def show(
    context: typer.Context,
    run: Run,
    journal: Journal = None,
    full: Annotated[bool, typer.Option("--full", help="Texts in full, not cut to the width of the screen.")] = False,
    json: LinesOfJson = False,
) -> None:
    """Show what happened in a run: model calls, thoughts, tool calls with the gate's verdict, results, facts, the end.

    A line begins with the number of its entry (for `loopwright fork --at`) and its place in the program.

    \b
    Example: loopwright show run-1f2e3d4c --full | less
    Exit status: 0, 1 if the journal cannot be read, 2 for a run that is not there.
    """
    _end(context, lambda: show_run(run, journal, as_json=json, full=full))


@app.command()
def verify(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's id.")] = None,
    all_runs: Annotated[bool, typer.Option("--all", help="Every run of the journal.")] = False,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="The head hash that you kept: finds a cut end.")
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

    _end(context, work)


@app.command()
def plugins(
    context: typer.Context,
    no_load: Annotated[
        bool, typer.Option("--no-load", help="Import nothing; what is broken is not found then.")
    ] = False,
) -> None:
    """List every installed entry point: engines, providers, toolboxes, gates, journals.

    The state is ok, broken (with the error), conflict (two distributions claim a name), shadowing (a built-in has the
    name) or off (LOOPWRIGHT_PLUGINS does not name its distribution).

    \b
    Example: loopwright plugins --no-load
    Exit status: 0, also if some are broken.
    """
    _end(context, lambda: list_plugins(load=not no_load))
