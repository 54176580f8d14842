"""The options that `run`, `resume` and `worker` share: services of the run, output, approval."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Never, TypeAlias, get_type_hints

import typer

from .._internal import dataclasses
from .._kernel.session.services import OnUnknown
from .approver import Approval
from .config import CommandOptions
from .exit_status import run_work
from .run import Interaction

Journal: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The journal: a SQLite file, or name:place of an installed journal ('memory' keeps nothing). "
        "Default: LOOPWRIGHT_JOURNAL, else loopwright.db in this directory.",
    ),
]
Run: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The id of the run; see `loopwright runs`."),
]
TaskText: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="QUESTION", help="The task; - reads it from standard input."
    ),
]
Attachments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE", help="An image or a document: a file or a URL. Repeatable."
    ),
]
Saga: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--saga",
        help="Undo the tool calls that can be undone unless the run completes.",
    ),
]
EngineName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--engine", "-e", metavar="NAME", help="The engine; see `loopwright engines`."
    ),
]
SystemText: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A system message.")
]
OwnThread: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Continue the conversation of that id, or begin it: the journal keeps it.",
    ),
]
OwnPrincipal: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--principal",
        metavar="WHO",
        help="The principal, as ID, ID@TENANT or ID@TENANT:ROLE,ROLE, which policies and approvals see.",
    ),
]
Config: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A file with providers, tools, gates and agents (agents.toml), in place of the options that name them.",
    ),
]
NewRunId: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The id of the run; by default a new one."),
]
MaxConcurrency: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="The largest number of concurrent runs.")
]
Poll: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="The interval at which the journal is read."),
]
Accepts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VERSION",
        help="Another version whose runs are taken too, with --app-version; '' is that of runs without one. Repeatable.",
    ),
]
OfStatus: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="STATUS",
        help="Only runs that are running, released, suspended, waiting, completed, stuck, limit, aborted or failed.",
    ),
]
OfEngine: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Only the runs of an engine.")
]
OfTenant: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Only the runs that a tenant started.")
]
WithText: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="Only runs with it in id, engine, thread or tags."
    ),
]
OwnVersion: TypeAlias = Annotated[
    str,
    typer.Option(
        "--app-version",
        metavar="VERSION",
        help="The version of your code: runs of other versions are marked as not served.",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """The options that `run`, `resume` and `worker` share, as typer reads them."""

    config: Config = None
    agent: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="An agent, an engine or a pipeline of the file of --config; by default the one that it names.",
        ),
    ] = ""
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:MODEL",
            help="The model, such as openai:gpt-4.1-mini. Default: LOOPWRIGHT_PROVIDER.",
        ),
    ] = None
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PKG:OBJECT",
            help="Tools: package.module:object (a function, a Tool, or a list of those; this directory is importable), "
            "or name[:argument] of an installed toolbox. Repeatable.",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="An option of the engine: JSON, a text, or @package.module:object. Repeatable.",
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PKG:MODEL",
            help="A pydantic model for the answer, which is printed as JSON.",
        ),
    ] = None
    journal: Journal = None
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The policy gate: default, allow-all, deny-all or an installed one.",
        ),
    ] = None
    yes: Annotated[
        bool | None,
        typer.Option(
            "--yes/--ask",
            help="Approve every call that needs approval / ask at the terminal (the default).",
        ),
    ] = None
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Suspend the run at a call that needs approval, for `loopwright approve` or `resume`.",
        ),
    ] = False
    on_unknown: Annotated[
        OnUnknown | None,
        typer.Option(
            metavar="tell|ask|stop",
            help="After an interrupted side effect: tell the model (the default), ask a person (`loopwright resolve`), "
            "or stop the run.",
        ),
    ] = None
    app_version: Annotated[
        str,
        typer.Option(
            metavar="VERSION",
            help="The version of your code, recorded with a new run; a worker with one takes the runs of that version.",
        ),
    ] = ""
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Tool calls as text: auto, react, json, xml. Default: auto for a model without native tool calls.",
        ),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(
            metavar="IN,OUT",
            help="The price of a million input and output tokens: for --max-cost and usage.",
        ),
    ] = None
    max_iterations: Annotated[
        int | None, typer.Option(metavar="N", help="Limit: iterations of one loop.")
    ] = None
    max_llm_calls: Annotated[
        int | None, typer.Option(metavar="N", help="Limit: model calls.")
    ] = None
    max_tool_calls: Annotated[
        int | None, typer.Option(metavar="N", help="Limit: tool calls.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Limit: input and output tokens.")
    ] = None
    max_cost: Annotated[
        float | None, typer.Option(metavar="X", help="Limit: cost; see --price.")
    ] = None
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Limit: active time.")
    ] = None
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the whole result as JSON."),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")] = (
        False
    )

    def chosen(self) -> CommandOptions:
        """Return the options from which the services of the run are made."""
        if self.agent and self.config is None:
            raise typer.BadParameter("--agent names one of a file: pass --config, too")
        limits = {
            "max_iterations": self.max_iterations,
            "max_llm_calls": self.max_llm_calls,
            "max_tool_calls": self.max_tool_calls,
            "max_tokens": self.max_tokens,
            "max_cost": self.max_cost,
            "timeout": self.timeout,
        }
        return CommandOptions(
            self.provider, tuple(self.tools or ()), tuple(self.option or ()), self.journal, self.gate, self.dialect,
            self.price, limits, self.output, self.on_unknown, self.app_version, self.config, self.agent,
        )  # fmt: skip

    def interaction(self, context: typer.Context) -> Interaction:
        """Return how the run is shown and who approves calls."""
        if self.wait and self.yes is not None:
            raise typer.BadParameter("pass one of --yes, --ask and --wait")
        approvals: dict[bool | None, Approval | None] = {
            None: "wait" if self.wait else None,
            True: "yes",
            False: "ask",
        }
        approval = approvals[self.yes]
        return Interaction(self.quiet, self.json, approval, is_debug(context))


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the fields of `SharedOptions` to a command's options, passed as its argument `given`."""
    hints = get_type_hints(SharedOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(SharedOptions)
    ]
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "given"
    ]

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        picked = {parameter.name: values.pop(parameter.name) for parameter in shared}
        command(**values, given=SharedOptions(**picked))

    parameters = [*own, *shared]
    vars(expanded)["__signature__"] = inspect.Signature(parameters)
    expanded.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    return expanded


def end(context: typer.Context, work: Callable[[], int]) -> Never:
    """Run a command and exit with its status."""
    raise typer.Exit(run_work(work, debug=is_debug(context)))


def is_debug(context: typer.Context) -> bool:
    return bool(context.find_root().params["debug"])
