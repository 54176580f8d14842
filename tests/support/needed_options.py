"""The options that built-in engines cannot do without, for tests of every engine."""

from typing import Any

NEEDED: dict[str, dict[str, Any]] = {
    "chain": {"steps": ("Look into it: {input}", "Say it in a word: {input}")},
}
