"""Evidence from tools for a critique: no call is made twice; a repeated query gives its next result."""

import collections

from .._internal import dataclasses
from ..messages import JsonObject, Observation, ToolCall, hash_arguments
from ..parsing.arguments import (
    find_tool,
    read_arguments,
    read_name,
    read_plain_arguments,
)
from ..parsing.critiques import (
    Lookup,
    build_next_pages,
    quote_evidence,
    read_code,
    read_results,
)
from ..run import Run

NO_PROGRAM = "There is no program in a code fence in the answer."
NO_RESULTS = "There are no results."


@dataclasses.dataclass(frozen=True)
class Check:
    """One look-up: the claim, the tool, the status of the result, and the id of the call if one was made.

    The status is an observation's, or `empty` (the tool found nothing), or that of a look-up without a call:
    `unreadable` (its arguments) or `not_run` (there is no program). A call id that occurred before means that the
    result of the earlier call was used again.
    """

    claim: str
    tool: str
    status: str
    call_id: str = ""


class EvidenceSearch:
    """The look-ups of one run. Each call passes the gate, and equal calls are made once.

    Of a result that is a JSON list of texts or objects, one item is returned, and the next item when the same query is
    repeated. After the last item, a tool with an optional integer parameter `page`, `rank` or `offset` is called with
    the next number, as long as that gives new items. After that the last item is returned again. Each item is cut to
    `max_chars` characters.
    """

    def __init__(self, run: Run, max_chars: int) -> None:
        self._run, self._max_chars = run, max_chars
        self._observations: dict[tuple[str, str], Observation] = {}
        self._queries: collections.Counter[tuple[str, str]] = collections.Counter()

    async def find(self, lookup: Lookup) -> tuple[Check, str]:
        """Return the next result of a look-up or, unless the status is `ok`, why there is none."""
        name = read_name(lookup.tool, self._run.tools)
        tool = find_tool(name, self._run.tools)
        try:
            arguments, _ = read_arguments(lookup.input, name, tool)
        except ValueError as problem:
            check = Check(lookup.claim, name, "unreadable")
            return check, quote_evidence(str(problem), self._max_chars)
        key = name, hash_arguments(arguments)
        self._queries[key] += 1
        number = self._queries[key]
        results, last = await self._collect(name, arguments, number)
        check = Check(lookup.claim, name, last.status, last.call.id)
        if number > len(results):
            return self._describe_missing(check, results, last)
        text = results[number - 1]
        if len(results) > 1:
            text = f"(result {number} of {len(results)}) {text}"
        return check, self._cut(last, text)

    def _describe_missing(
        self, check: Check, results: list[str], last: Observation
    ) -> tuple[Check, str]:
        """Return the failure of a look-up without a new result, or its last result again."""
        if not last.ok:
            return check, self._cut(last, last.text)
        if not results:
            return dataclasses.replace(check, status="empty"), NO_RESULTS
        again = f"(asked before, and there is no other) {results[-1]}"
        return check, self._cut(last, again)

    async def run_code(self, name: str, answer: str) -> tuple[Check, str]:
        """Run the program of an answer with a tool that takes one text; return its output."""
        code = read_code(answer)
        if code is None:
            return Check("", name, "not_run"), NO_PROGRAM
        tool = find_tool(name, self._run.tools)
        arguments = read_plain_arguments(code, name, tool, quotes_are_text=True)
        seen = await self._call(name, arguments)
        return Check("", name, seen.status, seen.call.id), self._cut(seen, seen.text)

    def _cut(self, observation: Observation, text: str) -> str:
        """Cut a part of an observation and fence it as the observation is fenced."""
        return observation.fence_excerpt(quote_evidence(text, self._max_chars))

    async def _collect(
        self, name: str, arguments: JsonObject, count: int
    ) -> tuple[list[str], Observation]:
        """Return the results of as many pages as hold `count` results, and the last page."""
        pages = build_next_pages(find_tool(name, self._run.tools), arguments)
        page = await self._call(name, arguments)
        new = _read_results(page)
        results = dict.fromkeys(new)
        while new and len(results) < count:
            next_page = next(pages, None)
            if next_page is None:
                break
            page = await self._call(name, next_page)
            new = [result for result in _read_results(page) if result not in results]
            results |= dict.fromkeys(new)
        return [*results], page

    async def _call(self, name: str, arguments: JsonObject) -> Observation:
        """Call a tool, unless the same call was made before."""
        key = name, hash_arguments(arguments)
        if key not in self._observations:
            self._observations[key] = await self._run.call(ToolCall(name, arguments))
        return self._observations[key]


def _read_results(page: Observation) -> list[str]:
    if not page.ok:
        return []
    return [result for result in read_results(page.text) if result.strip()]
