"""Follow-ups: work that is due once a run has ended, each in a durable run of its own."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .base import EndedRun as EndedRun
    from .base import FollowUp as FollowUp
    from .critique import Critique as Critique
    from .delivery import Callback as Callback
    from .delivery import Deliver as Deliver
    from .delivery import KnowledgeNote as KnowledgeNote
    from .delivery import Webhook as Webhook
    from .memories import AnswerGist as AnswerGist
    from .memories import Memories as Memories
    from .registry import FollowUps as FollowUps

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".base": ("EndedRun", "FollowUp"),
            ".critique": ("Critique",),
            ".delivery": ("Callback", "Deliver", "KnowledgeNote", "Webhook"),
            ".memories": ("AnswerGist", "Memories"),
            ".registry": ("FollowUps",),
        },
    )
