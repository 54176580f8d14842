"""Join what words find and what vectors find, by reciprocal rank."""

import dataclasses
from collections.abc import Sequence

from .search import Found

RANK_OFFSET = 60
"""How little the first ranks differ (Cormack, Clarke and Büttcher, 2009)."""


def fuse(lists: Sequence[Sequence[Found]], threshold: float) -> list[Found]:
    """Return the items of ranked lists in the order of their reciprocal ranks, those above the threshold in any of them.

    The score of an item is the higher one of its own, and at most that of the item before it.
    """
    ranks: dict[int, float] = {}
    best: dict[int, Found] = {}
    for ranked in lists:
        for rank, found in enumerate(ranked, 1):
            number = found.number
            ranks[number] = ranks.get(number, 0.0) + 1 / (RANK_OFFSET + rank)
            known = best.get(number)
            if known is None or known.score < found.score:
                best[number] = found
    ordered = sorted(best.values(), key=lambda one: (-ranks[one.number], -one.score))
    fused, ceiling = list[Found](), 1.0
    for found in ordered:
        if found.score >= threshold:
            ceiling = min(ceiling, found.score)
            fused.append(dataclasses.replace(found, score=ceiling))
    return fused
