"""Reading in the ReAct dialect: the call or the answer behind the marker that decides, or what is wrong with it."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ...messages import JsonObject, ToolCall
from ...parsing import find_closing_bracket, read_object
from ...parsing.arguments import (
    MARKUP,
    Signature,
    find_tool,
    get_parameters,
    list_tool_names,
    read_arguments,
    read_name,
    read_plain_arguments,
)
from ...parsing.plans.calls import find_call_end, read_written_arguments
from ...parsing.react_text import ParsedReply
from ...prompts import PromptSet
from .dialect import Parsed

ENDINGS = {"finish", "final answer", "final_answer", "finalanswer"}
NO_ANSWER = "no answer"
"""The answer of a model that finishes with none."""
THINK = "think"


class BracketedCall(NamedTuple):
    """A call in the paper's form, `name[input]`, and where in `text` its bracket opens."""

    name: str
    text: str
    opening: int


class ReplyReader(NamedTuple):
    """A reply and what is needed to read it; the methods raise ValueError with a text that tells the model why."""

    reading: ParsedReply
    thought: str
    tools: Sequence[Signature]
    prompts: PromptSet
    thoughts_alone: bool

    def read(self, decision: int | None) -> Parsed:
        """Return the call or the answer behind the marker `decision`, or a thought alone."""
        if decision is None:
            return self._read_thought()
        if self.reading.tokenized.tokens[decision].kind == "action":
            return self._read_action(decision)
        return self._read_answer(decision, self.reading.value(decision), "")

    def _read_thought(self) -> Parsed:
        if self.thoughts_alone:
            if self.reading.thinks_only:
                return Parsed(self.thought, (), None, None)
            text = self.reading.text.strip()
            if _is_think_call(text):
                inside = text[len(THINK) + 1 : -1].strip()
                return self._build_thought(inside, self.reading.flags)
        raise ValueError(self._explain_no_action())

    def _build_thought(self, thought: str, flags: tuple[str, ...]) -> Parsed:
        if not thought:
            raise ValueError(self._explain_no_action())
        return Parsed(thought, (), None, None, flags)

    def _explain_no_action(self) -> str:
        cure = self._explain_form()
        if "invented_observation" in self.reading.flags:
            return f"Never write `Observation:` yourself: it comes after your action. {cure}"
        if self.reading.tokenized.unread_start is not None:
            return f"A code fence is never closed, so nothing after it is read. {cure}"
        return f"The reply has neither an action nor a final answer, each at the start of a line and outside code. {cure}"

    def _explain_form(self) -> str:
        answer = self.prompts.fill("how_to_answer")
        if not self.tools:
            return f"Write {answer}."
        call = self.prompts.fill("how_to_call", tools=list_tool_names(self.tools))
        return f"Write {call}; or, if you know the answer, write {answer}."

    def _read_answer(self, last: int, answer: str, rest: str) -> Parsed:
        if not answer:
            raise ValueError(
                f"The final answer is empty. Write {self.prompts.fill('how_to_answer')}."
            )
        return Parsed(self.thought, (), answer, None, self._list_flags(last, rest))

    def _list_flags(self, last: int, rest: str) -> tuple[str, ...]:
        """Return what is dropped behind the marker `last` and its input: actions, an observation, other text."""
        behind = rest.strip(" \t\r\n.,;*`")
        if self.reading.decides_behind(last) or "[" in behind.partition("\n")[0]:
            return ("several_actions", *self.reading.flags)
        if behind:
            return ("trailing_text", *self.reading.flags)
        return self.reading.flags

    def _read_action(self, index: int) -> Parsed:
        value = self.reading.value(index)
        line, _, behind = value.partition("\n")
        opening = line.partition("{")[0].find("[")
        name = read_name(line[:opening], self.tools) if opening > 0 else ""
        if name:
            return self._read_bracketed(index, BracketedCall(name, value, opening))
        has_input = self._has_input(index)
        tool = None if has_input else self._find_function(line)
        if tool is not None:
            return self._read_function(index, tool, value)
        tool = None if has_input else self._find_object(line)
        if tool is not None:
            return self._read_input(index, tool.name, value[value.index("{") :])
        name = read_name(line, self.tools)
        if not self._is_plausible(name, has_input=has_input):
            raise ValueError(
                self.prompts.fill("bad_name", tools=list_tool_names(self.tools))
            )
        if has_input:
            return self._read_input(index + 1, name, self.reading.value(index + 1))
        if behind.strip():
            raise ValueError(self.prompts.fill("bad_input", name=name))
        return self._read_input(index, name, "")

    def _find_function(self, line: str) -> Signature | None:
        """Return the tool that a line calls like a function: `search("x")`, `search ({"query": "x"})`."""
        opening = line.find("(")
        if opening <= 0:
            return None
        return find_tool(line[:opening].strip(MARKUP + " "), self.tools)

    def _find_object(self, line: str) -> Signature | None:
        """Return the tool whose arguments stand as an object behind its name: `search {"query": "x"}`."""
        name, brace, _ = line.partition("{")
        return find_tool(name.strip(MARKUP + " :"), self.tools) if brace else None

    def _read_function(self, last: int, tool: Signature, value: str) -> Parsed:
        opening = value.index("(")
        close = find_call_end(value, opening)
        inside = value[opening + 1 : close]
        if close is None:
            self._check_end(last, f"{tool.name}(", tool, inside)
        arguments = read_written_arguments(inside, tool)
        rest = "" if close is None else value[close + 1 :]
        flags = self._list_flags(last, rest)
        return self._build_call(tool.name, arguments, flags, complete=close is not None)

    def _check_end(
        self, last: int, written: str, tool: Signature | None, inside: str
    ) -> None:
        """Raise ValueError unless the reply ends with a call that is not closed, and that takes one plain text."""
        is_plain = tool is not None and len(get_parameters(tool)) == 1
        is_end = inside.strip() != "" and not self.reading.continues_behind(last)
        if not is_plain or not is_end:
            raise ValueError(
                f"The bracket of {written} is never closed. Write the whole call again."
            )

    def _has_input(self, index: int) -> bool:
        """Return whether an `Action Input:` follows the marker at `index`."""
        following = self.reading.tokenized.tokens[index + 1 : index + 2]
        return any(token.kind == "input" for token in following)

    def _is_plausible(self, name: str, *, has_input: bool) -> bool:
        """Return whether a name is that of a tool; several words without an input are rather prose."""
        if not name or has_input or " " not in name:
            return bool(name)
        return find_tool(name, self.tools) is not None

    def _read_bracketed(self, last: int, call: BracketedCall) -> Parsed:
        close = _find_close(call)
        inside = call.text[call.opening + 1 : close].strip()
        rest = "" if close is None else call.text[close + 1 :]
        tool = find_tool(call.name, self.tools)
        if close is None:
            self._check_end(last, f"{call.name}[", tool, inside)
        special = call.name.casefold() if tool is None else ""
        if special in ENDINGS:
            return self._read_ending(last, inside, rest)
        flags = self._list_flags(last, rest)
        if special == THINK and self.thoughts_alone:
            thought = "\n".join(filter(None, (self.thought, inside)))
            return self._build_thought(thought, flags)
        if inside.startswith("{"):
            arguments, _ = read_arguments(inside, call.name, tool)
        else:
            arguments = read_plain_arguments(
                inside, call.name, tool, quotes_are_text=True
            )
        is_closed = close is not None
        return self._build_call(call.name, arguments, flags, complete=is_closed)

    def _read_ending(self, last: int, answer: str, rest: str) -> Parsed:
        """Return the answer of `Finish[...]`; an empty one says that there is none."""
        parsed = self._read_answer(last, answer or NO_ANSWER, rest)
        if answer:
            return parsed
        return dataclasses.replace(parsed, flags=("empty_answer", *parsed.flags))

    def _read_input(self, last: int, name: str, text: str) -> Parsed:
        tool = find_tool(name, self.tools)
        if tool is None and name.casefold() in ENDINGS:
            return self._read_answer(last, _unwrap_text(text), "")
        is_enclosed = text.startswith(("{", "```", "~~~"))
        if not is_enclosed and self._is_unread(last):
            raise ValueError(
                f"A code fence in the input of {name} is never closed. Write the whole call again."
            )
        arguments, rest = read_arguments(text, name, tool)
        complete = is_enclosed or self.reading.continues_behind(last)
        flags = self._list_flags(last, rest)
        return self._build_call(name, arguments, flags, complete=complete)

    def _is_unread(self, index: int) -> bool:
        """Return whether a code fence that never closes begins behind the marker at `index`."""
        tokenized = self.reading.tokenized
        if tokenized.unread_start is None:
            return False
        return tokenized.unread_start >= tokenized.tokens[index].value_start

    def _build_call(
        self,
        name: str,
        arguments: JsonObject,
        flags: tuple[str, ...],
        *,
        complete: bool = True,
    ) -> Parsed:
        call = ToolCall(name, arguments)
        return Parsed(self.thought, (call,), None, None, flags, complete)


def _is_think_call(text: str) -> bool:
    """Return whether a text is nothing but `think[...]`."""
    if not text.casefold().startswith(f"{THINK}["):
        return False
    return find_closing_bracket(text, len(THINK)) == len(text) - 1


def _find_close(call: BracketedCall) -> int | None:
    """Return where the bracket of a call closes, if it does; brackets in the strings of an object are ignored."""
    inside = call.text[call.opening + 1 :].lstrip()
    if inside.startswith("{"):
        return _find_close_behind_object(call, inside)
    return find_closing_bracket(call.text, call.opening)


def _find_close_behind_object(call: BracketedCall, inside: str) -> int | None:
    try:
        _, length = read_object(inside)
    except ValueError as error:
        raise ValueError(
            f"The input of {call.name} cannot be read: {error}. Write the whole call again."
        ) from None
    behind = inside[length:].lstrip()
    if not behind.startswith("]"):
        return None
    return len(call.text) - len(behind)


def _unwrap_text(text: str) -> str:
    """Return the text in an object such as `{"answer": "…"}`, else the text itself."""
    try:
        found, _ = read_object(text)
    except ValueError:
        return text
    values = list(found.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return text
