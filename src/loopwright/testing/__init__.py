"""What tests of engines need: a provider that follows a script, and a clock that stands still."""

from .clock import FakeClock
from .scripted import ScriptedProvider, call

__all__ = ["FakeClock", "ScriptedProvider", "call"]
