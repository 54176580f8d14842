"""The parts of a reply in ReAct text: thoughts, actions, inputs, answers, and what the model made up by itself."""

import dataclasses

from .tokenizer import TokenizedText, Tokenizer, read_value

WORDS = {
    "thought": "thought",
    "action": "action",
    "input": "action input",
    "answer": "final answer",
    "observation": "observation",
}
TOKENIZER = Tokenizer(WORDS)
# A plan's executor may be told to end a step so; it is an answer where the reply has no other.
EXTENDED_TOKENIZER = Tokenizer({**WORDS, "result": "step result"})
NO_ACTION = {"none", "n/a"}
MIN_CUT_STOP_WORD = 4  # letters of "Observation" that a server may leave behind when it cuts at the stop sequence


@dataclasses.dataclass(frozen=True)
class ParsedReply:
    """A reply up to its first self-written observation, and the markers in it."""

    text: str
    tokenized: TokenizedText
    flags: tuple[str, ...]

    @property
    def decision(self) -> int | None:
        """The first marker that is an answer or an action; `Action: None` is none."""
        return next(
            (
                index
                for index in range(len(self.tokenized.tokens))
                if self._decides(index)
            ),
            None,
        )

    def _decides(self, index: int) -> bool:
        kind = self.tokenized.tokens[index].kind
        if kind == "action":
            return (
                self.value(index).partition("\n")[0].strip(" \r.").casefold()
                not in NO_ACTION
            )
        return kind in ("answer", "result")

    def with_results(self) -> "ParsedReply":
        """The reply read again, with `Step result:` as a marker of an answer."""
        if "result" not in self.text.casefold():
            return self
        return dataclasses.replace(
            self, tokenized=EXTENDED_TOKENIZER.tokenize(self.text)
        )

    @property
    def thinks_only(self) -> bool:
        """Whether there are thoughts, at least one with its marker, and nothing else."""
        only = {token.kind for token in self.tokenized.tokens} == {"thought"}
        return (
            only
            and not self.flags
            and self.tokenized.unread_start is None
            and self.thought(None) != ""
        )

    def value(self, index: int) -> str:
        """What stands between a marker and the next one."""
        return read_value(self.text, self.tokenized.tokens, index)

    def goes_on_behind(self, index: int) -> bool:
        """Whether the reply went on behind the value of a marker, so that the value cannot have been cut short."""
        return index + 1 < len(self.tokenized.tokens) or bool(self.flags)

    def decides_behind(self, index: int) -> bool:
        """Whether more actions or answers stand behind a marker."""
        return any(
            token.kind in ("action", "answer", "result")
            for token in self.tokenized.tokens[index + 1 :]
        )

    def thought(self, index: int | None) -> str:
        """The text before a marker (all of it without one), without the words `Thought:`."""
        parts: list[str] = []
        position = 0
        for token in self.tokenized.tokens[:index]:
            if token.kind == "thought":
                parts.append(self.text[position : token.start].strip())
                position = token.value_start
        end = len(self.text) if index is None else self.tokenized.tokens[index].start
        parts.append(self.text[position:end].strip())
        return "\n".join(filter(None, parts))


def read_reply(text: str) -> ParsedReply:
    """The part of `text` that is the model's to say: what comes after its own `Observation:` is cut off and flagged."""
    text = _without_cut_stop_word(text)
    tokenized = TOKENIZER.tokenize(text)
    for index, token in enumerate(tokenized.tokens):
        if token.kind == "observation":
            return ParsedReply(
                text[: token.start],
                TokenizedText(tokenized.tokens[:index]),
                ("invented_observation",),
            )
    return ParsedReply(text, tokenized, ())


def _without_cut_stop_word(text: str) -> str:
    body = text.rstrip()
    start = body.rfind("\n") + 1
    last = body[start:].strip(" \t*#").casefold()
    return (
        body[:start]
        if len(last) >= MIN_CUT_STOP_WORD and "observation".startswith(last)
        else text
    )
