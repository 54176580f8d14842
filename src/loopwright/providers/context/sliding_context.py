"""SlidingContext: masks old results, then leaves out the oldest turns, afresh for each model call."""

from collections.abc import Sequence

from ..._internal import dataclasses
from ...messages import Conversation, Message, estimate_size, mark_entry
from .tokens import BYTES_PER_TOKEN, estimate_tokens

MASK = "[an earlier result, left out to save space]"
MASK_SIGN = "*"
"""Ends the code of a result in whose place the model read `MASK`."""


def mask_result(result: Message) -> Message:
    """Return the message in place of an old result, which leaves out what the tool returned."""
    masked = dataclasses.replace(result, content=MASK, attachments=())
    if result.entry is not None:
        run_id, code = result.entry
        mark_entry(masked, (run_id, f"{code}{MASK_SIGN}"))
    return masked


def group_turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages into turns: an assistant message goes with the results of its calls."""
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and turns:
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def find_newest_turn(messages: Sequence[Message]) -> int:
    """Return the index of the first message of the newest turn; 0 without messages."""
    start = max(len(messages) - 1, 0)
    while start and messages[start].role == "tool":
        start -= 1
    return start


@dataclasses.dataclass(frozen=True)
class SlidingContext:
    """Masks all but the newest `keep_results` tool results, then drops the oldest turns."""

    keep_results: int = 3

    def fit(self, conversation: Conversation, tokens: int) -> Conversation:
        """Return the conversation in about `tokens` tokens."""
        if estimate_tokens(conversation) <= tokens:
            return conversation
        turns = group_turns(self._mask_results(conversation.messages))
        kept = _select_turns(turns, tokens * BYTES_PER_TOKEN)
        return Conversation(message for index in kept for message in turns[index])

    def _mask_results(self, messages: tuple[Message, ...]) -> list[Message]:
        results = [i for i, message in enumerate(messages) if message.role == "tool"]
        masked = list(messages)
        for index in results[: max(len(results) - self.keep_results, 0)]:
            result = messages[index]
            if len(result.content) > len(MASK) or result.attachments:
                masked[index] = mask_result(result)
        return masked


def _select_turns(turns: list[list[Message]], size: int) -> list[int]:
    """Return the indexes of the turns to keep: the required ones, then the newest that fit."""
    required = find_required(turns)
    kept = set(required)
    room = size - sum(_measure(turns[index]) for index in required)
    for index in reversed(range(len(turns))):
        if index in required:
            continue
        room -= _measure(turns[index])
        if room < 0:
            break
        kept.add(index)
    return sorted(kept)


def find_required(turns: list[list[Message]]) -> set[int]:
    """Return the indexes of system messages, the task and the newest turn.

    The task is the newest user message of the caller or, without one, the first user message.
    """
    first = [turn[0] for turn in turns]
    systems = [i for i, message in enumerate(first) if message.role == "system"]
    users = [i for i, one in enumerate(first) if one.role == "user" and not one.slot]
    tasks = [i for i in users if first[i].origin == "caller"]
    newest = range(len(turns))[-1:]
    return {*systems, *(tasks[-1:] or users[:1]), *newest}


def _measure(turn: list[Message]) -> int:
    return sum(map(estimate_size, turn))
