"""A model, tools, a gate and engines that say one text in each way in which they can say something."""

import contextlib
import dataclasses
import itertools
import json
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from pydantic import BaseModel

from loopwright import (
    Action,
    Allow,
    Ask,
    Delta,
    Deny,
    LoopEngine,
    LoopwrightError,
    ProviderError,
    Run,
    Tool,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.errors import AskFailed
from loopwright.gates import PolicyState
from loopwright.messages import Completion, Reasoning, ToolCall
from loopwright.providers import CallDelta, Capabilities, Request
from loopwright.testing import call
from loopwright.tools import CallCompleted, DeadLetter


class Words(BaseModel):
    """A structured reply."""

    words: str


class Gate:
    """Denies, changes or asks about what it is told to, in the words of the text."""

    version = "gate-1"

    def __init__(self, text: str) -> None:
        self._text = text

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        """Decide."""
        match action.tool:
            case "forbidden":
                return Deny(self._text)
            case "asked":
                return Ask(self._text)
            case _:
                return Allow()


def tools(text: str) -> list[Any]:  # noqa: C901 - eight tools
    """Tools that say the text in each way in which a tool can say something."""

    @tool(effect="read")
    async def words(note: str = "") -> str:
        """Text."""
        return f"It says:\n{text}\n{note}"

    @tool(effect="read")
    def fields(note: str = "") -> dict[str, Any]:
        """JSON."""
        return {"found": text, "inner": json.dumps({"deeper": [text, note]})}

    @tool(effect="read")
    def raw(note: str = "") -> bytes:
        """Bytes."""
        return f"{text} {note}".encode()

    @tool(effect="read")
    def told(note: str = "") -> str:
        """An error with words for the model."""
        raise ToolError(f"{text} {note}")

    @tool(effect="read")
    def broken(note: str = "") -> str:
        """An error with a cause, a note and a local variable."""
        kept = text
        try:
            raise KeyError(kept)
        except KeyError as error:
            error.add_note(kept)
            raise ValueError(kept, {"body": kept}) from error

    @tool(effect="write", recovery=(DeadLetter(queue="later"),))
    def dropped(note: str = "") -> str:
        """An error that is set aside."""
        raise OSError(text)

    @tool
    def forbidden(note: str = "") -> str:
        """Denied."""
        return text

    @tool
    def asked(note: str = "") -> str:
        """Asked about."""
        return text

    return [words, fields, raw, told, broken, dropped, forbidden, asked]


TOOLS = ("words", "fields", "raw", "told", "broken", "dropped", "forbidden", "asked")


class Model:
    """Says the text in each way in which a model can; when it streams, cut at random places."""

    name, model, capabilities = "model", "of-secrets", Capabilities(json_schema=True)

    def __init__(self, text: str) -> None:
        self._text, self._random = text, random.Random(text)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        """By what is asked."""
        self.requests.append(request)
        asked = request.conversation.messages[-1].content
        text, thoughts = (
            self._text,
            (
                Reasoning(self._text),
                Reasoning("", "thinking", {"thinking": self._text}),
            ),
        )
        if asked == "provider error":
            raise ProviderError(f"the model said: {text}", status=400)
        if asked == "crash":
            raise ValueError(text, {"body": text})
        if request.schema is not None:
            said = (
                "no JSON: " + text
                if asked == "unreadable"
                else json.dumps({"words": text})
            )
            return Completion(said, answer=said)
        if any(message.role == "tool" for message in request.conversation.messages):
            return Completion(
                text,
                answer=text,
                reasoning=thoughts,
                flags=(f"note: {text}",),
                model=text,
            )
        if not request.tools:
            return Completion(text, answer=text, reasoning=thoughts)
        calls = tuple(call(name, note=text) for name in TOOLS)
        return Completion(text, calls, thought=text, reasoning=thoughts)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """The same piece by piece."""
        whole = await self.complete(request)
        for thought in whole.reasoning:
            for piece in self._cut(thought.text):
                yield Delta(reasoning=piece)
        for piece in self._cut(whole.text):
            yield Delta(text=piece)
        for index, made in enumerate(whole.calls):
            yield Delta(call=CallDelta(index, name=made.name))
            for piece in self._cut(json.dumps(made.arguments)):
                yield Delta(call=CallDelta(index, arguments=piece))
        yield Delta(completion=whole)

    def _cut(self, text: str) -> Iterator[str]:
        places = sorted(
            {0, len(text), *(self._random.randrange(len(text) + 1) for _ in range(6))}
        )
        return (text[begin:end] for begin, end in itertools.pairwise(places))


@dataclasses.dataclass
class Fact:
    """Something that an engine notes."""

    said: str
    deep: list[dict[str, str]]


class BrokenEngine(LoopEngine):
    """A child that fails in the words of the text, which is its option."""

    name = "broken"
    prompt: str = ""

    async def solve(self, run: Run) -> str:
        """Fail."""
        run.offer(self.prompt)
        raise RuntimeError(self.prompt)


class EverythingEngine(LoopEngine):
    """Comes upon the text in each way in which an engine can, and fails with it in the end."""

    name = "everything"
    prompt: str = ""

    async def solve(self, run: Run) -> str:
        """All verbs."""
        text = self.prompt
        proposal = await run.reason(run.conversation)
        seen = await run.act(await run.gate(proposal))
        await run.reason(run.conversation.observe(proposal, seen))
        await run.act(
            await run.gate(
                run.propose(
                    *(ToolCall(name, {"note": text}) for name in TOOLS), thought=text
                )
            )
        )
        for question in ("what?", "unreadable"):
            with contextlib.suppress(AskFailed):
                await run.ask(question, into=Words)
        for question in ("provider error", "crash"):
            with contextlib.suppress(ProviderError):
                await run.ask(question)
        run.note({"said": text, "list": [text]})
        run.note(Fact(text, [{"said": text}]))
        await run.effect("value", self._value, into=dict[str, str])
        for error in (ValueError(text), ProviderError(text), ToolError(text)):
            with contextlib.suppress(LoopwrightError):
                await run.effect("error", self._raises(error), into=str)
        await run.permit("plan", {"steps": [text]})
        run.keep(
            (
                await run.delegate(
                    BrokenEngine(self.runtime, prompt=text), f"Do this: {text}"
                )
            ).conversation
        )
        try:
            raise KeyError(text)
        except KeyError as error:
            error.add_note(text)
            raise RuntimeError(text, [text]) from error

    async def _value(self) -> dict[str, str]:
        return {"said": self.prompt}

    @staticmethod
    def _raises(error: Exception) -> Callable[[], Any]:
        async def fail() -> str:
            raise error

        return fail


class Payer(Model):
    """Pays once, then says the text, or fails with it."""

    def __init__(self, text: str, *, fails: bool = False) -> None:
        super().__init__(text)
        self._fails = fails

    async def complete(self, request: Request) -> Completion:
        """By what was said last."""
        if request.conversation.messages[-1].role != "tool":
            return Completion(calls=(call("pay", cents=1),))
        if self._fails:
            raise ProviderError(self._text)
        return Completion(self._text, answer=self._text)


def pay(text: str, *, fails: bool = False) -> Tool:
    """A tool that is looked up and undone in the words of the text, or fails with it in both."""

    async def look_up(ctx: ToolContext[Any]) -> CallCompleted:
        if fails:
            raise OSError(text)
        return CallCompleted(f"known: {text}")

    async def undo(ctx: ToolContext[Any], result: str) -> str:
        if fails:
            raise ValueError(text)
        return f"undone: {text}"

    @tool(lookup=look_up, compensate=undo)
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    return pay
