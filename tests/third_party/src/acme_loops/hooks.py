"""A hook that looks at the stages of engines that have some, and marks results."""

from loopwright.hooks import Hook, Moment


class StampHook(Hook):
    """Count the stages of a run in its state, and put a mark behind each result.

    Args:
        mark: the mark.
    """

    name = "stamp"
    version = "1"

    def __init__(self, mark: str = "(stamped)") -> None:
        self.mark = mark

    def stage(self, at: Moment, name: str) -> None:
        """Count a stage."""
        at.state[name] = int(str(at.state.get(name, 0))) + 1

    def after_tool(self, at: Moment, text: str) -> str:
        """Mark a result."""
        return f"{text} {self.mark}"
