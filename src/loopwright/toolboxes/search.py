"""The toolbox `search`: one tool that searches the web by a service of your choice."""

import html
import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable
from urllib.parse import quote

from pydantic import Field

from .._internal import dataclasses
from ..errors import ConfigError, ToolError
from ..tools.base import Tool, tool
from ..tools.recovery import Retry
from .json_service import parse_service_url, send_json
from .option_checks import check_counts, check_positive
from .ssrf_guard import GuardedTransport

MAX_RESULTS = 20
MAX_QUERY = 400
MAX_TEXT = 1_000
"""Characters of a result."""
MAX_BYTES = 2_000_000
SLACK = 1.0
"""Seconds by which the runtime's timeout is later than ours, whose error says more."""
LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]{2,12})?")


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """A page that a search found.

    Args:
        title: its title.
        url: its address.
        text: what it says about the query, or how it begins.
    """

    title: str
    url: str
    text: str = ""


@runtime_checkable
class SearchService(Protocol):
    """What searches. It may have `secrets`, the keys that it knows, which a runtime with its tool redacts."""

    @property
    def name(self) -> str:
        """Return what it is called in the tool's description."""
        ...

    async def search(self, query: str, limit: int) -> Sequence[SearchResult]:
        """Return at most `limit` results, the best first.

        Raises `ToolError` for a failure that the model may read, anything else for one that may pass.
        """
        ...


def search(
    service: str | SearchService = "wikipedia",
    *,
    limit: int = 5,
    timeout: float = 20.0,
) -> list[Tool]:
    """Return the tool `web_search`, which takes one text, the query, and gives titles, addresses and excerpts.

    It is outbound, since the query leaves the house, and its results are text from outside. A failure that may pass is
    tried once more.

    Args:
        service: "wikipedia" (or "wikipedia/de"; no key), "searxng" (an instance of your own, whose address is in
            `SEARXNG_URL`; no key), "brave" (key in `BRAVE_API_KEY`), "tavily" (key in `TAVILY_API_KEY`), or a
            `SearchService`.
        limit: how many results, at most 20.
        timeout: seconds for one search.

    Raises:
        ConfigError: the service is unknown, its key is missing, or an argument cannot be used.
    """
    check_positive(timeout=timeout)
    check_counts(limit=limit)
    if limit > MAX_RESULTS:
        raise ConfigError(f"limit: must be at most {MAX_RESULTS}, got {limit}")
    found = _find_service(service, timeout)
    return [_build_tool(found, limit, timeout)]


def _build_tool(service: SearchService, limit: int, timeout: float) -> Tool:
    secrets: Iterable[str] = getattr(service, "secrets", ())

    @tool(
        effect="read",
        description=f"Search the web by {service.name}. Gives titles, addresses and excerpts.",
        timeout=timeout + SLACK,
        outbound=True,
        secrets=secrets,
        recovery=Retry(),
    )
    async def web_search(
        query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)],
    ) -> str:
        """Search the web.

        Args:
            query: words to look for, or a question.
        """
        results = await service.search(" ".join(query.split()), limit)
        return "\n\n".join(map(_format, results[:limit]))

    return web_search


def _format(result: SearchResult) -> str:
    text = " ".join(result.text.split())[:MAX_TEXT]
    return "\n".join(filter(None, (result.title.strip(), result.url, text)))


def _find_service(service: Any, timeout: float) -> SearchService:
    """Return a service, that of a name with its key; raise `ConfigError` for anything else."""
    if not isinstance(service, str):
        if isinstance(service, SearchService):
            return service
        raise ConfigError(
            f"service: needs `name` and a method `search`, got {type(service).__name__}"
        )
    name, _, argument = service.partition("/")
    build = _SERVICES.get(name)
    if build is None:
        known = ", ".join(_SERVICES)
        raise ConfigError(f"service: must be one of {known}, got {service!r:.80}")
    return build(argument, timeout)


def _read_variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ConfigError(f"service: variable {name!r} is not set; set it")
    return value


class JsonSearch:
    """The base of services that are asked by one request and answer with JSON.

    Args:
        base_url: the address of the service.
        timeout: seconds for a request.
        allow_private: hosts, addresses and networks that may be reached though they are not public.
    """

    name: ClassVar[str]
    secrets: tuple[str, ...] = ()

    def __init__(
        self,
        base_url: str,
        *,
        timeout: float = 20.0,
        allow_private: Sequence[str] = (),
    ) -> None:
        found = parse_service_url("base_url", base_url)
        self.base_url = base_url.rstrip("/")
        port = found.port or (443 if found.scheme == "https" else 80)
        self._transport = GuardedTransport(
            found.hostname or "", allow_private=allow_private, ports=[port], max_bytes=MAX_BYTES, timeout=timeout,
            max_idle=0,
        )  # fmt: skip

    async def search(self, query: str, limit: int) -> Sequence[SearchResult]:
        """Return what the service finds."""
        found = await self._ask(query, limit)
        try:
            return [self._read(item) for item in self._list(found)][:limit]
        except (KeyError, TypeError, AttributeError):
            raise ToolError(f"{self.name} answered in another form") from None

    async def _get(
        self,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        url = f"{self.base_url}{path}"
        return await send_json(self._transport, "GET", url, params=params, headers=headers)  # fmt: skip

    @abstractmethod
    async def _ask(self, query: str, limit: int) -> Any:
        """Return the JSON that the service answers."""

    @abstractmethod
    def _list(self, found: Any) -> Iterable[Any]:
        """Return the results in it."""

    @abstractmethod
    def _read(self, item: Any) -> SearchResult:
        """Return one of them."""


class WikipediaSearch(JsonSearch):
    """Searches Wikipedia, or another wiki by MediaWiki, without a key (API:Search).

    Args:
        language: which Wikipedia: "en", "de".
        base_url: another wiki.
        options: as for `JsonSearch`.
    """

    name = "Wikipedia"

    def __init__(
        self, language: str = "en", *, base_url: str | None = None, **options: Any
    ) -> None:
        if not LANGUAGE.fullmatch(language):
            raise ConfigError(f"language: must be a code like 'en', got {language!r}")
        super().__init__(base_url or f"https://{language}.wikipedia.org", **options)

    async def _ask(self, query: str, limit: int) -> Any:
        asked = {"srsearch": query, "srlimit": str(limit)}
        params = {"action": "query", "list": "search", "format": "json", **asked}
        return await self._get("/w/api.php", params)

    def _list(self, found: Any) -> Iterable[Any]:
        return found["query"]["search"]  # type: ignore[no-any-return]

    def _read(self, item: Any) -> SearchResult:
        title = str(item["title"])
        url = f"{self.base_url}/wiki/{quote(title.replace(' ', '_'))}"
        # The excerpt is HTML, with the words of the query marked.
        text = html.unescape(re.sub(r"<[^<>]{0,200}>", "", str(item["snippet"])))
        return SearchResult(title, url, text)


class SearxngSearch(JsonSearch):
    """Searches many engines through an instance of SearXNG that serves JSON (`search.formats`), without a key."""

    name = "SearXNG"

    async def _ask(self, query: str, limit: int) -> Any:
        return await self._get("/search", {"q": query, "format": "json"})

    def _list(self, found: Any) -> Iterable[Any]:
        return found["results"]  # type: ignore[no-any-return]

    def _read(self, item: Any) -> SearchResult:
        text = str(item.get("content") or "")
        return SearchResult(str(item["title"]), str(item["url"]), text)


class BraveSearch(JsonSearch):
    """Searches by the Brave Search API.

    Args:
        key: the subscription token.
        base_url: where the service is.
        options: as for `JsonSearch`.
    """

    name = "Brave Search"

    def __init__(
        self,
        key: str,
        *,
        base_url: str = "https://api.search.brave.com",
        **options: Any,
    ) -> None:
        super().__init__(base_url, **options)
        self.secrets = (key,)

    async def _ask(self, query: str, limit: int) -> Any:
        headers = {"x-subscription-token": self.secrets[0]}
        params = {"q": query, "count": str(limit)}
        return await self._get("/res/v1/web/search", params, headers)

    def _list(self, found: Any) -> Iterable[Any]:
        return found.get("web", {}).get("results", ())  # type: ignore[no-any-return]

    def _read(self, item: Any) -> SearchResult:
        # Words of the query are marked by tags.
        text = html.unescape(re.sub(r"</?strong>", "", str(item.get("description", ""))))  # fmt: skip
        return SearchResult(str(item["title"]), str(item["url"]), text)


class TavilySearch(JsonSearch):
    """Searches by the Tavily API.

    Args:
        key: the API key.
        base_url: where the service is.
        options: as for `JsonSearch`.
    """

    name = "Tavily"

    def __init__(
        self, key: str, *, base_url: str = "https://api.tavily.com", **options: Any
    ) -> None:
        super().__init__(base_url, **options)
        self.secrets = (key,)

    async def _ask(self, query: str, limit: int) -> Any:
        headers = {"authorization": f"Bearer {self.secrets[0]}"}
        body = json.dumps({"query": query, "max_results": limit})
        url = f"{self.base_url}/search"
        return await send_json(self._transport, "POST", url, headers=headers, body=body)

    def _list(self, found: Any) -> Iterable[Any]:
        return found["results"]  # type: ignore[no-any-return]

    def _read(self, item: Any) -> SearchResult:
        return SearchResult(str(item["title"]), str(item["url"]), str(item["content"]))


_SERVICES: dict[str, Callable[[str, float], SearchService]] = {
    "wikipedia": lambda argument, timeout: WikipediaSearch(
        argument or "en", timeout=timeout
    ),
    "searxng": lambda argument, timeout: SearxngSearch(
        argument or _read_variable("SEARXNG_URL"), timeout=timeout
    ),
    "brave": lambda argument, timeout: BraveSearch(
        _read_variable("BRAVE_API_KEY"), timeout=timeout
    ),
    "tavily": lambda argument, timeout: TavilySearch(
        _read_variable("TAVILY_API_KEY"), timeout=timeout
    ),
}
