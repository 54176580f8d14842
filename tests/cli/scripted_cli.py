"""A provider, tools and an output model for the tests of the command line: `--provider scripted:NAME`."""

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from pydantic import BaseModel, field_validator

from loopwright import (
    Capabilities,
    Completion,
    Delta,
    ProviderError,
    Reasoning,
    Request,
    ToolContext,
    tool,
)
from loopwright.engines import Trajectory
from loopwright.testing import ScriptedProvider, call
from loopwright.testing.scripted import Line
from loopwright.tools import DeadLetter, Escalate, Retry

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]not bold[/bold] \x9b2J \u202eabc end\r"
)


@tool(effect="read")
def capital(country: str) -> str:
    """Look up the capital of a country."""
    log(f"capital {country}")
    return "Paris"


@tool(effect="destructive")
def wipe(path: str) -> str:
    """Delete everything."""
    log(f"wipe {path}")
    return "wiped"


def loud(word: str) -> str:
    """Print a word."""
    print(f"LOUD {word}")
    return HOSTILE


@tool(effect="read")
def starts(program: str) -> str:
    """Start a program, in both ways; and print past `sys.stdout`."""
    subprocess.run(["echo", f"FROM {program}"], check=True)
    subprocess.run(["echo", f"HANDED TO {program}"], stdout=sys.stdout, check=True)
    print("FROM THE STREAM ITSELF", file=sys.__stdout__)
    return "started"


@tool(effect="read")
def prints_bytes(word: str) -> str:
    """Print as programs do that write bytes."""
    sys.stdout.buffer.write(f"BYTES {word} é".encode() + b" \xff")
    return "printed"


@tool(effect="read")
async def slow(seconds: float) -> str:
    """Take long."""
    log("slow")
    await asyncio.sleep(float(os.environ.get("SCRIPTED_SECONDS", seconds)))
    return "late"


@tool(effect="write")
async def pay(cents: int) -> str:
    """Pay."""
    log("pay")
    await asyncio.sleep(float(os.environ.get("SCRIPTED_SECONDS", "0")))
    return f"paid {cents}"


@tool(effect="read", recovery=[Retry(base_delay=0), Escalate()])
async def door(number: int) -> str:
    """Open a door."""
    log("door")
    raise OSError(f"door {number} is stuck {HOSTILE}")


@tool(effect="write", recovery=DeadLetter())
async def letter(to: str) -> str:
    """Send a letter."""
    raise OSError("no stamps")


def unbook(ctx: ToolContext[None], result: str) -> str:
    """Cancel a booking."""
    log(f"unbook {ctx.arguments['what']}")
    return "cancelled"


@tool(compensate=unbook)
def book(what: str) -> str:
    """Book."""
    log(f"book {what}")
    return f"{what} booked"


both = [capital, wipe]
a_number = 3


def box(names: str = "capital") -> list[object]:
    """The toolbox of the entry point: the named tools."""
    return [{"capital": capital, "wipe": wipe}[name] for name in names.split(",")]


def is_paris(trajectory: Trajectory) -> bool:
    """An evaluator."""
    return "Paris" in (trajectory.answer or "")


class City(BaseModel):
    """A city."""

    name: str


class Reading(BaseModel):
    """A measured value, which may be too large to say."""

    celsius: float
    where: str = HOSTILE

    @field_validator("celsius")
    @classmethod
    def not_too_hot(cls, celsius: float) -> float:
        """What no thermometer reads is infinite."""
        return celsius if celsius < 1000 else math.inf


def log(line: str) -> None:
    """Keep what really happened, for the test."""
    if "SCRIPTED_LOG" in os.environ:
        with Path(os.environ["SCRIPTED_LOG"]).open("a") as kept:
            kept.write(line + "\n")


def turn(request: Request) -> int:
    """How many times the model has spoken."""
    return sum(message.role == "assistant" for message in request.conversation.messages)


def told(request: Request) -> str:
    """The last message."""
    return request.conversation.messages[-1].content


def follow(name: str, request: Request) -> Line:  # noqa: C901 - a table of scripts
    """The next line of a script; each depends on the request alone, so that it is the same in every process."""
    log(f"model {name}")
    number = turn(request)
    match name:
        case "capital":
            return "It is Paris." if number else Completion(
                "Let me see.", (call("capital", country="France"),), thought="Let me see.", model="capital"
            )  # fmt: skip
        case "wipe":
            return (
                f"I was told: {told(request)}"
                if number
                else call("wipe", path="/tmp/x")
            )
        case "slow":
            return "done" if number else call("slow", seconds=600)
        case "hostile":
            if number:
                return HOSTILE
            thinking = (Reasoning(HOSTILE),)
            return Completion(
                HOSTILE,
                (call("loud", word=HOSTILE),),
                thought=HOSTILE,
                reasoning=thinking,
                model="m",
            )
        case "starts" | "prints_bytes" | "dots":
            arguments = {"starts": {"program": "é"}, "prints_bytes": {"word": "é"}}.get(
                name, {}
            )
            return f"It {told(request)}." if number else call(name, **arguments)
        case "reading":
            return '{"celsius": 1001}'
        case "slow_wipe":
            return (
                call("slow", seconds=600),
                call("wipe", path="/tmp/x"),
                f"I was told: {told(request)}",
            )[number]
        case "pay":
            return f"I was told: {told(request)}" if number else call("pay", cents=500)
        case "door":
            return f"I was told: {told(request)}" if number else call("door", number=7)
        case "ask":
            return (
                f"I was told: {told(request)}"
                if number
                else call("ask_user", question="Which\x1b[31m one?")
            )
        case "letter":
            return "I tried." if number else call("letter", to="Ada")
        case "book":
            if number:
                raise ProviderError("the model is gone", status=400)
            return [call("book", what="hotel"), call("book", what="car")]
        case "same":
            return call("capital", country="France")
        case "critic":
            said = [m.content for m in request.conversation if m.role == "assistant"]
            if not any("a critic" in m.content for m in request.conversation):
                return f"draft {len(said)}"
            score = 0.9 if said == ["draft 1"] else 0.4
            return json.dumps({"feedback": "Shorter.", "score": score})
        case "chatty":
            return call("capital", country=str(number))
        case "typo":
            raise RuntimeError("a bug in the provider")
        case "fails":
            raise ProviderError("the model is not to be had\x1b[2J", status=400)
        case "city":
            return '{"name": "Paris"}'
        case "what":
            sent = request.conversation.messages
            return " | ".join(
                f"{m.role} {m.content} {[a.media_type for a in m.attachments]}"
                for m in sent
            )
        case "text":
            return (
                "Final Answer: 4"
                if number
                else 'Thought: hm\nAction: capital\nAction Input: {"country": "France"}'
            )
        case _:
            return name


class Scripted(ScriptedProvider):
    """Follows a script by its name."""

    def __init__(self, name: str) -> None:
        abilities = Capabilities(native_tools=name != "text", json_schema=False)
        super().__init__(
            lambda request: follow(name, request), model=name, capabilities=abilities
        )


class Endless(ScriptedProvider):
    """Streams words until it is stopped."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """A word now and then."""
        while True:
            yield Delta(text="word ")
            await asyncio.sleep(0.01)


def talk(request: Request) -> Line:
    """Say how many messages were read, or call the tool that the last one names."""
    said = [m.content for m in request.conversation if m.role == "user"]
    results = [m for m in request.conversation.messages[-2:] if m.role == "tool"]
    if results:
        return f"the tool said {results[0].content}; you said {' | '.join(said)}"
    calls = {"wipe": call("wipe", path="/tmp/x"), "slow": call("slow", seconds=1)}
    found = calls.get(said[-1])
    return f"{len(said)}: {said[-1]}" if found is None else found


class Talker(ScriptedProvider):
    """Talks; asked for words, it gives one after the other."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream some words, or a reply at once."""
        counts = {"some words": 15, "endless words": 10_000}
        for number in range(counts.get(request.conversation.task, 0)):
            yield Delta(text=f"word{number} ")
            await asyncio.sleep(0.05)
        async for delta in super().stream(request):
            yield delta


def provider(name: str = "capital") -> ScriptedProvider:
    """The entry point."""
    if name == "talk":
        return Talker(talk, model="talk")
    return Endless([], model="endless") if name == "endless" else Scripted(name)
