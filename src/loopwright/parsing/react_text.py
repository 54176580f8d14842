"""Replies in ReAct text: their thoughts, actions, inputs, answers, and observations that the model
made up.
"""

from .._internal import dataclasses
from .tokenizer import TokenizedText, Tokenizer, read_value

PHRASES = {
    "thought": "thought",
    "action": "action",
    "input": "action input",
    "answer": "final answer",
    "observation": "observation",
}
TOKENIZER = Tokenizer(PHRASES)
# A plan's executor may be told to end a step so; it is an answer where the reply has no other.
EXTENDED_TOKENIZER = Tokenizer({**PHRASES, "result": "step result"})
INVENTED = "invented_observation"
"""The flag of a reply with an observation that the model made up."""
NO_ACTION = {"none", "n/a"}
MIN_CUT_STOP_WORD = 4  # letters of "Observation" that a server may leave behind when it cuts at the stop sequence
ANSWERS = ("answer", "result")
DECISIONS = ("action", *ANSWERS)


@dataclasses.dataclass(frozen=True)
class ParsedReply:
    """A reply up to its first self-written observation.

    Args:
        text: that part of the reply.
        tokenized: the markers in it.
        flags: "invented_observation" if something was cut off.
    """

    text: str
    tokenized: TokenizedText
    flags: tuple[str, ...]

    @property
    def decision(self) -> int | None:
        """Index of the first marker that is an answer or an action; `Action: None` is neither."""
        indices = range(len(self.tokenized.tokens))
        return next(filter(self._is_decision, indices), None)

    def _is_decision(self, index: int) -> bool:
        kind = self.tokenized.tokens[index].kind
        if kind != "action":
            return kind in ANSWERS
        first_line = self.value(index).partition("\n")[0]
        return first_line.strip(" \r.").casefold() not in NO_ACTION

    def with_results(self) -> "ParsedReply":
        """Return the reply read with `Step result:` as a marker of an answer."""
        if "result" not in self.text.casefold():
            return self
        tokenized = EXTENDED_TOKENIZER.tokenize(self.text)
        return dataclasses.replace(self, tokenized=tokenized)

    @property
    def thinks_only(self) -> bool:
        """Whether there are thoughts, at least one with its marker, and nothing else."""
        kinds = {token.kind for token in self.tokenized.tokens}
        if kinds != {"thought"} or self.flags:
            return False
        is_whole = self.tokenized.unread_start is None
        return is_whole and self.thought(None) != ""

    def value(self, index: int) -> str:
        """Return the text between a marker and the next one."""
        return read_value(self.text, self.tokenized.tokens, index)

    def continues_behind(self, index: int) -> bool:
        """Return whether the reply continues behind the value of a marker, so that the value cannot
        have been cut.
        """
        return index + 1 < len(self.tokenized.tokens) or bool(self.flags)

    def decides_behind(self, index: int) -> bool:
        """Return whether more actions or answers stand behind a marker."""
        behind = self.tokenized.tokens[index + 1 :]
        return any(token.kind in DECISIONS for token in behind)

    def thought(self, index: int | None) -> str:
        """Return the text before a marker (all of it without one), without the words `Thought:`."""
        tokens = self.tokenized.tokens
        thoughts: list[str] = []
        position = 0
        for token in tokens[:index]:
            if token.kind == "thought":
                thoughts.append(self.text[position : token.start].strip())
                position = token.value_start
        end = len(self.text) if index is None else tokens[index].start
        thoughts.append(self.text[position:end].strip())
        return "\n".join(filter(None, thoughts))


def read_reply(text: str) -> ParsedReply:
    """Return what the model says itself: the text from its own `Observation:` on is cut off and
    flagged.
    """
    text = _strip_cut_stop_word(text)
    tokenized = TOKENIZER.tokenize(text)
    for index, token in enumerate(tokenized.tokens):
        if token.kind == "observation":
            before = TokenizedText(tokenized.tokens[:index])
            flags = (INVENTED,)
            return ParsedReply(text[: token.start], before, flags)
    return ParsedReply(text, tokenized, ())


def _strip_cut_stop_word(text: str) -> str:
    """Return the text without a last line that is the beginning of "Observation"."""
    body = text.rstrip()
    start = body.rfind("\n") + 1
    last = body[start:].strip(" \t*#").casefold()
    is_cut = len(last) >= MIN_CUT_STOP_WORD and "observation".startswith(last)
    return body[:start] if is_cut else text
