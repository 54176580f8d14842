"""A toolbox: what lies on a desk."""

from collections.abc import Callable

from loopwright import Tool, tool


def desk(language: str = "en") -> list[Tool | Callable[..., object]]:
    """The tools of a desk; `desk:de` speaks German."""

    @tool(effect="read")
    def shout(text: str) -> str:
        """Say something loudly."""
        return text.upper() + ("!" if language == "en" else ", JAWOHL!")

    @tool(effect="destructive")
    def shred(paper: str) -> str:
        """Shred a paper."""
        return f"{paper} is gone"

    return [shout, shred]
