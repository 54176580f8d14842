"""Ask for several replies to one question: by one request where the provider can, else by one for each."""

import asyncio

from ..._internal import dataclasses
from ...errors import ConfigError, LimitReached, LoopwrightError, ProviderError
from ...events.effect_key import sample_key
from ...messages import Conversation, Proposal
from ...providers.base import Provider, Sampling
from ..session.branches import Branches, Turn
from .cycle import Cycle
from .hooked_question import hook_question
from .hooked_texts import hook_reply
from .inference import Asked, Begun, Question, Reply
from .reason import ReasonOptions, deliver, expect_output


async def sample(
    cycle: Cycle,
    conversation: Conversation,
    number: int,
    provider: Provider,
    options: ReasonOptions,
) -> tuple[Proposal, ...]:
    """Return proposals of the model, each of which the gate takes once.

    A reply that was cut or cannot be read is a thought without calls or an answer.
    """
    if number < 1:
        raise ConfigError(f"n: must be at least 1, got {number}")
    question = Question(
        "samples",
        conversation,
        provider,
        options.get("tools", True),
        sampling=options.get("sampling", Sampling()),
        purpose=options.get("purpose", ""),
    )
    question = expect_output(cycle, question)
    if cycle.services.tools.has_sources:
        await cycle.renew_tools()
    cycle.keep(question.conversation)
    asked = await deliver(cycle, question)
    effect = cycle.scope.next_key()
    keys = [sample_key(effect, index) for index in range(number)]
    asked = await _hook_asked(cycle, keys, question, asked)
    replies = await Samples(cycle, asked).settle(keys)
    cycle.issued.clear()
    return tuple([await _propose(cycle, keys, question, one) for one in replies])


async def _propose(
    cycle: Cycle, keys: list[str], question: Question, reply: Reply
) -> Proposal:
    """Return the proposal of one of the replies, as hooks left it."""
    if not cycle.hooks.is_empty:
        reply = await hook_reply(cycle, question, reply, keys)
    cycle.scope.delivered = max((cycle.scope.delivered, *reply.commands))
    cycle.scope.engine_usage.add_reply(reply.completion)
    return cycle.issue_proposal(
        reply.key,
        reply.completion,
        reply.delivered,
        beside=True,
        is_changed=reply.is_changed,
    )


async def _hook_asked(
    cycle: Cycle, keys: list[str], question: Question, asked: Asked
) -> Asked:
    """Return what is asked as hooks left it, who look at it once for all replies."""
    if cycle.hooks.is_empty:
        return asked
    changed, messages = await hook_question(cycle, keys[0], question, keys)
    return dataclasses.replace(
        asked, question=changed, delivered=(*messages, *asked.delivered)
    )


def can_sample(cycle: Cycle, provider: Provider) -> bool:
    """Return whether one request brings several replies; in a replay, what is recorded decides."""
    if cycle.scope.is_replaying():
        return cycle.session.replay.scopes.has_samples(cycle.scope.upcoming())
    return cycle.inference.max_samples(provider) > 1


class Samples:
    """The replies to one question, by their keys."""

    def __init__(self, cycle: Cycle, asked: Asked) -> None:
        self._session, self._inference = cycle.session, cycle.inference
        self._question = cycle.inference.apply_sampling(asked.question)
        self._asked = Asked(
            self._question, asked.delivered, asked.iteration, asked.commands
        )
        self._settled: dict[str, Reply | BaseException] = {}

    async def settle(self, keys: list[str]) -> list[Reply]:
        """Return the reply at each key, or raise the error of the first one that has one, once all are settled."""
        self._question = self._inference.clean(keys[0], self._question)
        self._asked = dataclasses.replace(self._asked, question=self._question)
        for key in keys:
            self._session.replay_end.meet(key)
        outcome = self._session.replay.effects.outcome
        for key in keys:
            if outcome(key) is not None:
                self._replay(key)
        new = [key for key in keys if key not in self._settled]
        refused = any(isinstance(one, LimitReached) for one in self._settled.values())
        if new and not refused:  # what a limit kept from being asked is not asked later
            await self._ask(new)
        replies: list[Reply] = []
        for key in keys:
            settled = self._settled.get(key)
            if isinstance(settled, BaseException):
                raise settled
            if settled is not None:
                replies.append(settled)
        return replies

    def _replay(self, key: str) -> None:
        try:
            self._settled[key] = self._inference.replay(key, self._question)
        except LoopwrightError as error:
            self._settled[key] = error

    async def _ask(self, keys: list[str]) -> None:
        """Ask for replies that are not recorded: as many at once as the provider gives, the others one by one."""
        inference, question = self._inference, self._question
        begun = await inference.begin(keys, self._asked)
        provider, now = question.provider, self._session.active.seconds
        while len(keys) > 1 and (together := self._max_together(provider)) > 1:
            chosen = keys[:together]
            try:
                replies = await inference.ask(begun.select(chosen, now()))
            except (
                ProviderError
            ) as error:  # recorded for these, and the others are asked as well
                self._settled |= dict.fromkeys(chosen, error)
                keys = keys[together:]
                continue
            self._settled |= {reply.key: reply for reply in replies}
            keys = keys[len(replies) :]
        if keys:
            branches = Branches(self._session.replay_end)
            turns = [branches.add(begun=True) for _ in keys]
            works = [
                self._ask_one(begun, key, branches, turn)
                for key, turn in zip(keys, turns, strict=True)
            ]
            settled = await asyncio.gather(*works, return_exceptions=True)
            self._settled |= dict(zip(keys, settled, strict=True))

    def _max_together(self, provider: Provider) -> int:
        """Return how many replies to ask for at once; with a schema one, since it may be enforced by a tool."""
        if self._question.schema is not None:
            return 1
        return self._inference.max_samples(provider)

    async def _ask_one(
        self, begun: Begun, key: str, branches: Branches, turn: Turn
    ) -> Reply:
        async with branches.place(turn):
            seconds = self._session.active.seconds()
            [reply] = await self._inference.ask(begun.select([key], seconds))
            return reply
