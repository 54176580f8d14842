"""The commands by which a person controls a run: approve, answer, steer, pause, stop."""

from typing import Annotated, Literal, TypeAlias

import typer

from ..labels import LABELS
from ..principals import Principal, Sender
from .inbox import change_run, list_questions, parse_json_object, send_command
from .options import Journal, OwnPrincipal, Run, end
from .thread_approvals import list_approvals, revoke_approval

Key: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The id of the question; see `loopwright approvals`."
    ),
]
Text: TypeAlias = Annotated[str, typer.Argument(metavar="TEXT")]
By: TypeAlias = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Your name, for the journal.")
]

OtherArguments: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="Other arguments; they are checked and gated again.",
    ),
]
ApprovalSeconds: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--for",
        metavar="SECONDS",
        help="Approve calls of that tool to the same destinations for so long; see --scope.",
    ),
]
ApprovalScope: TypeAlias = Annotated[
    Literal["run", "thread"],
    typer.Option(
        help="Where an approval for a time holds: in this run, or in the later turns of its thread too.",
    ),
]
OfThread: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--thread",
        metavar="ID",
        help="In place of that, list what is approved for a whole thread and holds now.",
    ),
]

commands = typer.Typer(rich_markup_mode=None)


def _sender(by: str, principal: str | None) -> Sender:
    """Return who sends a command: the principal, if one is named."""
    return by if principal is None else Principal.parse(principal)


@commands.command()
def approvals(
    context: typer.Context,
    journal: Journal = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each.")
    ] = False,
    thread: OfThread = None,
    principal: OwnPrincipal = None,
) -> None:
    """List the decisions that runs wait for: calls to approve, questions to the user, calls with an unknown outcome.

    \b
    Example: loopwright approvals --journal runs.db
    Exit status: 0, 1 if the journal, or a run of it, cannot be read, 2 for wrong usage or configuration.
    """

    def work() -> int:
        if thread is not None:
            return list_approvals(thread, journal, principal, as_json=json)
        if principal is not None:
            raise typer.BadParameter("--principal: belongs to --thread")
        return list_questions(journal, as_json=json)

    end(context, work)


@commands.command()
def revoke(
    context: typer.Context,
    thread: Annotated[
        str, typer.Argument(metavar="THREAD", help="The id of the thread.")
    ],
    approval: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The approval; see `loopwright approvals --thread THREAD`.",
        ),
    ],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the journal.")
    ] = "",
    by: By = "",
    principal: OwnPrincipal = None,
    journal: Journal = None,
) -> None:
    """Revoke an approval for a whole thread, for the turn at work too; a call that has begun continues.

    \b
    Example: loopwright revoke user-42 't:2744296fd7583b58:1#1' --reason 'she left'
    Exit status: 0, 1 if the journal failed, 2 for an approval that does not hold.
    """
    end(
        context,
        lambda: revoke_approval(
            thread, approval, journal, reason, _sender(by, principal)
        ),
    )


@commands.command()
def approve(
    context: typer.Context,
    run: Run,
    key: Key,
    arguments: OtherArguments = None,
    seconds: ApprovalSeconds = None,
    scope: ApprovalScope = "run",
    by: By = "",
    principal: OwnPrincipal = None,
    journal: Journal = None,
) -> None:
    """Approve a call that a run asks about: once, with exactly its arguments, within an hour.

    \b
    Example: loopwright approve run-1f2e3d4c '3#0@66660a3d'
    Exit status: 0, 1 if the journal failed, 2 for an unknown run or question.
    """

    def work() -> int:
        given = (
            None if arguments is None else parse_json_object("--arguments", arguments)
        )
        return send_command(
            run,
            journal,
            lambda control: control.approve(
                key,
                arguments=given,
                seconds=seconds,
                scope=scope,
                by=_sender(by, principal),
            ),
        )

    end(context, work)


@commands.command()
def deny(
    context: typer.Context,
    run: Run,
    key: Key,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason; the model reads it.")
    ] = "",
    by: By = "",
    principal: OwnPrincipal = None,
    journal: Journal = None,
) -> None:
    """Deny a call that a run asks about; the model reads the reason.

    \b
    Example: loopwright deny run-1f2e3d4c '3#0@66660a3d' --reason 'not on a Friday'
    Exit status: as for `loopwright approve`.
    """
    end(
        context,
        lambda: send_command(
            run,
            journal,
            lambda control: control.deny(key, reason, by=_sender(by, principal)),
        ),
    )


@commands.command()
def answer(
    context: typer.Context,
    run: Run,
    text: Text,
    question: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The key of the question, if the run asks several."
        ),
    ] = None,
    journal: Journal = None,
) -> None:
    """Answer a question that a run asks its user.

    \b
    Example: loopwright answer run-1f2e3d4c 'the blue one'
    Exit status: as for `loopwright approve`.
    """
    end(
        context,
        lambda: send_command(
            run, journal, lambda control: control.answer(text, question=question)
        ),
    )


@commands.command()
def steer(
    context: typer.Context, run: Run, text: Text, journal: Journal = None
) -> None:
    """Give guidance to the model of a run; it reads that with its next call.

    \b
    Example: loopwright steer run-1f2e3d4c 'only sources of this year'
    Exit status: 0, 1 if the journal failed, 2 for a run that is unknown or has ended.
    """
    end(
        context, lambda: send_command(run, journal, lambda control: control.steer(text))
    )


@commands.command("add-context")
def add_context(
    context: typer.Context, run: Run, text: Text, journal: Journal = None
) -> None:
    """Give information to the model of a run; it reads that with its next call.

    \b
    Example: loopwright add-context run-1f2e3d4c 'the office is closed today'
    Exit status: as for `loopwright steer`.
    """
    end(
        context,
        lambda: send_command(run, journal, lambda control: control.add_context(text)),
    )


@commands.command("follow-up")
def follow_up(
    context: typer.Context, run: Run, text: Text, journal: Journal = None
) -> None:
    """Queue a message for the time when the run has its answer: the run continues with it.

    \b
    Example: loopwright follow-up run-1f2e3d4c 'and the same for London'
    Exit status: as for `loopwright steer`.
    """
    end(
        context,
        lambda: send_command(run, journal, lambda control: control.follow_up(text)),
    )


@commands.command()
def override(
    context: typer.Context,
    run: Run,
    tool: Annotated[str, typer.Argument(metavar="TOOL")],
    arguments: Annotated[
        str, typer.Argument(metavar="JSON", help="Its arguments, a JSON object.")
    ],
    journal: Journal = None,
) -> None:
    """Call a tool before the run's next model call; it is gated like any call, and the model reads the result.

    \b
    Example: loopwright override run-1f2e3d4c search '{"query": "weather in Oslo"}'
    Exit status: as for `loopwright steer`.
    """
    end(
        context,
        lambda: send_command(
            run,
            journal,
            lambda control: control.override(
                tool, parse_json_object("JSON", arguments)
            ),
        ),
    )


@commands.command()
def pause(context: typer.Context, run: Run, journal: Journal = None) -> None:
    """Pause a run, and its clock, before its next step; `loopwright unpause` continues it.

    \b
    Example: loopwright pause run-1f2e3d4c
    Exit status: as for `loopwright steer`.
    """
    end(context, lambda: send_command(run, journal, lambda control: control.pause()))


@commands.command()
def unpause(context: typer.Context, run: Run, journal: Journal = None) -> None:
    """Continue a paused run, in whichever process it is.

    \b
    Example: loopwright unpause run-1f2e3d4c
    Exit status: as for `loopwright steer`.
    """
    end(context, lambda: send_command(run, journal, lambda control: control.unpause()))


@commands.command()
def stop(context: typer.Context, run: Run, journal: Journal = None) -> None:
    """End a run after its current step; it ends as aborted, with its usage and its conversation.

    \b
    Example: loopwright stop run-1f2e3d4c
    Exit status: as for `loopwright steer`.
    """
    end(context, lambda: send_command(run, journal, lambda control: control.stop()))


@commands.command()
def abort(context: typer.Context, run: Run, journal: Journal = None) -> None:
    """End a run at once: calls in flight are cancelled.

    \b
    Example: loopwright abort run-1f2e3d4c
    Exit status: as for `loopwright steer`.
    """
    end(context, lambda: send_command(run, journal, lambda control: control.abort()))


@commands.command()
def retry(
    context: typer.Context,
    run: Run,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the journal.")
    ] = "",
    journal: Journal = None,
) -> None:
    """Let a run continue that is parked, or that failed because of its provider; the next worker resumes it.

    \b
    Example: loopwright retry run-1f2e3d4c --reason 'the key is right now'
    Exit status: 0, 1 if the journal failed, 2 for a run that is unknown, at work, or neither of the two.
    """
    done = "released; a worker resumes it, or `loopwright resume` does"
    end(
        context,
        lambda: change_run(run, journal, lambda control: control.retry(reason), done),
    )


@commands.command()
def close(
    context: typer.Context,
    run: Run,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the journal.")
    ],
    journal: Journal = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Fence off an owner that may be at work."),
    ] = False,
) -> None:
    """End a run whose code is gone, as aborted; calls of a saga that are not undone are named in its error.

    \b
    Example: loopwright close run-1f2e3d4c --reason 'its engine is uninstalled'
    Exit status: 0, 1 if the journal failed, 2 for a run that is unknown, at work, or has ended.
    """
    end(
        context,
        lambda: change_run(
            run,
            journal,
            lambda control: control.close(reason, take_over=take_over),
            "closed as aborted",
        ),
    )


@commands.command()
def declassify(
    context: typer.Context,
    run: Run,
    label: Annotated[
        str, typer.Argument(metavar="LABEL", help=f"One of {', '.join(LABELS)}.")
    ],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the journal.")
    ],
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted", help="What it has read from outside counts as trusted, too."
        ),
    ] = False,
    journal: Journal = None,
) -> None:
    """Declare that a run counts as no more sensitive than LABEL from here on, whatever it has read.

    \b
    Example: loopwright declassify run-1f2e3d4c normal --reason 'the addresses are public'
    Exit status: as for `loopwright steer`.
    """
    if label not in LABELS:
        raise typer.BadParameter(
            f"LABEL: must be one of {', '.join(LABELS)}, got {label!r}"
        )
    known = LABELS[LABELS.index(label)]
    end(
        context,
        lambda: send_command(
            run,
            journal,
            lambda control: control.declassify(known, reason, trusted=trusted),
        ),
    )


@commands.command()
def endorse(
    context: typer.Context,
    run: Run,
    value: Annotated[
        str,
        typer.Argument(metavar="VALUE", help="The whole value, such as an address."),
    ],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the journal.")
    ],
    by: By = "",
    principal: OwnPrincipal = None,
    journal: Journal = None,
) -> None:
    """Declare that a value is to be trusted from here on, wherever it came from: policies see it as typed by the caller.

    \b
    Example: loopwright endorse run-1f2e3d4c bob@example.com --reason 'he called'
    Exit status: as for `loopwright steer`.
    """
    end(
        context,
        lambda: send_command(
            run,
            journal,
            lambda control: control.endorse(value, reason, by=_sender(by, principal)),
        ),
    )
