"""The model calls of a context policy: effects below the model call that they are made for."""

import functools
import itertools
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from ...errors import AskFailed, LimitReached, ProviderError, format_error
from ...events.effect_key import context_key
from ...events.effects import ModelRequested
from ...messages import Conversation
from ...providers.base import Provider, Sampling
from ...providers.context.base import ContextAnswer
from ..session.session import Session
from .inference import Question, Reply, SettleForContext
from .output_type import OutputType
from .structured_output import ask_model

M = TypeVar("M", bound=BaseModel)
PURPOSE = "context"


class ContextQuestions:
    """Asks a model what a context policy wants to know for the model call at a key."""

    def __init__(
        self,
        session: Session,
        settle: SettleForContext,
        key: str,
        provider: Provider,
        next_key: Callable[[], str] | None = None,
        purpose: str = PURPOSE,
    ) -> None:
        self._session, self._settle = session, settle
        self._provider, self._purpose = provider, purpose
        numbers = map(functools.partial(context_key, key), itertools.count())
        self._next_key = next_key or functools.partial(next, numbers)

    async def __call__(
        self, prompt: str, into: type[M], *, covers: int = 0
    ) -> ContextAnswer[M]:
        """Return the answer; raise `AskFailed` where there is none, or no model call is left for it."""
        keys: list[str] = []

        async def settle(question: Question) -> Reply:
            keys.append(self._next_key())
            self._check_budget(keys[-1])
            return await self._settle(keys[-1], question, covers)

        clean = self._session.secrets.redactor.redact_text(prompt)
        try:
            value = await ask_model(
                settle, Conversation.of(clean), OutputType[M](into), Sampling(), self._provider, self._purpose
            )  # fmt: skip
        except ProviderError as error:
            raise AskFailed(f"{self._purpose}: {format_error(error)}") from error
        intent = self._session.replay.effects.intent(keys[0])
        if isinstance(intent, ModelRequested):
            covers = intent.covers  # of the process that asked
        return ContextAnswer(value, keys[-1], covers)

    def _check_budget(self, key: str) -> None:
        """Raise `AskFailed` if the run's calls are spent, which its limit says at the call that needs the answer."""
        if self._session.replay.effects.intent(key) is not None:
            return
        try:
            self._session.budget.check(1)
        except LimitReached as error:
            raise AskFailed(f"{self._purpose}: {error}") from error
