"""Looking claims up through tools: no call is made twice, and a query that is repeated brings the next result."""

import collections
import dataclasses

from ..messages import JsonObject, Observation, ToolCall, arguments_hash
from ..parsing.arguments import (
    find_tool,
    read_arguments,
    read_name,
    read_plain_arguments,
)
from ..parsing.critiques import (
    Lookup,
    build_next_pages,
    quoted,
    read_code,
    read_results,
)
from ..run import Run

NO_PROGRAM = "There is no program in a code fence in the answer."


@dataclasses.dataclass(frozen=True)
class Check:
    """One look-up: the claim, the tool, the status of what came back, and the id of the call if there was one.

    A status is an observation's, or `empty` (the tool found nothing), or one of a look-up for which nothing ran:
    `unreadable` (its arguments) and `not_run` (there is no program).
    A call id that was there before says that what an earlier call brought was told.
    """

    claim: str
    tool: str
    status: str
    call_id: str = ""


class LookUps:
    """The look-ups of one run. Each call passes the gate; the same one is made once.

    Of a result that is a JSON list of texts or objects one item is told, and the next when the same is asked again.
    When there are no more, a tool with an optional integer parameter `page`, `rank` or `offset` is called with the next
    number, as long as that brings something new. After that the last result is told again. Of each no more than `most`
    characters are told.
    """

    def __init__(self, run: Run, most: int) -> None:
        self._run, self._most = run, most
        self._seen: dict[tuple[str, str], Observation] = {}
        self._asked: collections.Counter[tuple[str, str]] = collections.Counter()

    async def find(self, wanted: Lookup) -> tuple[Check, str]:
        """What a look-up brings now: a result or, unless its status is `ok`, why there is none."""
        name = read_name(wanted.tool, self._run.tools)
        try:
            arguments, _ = read_arguments(
                wanted.input, name, find_tool(name, self._run.tools)
            )
        except ValueError as problem:
            return Check(wanted.claim, name, "unreadable"), quoted(
                str(problem), self._most
            )
        key = name, arguments_hash(arguments)
        self._asked[key] += 1
        number = self._asked[key]
        results, last = await self._results(name, arguments, number)
        check, count = (
            Check(wanted.claim, name, last.status, last.call.id),
            len(results),
        )
        if number <= count:
            result = results[number - 1]
            return check, self._told(
                last, result if count == 1 else f"(result {number} of {count}) {result}"
            )
        if not last.ok:
            return check, self._told(last, last.text)
        if not results:
            return dataclasses.replace(check, status="empty"), "There are no results."
        return check, self._told(
            last, f"(asked before, and there is no other) {results[-1]}"
        )

    async def execute(self, name: str, answer: str) -> tuple[Check, str]:
        """What a tool that takes one text makes of the program in an answer."""
        code = read_code(answer)
        if code is None:
            return Check("", name, "not_run"), NO_PROGRAM
        arguments = read_plain_arguments(
            code, name, find_tool(name, self._run.tools), quotes_are_text=True
        )
        seen = await self._call(name, arguments)
        return Check("", name, seen.status, seen.call.id), self._told(seen, seen.text)

    def _told(self, seen: Observation, text: str) -> str:
        """A stretch of what a tool said, as the critic is to read it."""
        return seen.showing(quoted(text, self._most))

    async def _results(
        self, name: str, arguments: JsonObject, most: int
    ) -> tuple[list[str], Observation]:
        """The results of as many pages as it takes to have `most`, if there are so many, and the last page."""
        pages = build_next_pages(find_tool(name, self._run.tools), arguments)
        page = await self._call(name, arguments)
        new = _ranked(page)
        results = dict.fromkeys(new)
        while (
            new and len(results) < most and (following := next(pages, None)) is not None
        ):
            page = await self._call(name, following)
            new = [one for one in _ranked(page) if one not in results]
            results |= dict.fromkeys(new)
        return [*results], page

    async def _call(self, name: str, arguments: JsonObject) -> Observation:
        key = name, arguments_hash(arguments)
        if key not in self._seen:
            self._seen[key] = await self._run.call(ToolCall(name, arguments))
        return self._seen[key]


def _ranked(page: Observation) -> list[str]:
    return [one for one in read_results(page.text) if one.strip()] if page.ok else []
