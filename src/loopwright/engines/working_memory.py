"""Working memory: one text that an engine carries from prompt to prompt, compressed by a model as it grows."""

from .._internal import dataclasses
from ..errors import AskFailed, ConfigError
from ..run import Run

COMPRESS = """\
Shorten these notes of work in progress to at most {limit} characters. Keep what is needed to continue: the goal, what was
found, decided and done, what failed and why, and what is next. Leave out the rest, and add nothing.

{notes}"""
CUT = "[earlier notes were left out]"


@dataclasses.dataclass(frozen=True)
class MemorySnapshot:
    """Fact: the working memory after it was compressed, with how many iterations it had seen."""

    iterations: int
    text: str


@dataclasses.dataclass(frozen=True)
class WorkingMemory:
    """How an engine's working memory is kept short; an option of engines, shared by their runs.

    Args:
        every: iterations between two times at which it may be compressed.
        above: characters of notes; a shorter memory is not compressed.
        limit: characters of notes at most; the oldest are left out where compressing does not suffice.
    """

    every: int = 3
    above: int = 500
    limit: int = 4_000

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"{name}: must be a whole number of at least 1, got {value!r}"
                )
        if self.above > self.limit:
            raise ConfigError(
                f"above: must be at most limit, {self.limit}, got {self.above}"
            )

    def open(self, run: Run) -> "WorkingNotes":
        """Return the empty notes of one run, for use within its `solve`."""
        return WorkingNotes(self, run)


class WorkingNotes:
    """The working memory of one run."""

    def __init__(self, settings: WorkingMemory, run: Run) -> None:
        self._settings, self._run = settings, run
        self._people: list[str] = []
        self._notes: list[str] = []
        self._iterations = 0

    @property
    def text(self) -> str:
        """The memory as a prompt holds it: first what people said, then the notes."""
        return "\n".join([*self._people, *self._notes])

    def add(self, note: str) -> None:
        """Add a note of the engine, such as a thought or what a tool returned."""
        self._notes.append(note)

    def add_person(self, text: str) -> None:
        """Add what a person said: it is kept word for word."""
        self._people.append(text)

    async def end_iteration(self) -> None:
        """Count an iteration, and compress the notes when it is time and they are long; a recorded model call."""
        self._iterations += 1
        is_due = self._iterations % self._settings.every == 0
        if is_due and self._length() > self._settings.above:
            await self._compress()
        self._cut()

    def _length(self) -> int:
        return sum(len(note) + 1 for note in self._notes)

    async def _compress(self) -> None:
        notes = "\n".join(self._notes)
        prompt = COMPRESS.format(limit=self._settings.above, notes=notes)
        try:
            shorter = await self._run.ask(prompt, purpose="memory")
        except AskFailed:  # the notes stay as they are
            return
        # An empty reply leaves out everything that the run has to know.
        if shorter.strip() and len(shorter) < len(notes):
            self._notes = [shorter]
            self._run.note(MemorySnapshot(self._iterations, self.text))

    def _cut(self) -> None:
        """Leave out the oldest notes of a memory that is still too long."""
        if self._length() <= self._settings.limit:
            return
        kept = "\n".join(self._notes)[len(CUT) + 1 - self._settings.limit :]
        self._notes = [CUT, kept] if self._settings.limit > len(CUT) + 1 else []
