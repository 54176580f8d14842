"""A gate that saves work."""

from loopwright import Action, Allow, Ask, Deny, PolicyState


class ThriftyGate:
    """Lets so many calls of a run through, asks about what is destructive, and denies the rest."""

    def __init__(self, most: str = "5") -> None:
        self._most = int(most)
        self.version = f"thrifty-{most}"

    async def evaluate(self, action: Action, state: PolicyState) -> Allow | Deny | Ask:
        """Decide by what the runtime counted, so that a resumed run gets the same."""
        if action.effect == "destructive":
            return Ask(f"{action.tool}: is it worth it?")
        if state.tool_calls >= self._most:
            return Deny(f"{self._most} calls are enough")
        return Allow()
