"""Offers: the tools that a provider may run by itself in a model call, as far as policy allows them."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ...errors import Denied
from ...events.effect_key import offer_key
from ...labels import is_at_least
from ...messages import Effect, Json
from ...providers.base import Provider
from ...providers.provider_tools import ProviderTool
from ..session.services import Services
from ..session.session import Session

Permit: TypeAlias = Callable[[str, dict[str, Json], Effect, str], Awaitable[None]]
"""Has policy decide about something of the engine's own; raises `Denied`, or waits."""


class Offers:
    """Has policy decide about the provider-side tools of one scope before each request that offers them."""

    def __init__(self, session: Session, services: Services, permit: Permit) -> None:
        self._session, self._services = session, services
        self._permit = permit

    async def choose(self, key: str, provider: Provider) -> tuple[ProviderTool, ...]:
        """Return the tools that the model call at a key may offer.

        None once the run has read something sensitive, or has no tool call left: what the
        provider looks for leaves this process, and is seen only afterwards.
        """
        session, kinds = self._session, provider.capabilities.provider_tools
        declared = self._services.tools.provider_tools
        known = [tool for tool in declared if tool.kind in kinds]
        is_sensitive = is_at_least(session.sensitivity.label, "sensitive")
        if not known or is_sensitive or not session.budget.has_tool_call:
            return ()
        allowed: list[ProviderTool] = []
        for number, tool in enumerate(known):
            if await self._is_allowed(tool, offer_key(key, number)):
                allowed.append(tool)
        return tuple(allowed)

    async def _is_allowed(self, tool: ProviderTool, key: str) -> bool:
        try:
            await self._permit(tool.action, {}, "write", key)
        except Denied:
            return False
        return True
