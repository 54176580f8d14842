"""Words that this project does not use, the standard words for them, and where they stand in code and pages."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from density import walk

PROSE = {
    r"nobody('s)?|somebody('s)?|anybody('s)?|whoever|whomever": "the actor's name, or unowned",
    r"what came (of|out)|what has come of|what becomes? of|what became of": "outcome, result",
    r"in doubt|doubts?|doubtful": "unknown outcome",
    r"left behind": "abandoned",
    r"take[ns]? up|taking up|took up": "claim, resume",
    r"go(es|ing)? on|went on|gone on": "continue, resume",
    r"puts? back|let(s|ting)? go": "release",
    r"sets? aside|setting aside": "dead-letter",
    r"(in its|in their) place": "substitute",
    r"mend(s|ed|ing)?": "repair",
    r"a hand on": "control",
    r"st(an|oo)d(s|ing)? still": "paused",
    r"strangers?('s)?": "third-party",
    r"sealed": "with withheld arguments",
    r"re-?driv(e|es|en|ing)": "replay",
    r"egress": "SSRF guard",
    r"retell(s|ing)?|retold": "journal cassette",
    r"left-?overs?": "unused recorded effect",
    r"hand-?overs?": "handoff",
    r"lines? of control": "branch",
    r"(person|people|user|operator)('s|s') words?|words? (of|from) (a |the )?(person|people|user|operator)": "command",
    r"(gives?|asks?|has|have|had|needs?|wants?|waits?|waiting|without|no|for) leave": "approval",
    r"tak(es?|en|ing) back|took back": "revoke",
    r"tally|tallies": "rate counter",
    r"spellings?": "encodings",
    r"upto": "until",
    r"floors?": "layer",
    r"no longer anybody's|unheard|hears?|heard": "receive",
    r"elsewhere": "in another process",
    r"(?<!there )(?<!There )(is|are) no (?!(more|longer|way|need|one|reason|use|doubt)\b)[a-z]+": "is not a",
}
"""What comments, docstrings, error texts and pages do not say, as patterns of whole words, and what they say."""

NAMES = {
    "told|untold|telling": "message, text",
    "said": "message, text",
    "came|came_of|came_to": "outcome",
    "met": "observed",
    "doubts?|in_doubt": "unknown_outcome",
    "left_behind": "abandoned",
    "withdrawn": "cancelled",
    "tak(e|en|ing)_up|taken_up|untaken": "claim",
    "go(es)?_on|goes_on": "resume, continue",
    "put_back|let_go": "release",
    "set_aside": "dead_letter",
    "instead|in_place": "substitute",
    "mend(s|ed)?": "repaired",
    "hand": "control",
    "stands_still": "paused",
    "strangers?": "third_party",
    "foreign": "third_party",
    "nobodys?|somebody|whoever": "the actor",
    "sealed": "withheld",
    "redriv(e|en)": "replay",
    "conduct": "engine_usage",
    "ears?|listeners?": "watcher",
    "rooted": "sandboxed",
    "egress": "ssrf",
    "tally": "rate_counter",
    "retelling": "cassette",
    "elsewhere": "other_process",
    "pieces?": "chunk",
    "upto": "until",
    "left_?overs?": "unused",
    "hand_?over": "handoff",
    "(?<!dead_)letters?": "message",
    "hears?|heard": "received",
    "leave": "approval",
    "taken_back|take_back": "revoked",
    "spellings?": "encodings",
    "shapes?": "patterns",
}
"""Parts of names that the code does not have, as patterns of whole parts, and what stands for them."""

BEGINNINGS = {"most": "max", "least": "min", "longest": "max_length"}
"""The same, where a name begins with it."""


class Use(NamedTuple):
    """A private word, where it stands, and the standard word."""

    file: str
    line: int
    word: str
    standard: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}: say {self.standard}"


@functools.cache
def uses_in_code(path: Path, name: str) -> list[Use]:
    """Find private words in the names, comments, docstrings and texts of a module."""
    text = path.read_text(encoding="utf-8")
    nodes = walk(text)
    found = [
        Use(name, line, word, standard)
        for line, prose in (*_comments(text), *_texts(nodes))
        for word, standard in words_in_prose(prose)
    ]
    return found + [
        Use(name, line, identifier, standard)
        for line, identifier in sorted(_names(nodes), key=lambda item: item[0])
        for standard in _standards_of_name(identifier)
    ]


@functools.cache
def uses_in_page(path: Path, name: str) -> list[Use]:
    """Find private words on a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        Use(name, number, word, standard)
        for number, line in enumerate(lines, 1)
        for word, standard in words_in_prose(line)
    ]


def words_in_prose(text: str) -> Iterator[tuple[str, str]]:
    """Yield each private word of a text, with the standard word."""
    if not _ANY_PROSE.search(text.casefold()):
        return
    for pattern, standard in _PROSE.items():
        for found in pattern.finditer(text):
            yield found[0], standard


@functools.cache
def _standards_of_name(identifier: str) -> list[str]:
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower()
    return [standard for pattern, standard in _NAMES.items() if pattern.search(parts)]


_PROSE = {
    re.compile(rf"(?<![\w`.-])(?:{pattern})(?![\w`-])", re.I): standard
    for pattern, standard in PROSE.items()
}
_ANY_PROSE = re.compile(rf"(?<![\w`.-])(?:{'|'.join(map(str.lower, PROSE))})(?![\w`-])")
"""What finds in lower case whether there is any, in a tenth of the time of asking for each."""
_NAMES = {
    **{
        re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])"): standard
        for pattern, standard in NAMES.items()
    },
    **{
        re.compile(rf"^_?{beginning}(?:_|$)"): standard
        for beginning, standard in BEGINNINGS.items()
    },
}


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module, where any can have a private word: to find all takes longer than all else."""
    behind_signs = (line[line.index("#") :] for line in text.split("\n") if "#" in line)
    if not any(_ANY_PROSE.search(behind.casefold()) for behind in behind_signs):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _texts(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the texts of several words: docstrings and what people read; one word may be a stored name."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for offset, line in enumerate(node.value.split("\n")):
                if " " in line.strip():
                    yield node.lineno + offset, line


def _names(nodes: list[ast.AST]) -> set[tuple[int, str]]:
    """Collect the names that a module gives: of classes, functions, parameters, variables and attributes."""
    names: set[tuple[int, str]] = set()
    for node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            names.add((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add((node.lineno, node.attr))
    return names
