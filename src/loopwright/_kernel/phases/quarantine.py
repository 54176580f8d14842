"""Have a model that has no tools read a text from outside, and let nothing out but its typed answer."""

import functools
from typing import Any

from ..._internal import dataclasses
from ...errors import AskFailed
from ...labels import Label, LabelledText, find_provenance
from ...messages import Conversation, Message, Observation
from ...providers.base import Provider, Sampling
from ...security.spotlighting import fence
from ..durability.flow_record import QUARANTINED
from .cycle import Cycle
from .gather import gather
from .output_type import OutputType
from .reason import settle
from .structured_output import ask_model, ask_text


@dataclasses.dataclass(frozen=True)
class Endorsed:
    """Fact: code has checked a value, which is trusted as a whole from then on."""

    value: str
    reason: str


async def ask_quarantined(
    cycle: Cycle, prompt: str, text: str | Observation, into: Any, provider: Provider
) -> Any:
    """Return the answer of a model that reads a text in a branch of its own."""
    label, asked = _build_question(cycle, prompt, text)

    async def read(branch: Cycle) -> Any:
        settled = functools.partial(settle, branch)
        with branch.scope.enter("quarantined"):
            if into is str:
                return await ask_text(settled, asked, Sampling(), provider, QUARANTINED)
            wanted = OutputType[Any](into, "into")
            return await ask_model(
                settled, asked, wanted, Sampling(), provider, QUARANTINED
            )

    try:
        [answer] = await gather(cycle, [read], None)
    except AskFailed:
        # Its words may be those of the text, and would be read outside.
        raise AskFailed("the quarantined model gave no answer of that type") from None
    if isinstance(answer, str):
        return LabelledText(answer, label=label, untrusted=True)
    return answer


def _build_question(
    cycle: Cycle, prompt: str, text: str | Observation
) -> tuple[Label, Conversation]:
    """Return how sensitive a text is, and the conversation in which it is asked about."""
    if isinstance(text, Observation):
        label, shown, source = text.label, text.text, text.call.name
    else:
        label, shown, source = find_provenance(text)[0], str(text), "text"
    label = cycle.session.sensitivity.classify(shown, label)
    fenced = fence(shown, source=source, delimiter=cycle.session.delimiter)
    read = Message("user", fenced, origin="tool", label=label, untrusted=True)
    return label, Conversation([read]).user(prompt)
