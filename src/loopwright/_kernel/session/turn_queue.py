"""The queue of the messages of one process that wait for their turn in a thread: the first to come is the first to go."""

import asyncio


class TurnQueue:
    """Lets one message of a thread look for its turn at a time, in the order in which they came."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.sending = asyncio.Lock()
        """Held by the guidance that is being sent to the turn at work."""
        self.users = 0
        """Those that wait or have their turn."""
