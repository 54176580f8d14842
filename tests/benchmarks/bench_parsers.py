"""How long the readers of model text take on hostile text of 256 kB: `python tests/benchmarks/bench_parsers.py`."""

import contextlib
import time
from collections.abc import Callable

from loopwright.messages import ToolSpec
from loopwright.parsing import read_json_document, read_object
from loopwright.providers.dialects import JsonDialect, ReActDialect, XmlDialect

SIZE = 256 * 1024
TEXT = {"type": "string"}
TOOLS = (
    ToolSpec(
        "search",
        "",
        {"type": "object", "properties": {"query": TEXT}, "required": ["query"]},
    ),
    ToolSpec(
        "write",
        "",
        {
            "type": "object",
            "properties": {"path": TEXT, "text": TEXT},
            "required": ["path", "text"],
        },
    ),
)

# name → the beginning of a text and what is repeated behind it up to 256 kB
SHAPES = {
    "actions": ("", "Action:"),
    "action lines": ("", "Action: search[x]\n"),
    "empty action lines": ("", "Action:\n"),
    "inputs": ("Action: search\n", "Action Input:\n"),
    "answers": ("", "Final Answer:\n"),
    "thoughts": ("", "Thought:\n"),
    "observations": ("Action: search[x]\n", "Observation:\n"),
    "bold markers": ("", "**Thought:** \n"),
    "half markers": ("", "**final_ _ _\n"),
    "blanks behind a marker word": ("", "action" + " " * 1000 + "\n"),
    "open brackets": ("Action: search[", "["),
    "bracket pairs": ("Action: search[", "[]"),
    "half calls": ("Action: ", "search["),
    "open braces": ("Action: write\nAction Input: ", "{"),
    "brace pairs": ("Action: write\nAction Input: {", "{}"),
    "deep objects": ("Action: write\nAction Input: ", '{"a":'),
    "deep literals": ("Action: write\nAction Input: ", "{'a':"),
    "long list": ('Action: write\nAction Input: {"a":[', "1,"),
    "long literal": ("Action: write\nAction Input: {'a':[", "'',"),
    "keys": ('Action: write\nAction Input: {"a":1', ',"a":1'),
    "digits": ('Action: write\nAction Input: {"a":', "9"),
    "quotes": ('Action: write\nAction Input: {"a":', '"'),
    "apostrophes": ("Action: write\nAction Input: {", "'"),
    "backslashes": ('Action: write\nAction Input: {"a":"', "\\"),
    "escaped surrogates": ('Action: write\nAction Input: {"a":"', "\\ud800"),
    "many objects": ("", '{"action":"search","action_input":{}}\n'),
    "braces in prose": ("", "{x} "),
    "spaces": ("", " "),
    "tabs behind Action": ("Action:", "\t"),
    "newlines": ("", "\n"),
    "carriage returns": ("", "\r"),
    "line separators": ("", "\u2028"),
    "blank lines": ("", " \n"),
    "fences": ("", "```\n"),
    "inline fences": ("", "``` "),
    "a run of backticks": ("", "`"),
    "fenced input": ("Action: search\nAction Input: ```json\n", "``` x\n"),
    "stars": ("", "*"),
    "hashes": ("", "# "),
    "letters": ("", "a"),
    "opening tags": ("", "<tool_call>"),
    "half tags": ("", "<tool_call "),
    "closing tags": ("", "</tool_call>"),
    "tags and fences": ("", "``` <tool_call>\n"),
    "tags in fences": ("", "```\n<tool_call>\n```\n"),
    "tags in code": ("", "`<tool_call>` "),
    "tags behind code": ("", "`` ` <tool_call>\n\n"),
    "code behind a tag in code": ("`<tool_call>` ", "` `` ~~~ "),
    "short code behind a tag in code": ("`<tool_call>` ", "`a` "),
    "open code behind a tag in code": ("`<tool_call>` ", "`a``\n\n"),
    "blanks in a tag": ("<", " "),
    "less than": ("", "< "),
    "calls": ("", '<tool_call>{"name":"search","arguments":{}}</tool_call>'),
    "calls in one block": ("<tool_call>", '{"name":"search","arguments":{}}'),
    "calls in wide letters": (
        "<tool_call>",
        '{"name":"search","arguments":{"query":"\U0001f600"}}',
    ),
    "calls without tags": ("", '{"name":"search","arguments":{}}\n'),
    "fences in a block": ("<tool_call>", '```{"name":"search","arguments":{}}```'),
    "lists in a block": ("<tool_call>", "["),
    "empty lists in a block": ("<tool_call>", "[]"),
    "parameters": ("<tool_call><function=write>", "<parameter=a>"),
    "parameters in one call": (
        "<tool_call><function=write>",
        "<parameter=a>1</parameter>",
    ),
    "parameters with ends": (
        "<tool_call><function=write>",
        "<parameter=a></parameter>",
    ),
    "gaps": ("<tool_call", "\n \n"),
}
READERS: dict[str, Callable[[str], object]] = {
    "react": lambda text: ReActDialect().parse(text, TOOLS),
    "json": lambda text: JsonDialect().parse(text, TOOLS),
    "xml": lambda text: XmlDialect().parse(text, TOOLS),
}
JSON_READERS: dict[str, Callable[[str], object]] = {
    "read_json_document": lambda text: read_json_document(
        text[max(text.find("{"), 0) :]
    ),
    "read_object": lambda text: read_object(text, max(text.find("{"), 0)),
}


def hostile(name: str) -> str:
    """256 kB of one of the shapes."""
    start, unit = SHAPES[name]
    return (start + unit * (SIZE // len(unit) + 1))[:SIZE]


def milliseconds(reader: Callable[[str], object], text: str) -> float:
    """The best of three, so that a busy machine counts less."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        with contextlib.suppress(ValueError):
            reader(text)
        best = min(best, time.perf_counter() - started)
    return best * 1000


def main() -> None:
    """Print one line for each shape, and the worst."""
    readers = {**READERS, **JSON_READERS}
    worst = dict.fromkeys(readers, 0.0)
    print(f"{'256 kB of':30}", *(f"{name:>12}" for name in readers), " ms")
    for shape in SHAPES:
        text = hostile(shape)
        figures = {name: milliseconds(reader, text) for name, reader in readers.items()}
        worst = {name: max(worst[name], figure) for name, figure in figures.items()}
        print(f"{shape:30}", *(f"{figure:12.2f}" for figure in figures.values()))
    print(f"{'worst':30}", *(f"{figure:12.2f}" for figure in worst.values()))


if __name__ == "__main__":
    main()
