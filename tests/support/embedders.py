"""Embedders for tests: what texts have in common is computed from their words, so that no model is needed."""

import hashlib
import math
import random
from collections.abc import Sequence

SYNONYMS = {
    "physician": "doctor", "automobile": "car", "purchase": "buy", "feline": "cat", "begin": "start",
}  # fmt: skip


class WordEmbedder:
    """A text is the sum of a random vector for each of its words; synonyms have the same one."""

    def __init__(self, dimensions: int = 96, name: str = "words-1") -> None:
        self.name, self.dimensions = name, dimensions
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        words = [SYNONYMS.get(word, word) for word in text.lower().split()]
        vectors = [self._word(word.strip(".,?!")) for word in words or [""]]
        total = [sum(values) for values in zip(*vectors, strict=True)]
        length = math.sqrt(sum(value * value for value in total))
        return [value / length for value in total]

    def _word(self, word: str) -> list[float]:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        source = random.Random(seed)
        return [source.gauss(0, 1) for _ in range(self.dimensions)]


class FixedEmbedder:
    """Gives what it is told."""

    name, dimensions = "fixed", 3

    def __init__(self, given: object) -> None:
        self.given = given

    async def embed(self, texts: Sequence[str]) -> object:
        return self.given
