"""Runs whose settings, file or reviewer are outside of the code, for crash tests."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from loopwright import AllowAll, LoopEngine, Request, Result, Runtime
from loopwright.agents import Agent, AgentsToolbox
from loopwright.compose import load
from loopwright.engines import DirectorCriticEngine, FixedRounds, HumanCritic
from loopwright.journals import Journal, SQLiteJournal
from loopwright.settings import SQLiteSettings
from loopwright.testing import call, witnessed
from programs import Line, Program, look, put, send

AGENTS = "boss", "helper", "closer"


class ChangingSettings(Program):
    """A run whose settings an operator changes whenever a process begins that finds it in the journal.

    The boss gives work to a helper and hands the run off; each of them replies with the version that it is told.
    """

    def __init__(self) -> None:
        super().__init__(lambda runtime: self._define(runtime), self._reply, "told 1")

    def journal(self, folder: Path) -> Journal:
        """Return the journal, and remember where the settings are."""
        vars(self)["path"] = folder / "settings.db"
        return super().journal(folder)

    def runtime(self, journal: Journal | None = None) -> Runtime:
        """Return the runtime, with settings of another version if there is a run already."""
        store = SQLiteSettings(vars(self)["path"])
        version = store.read().version
        if version == 0 or (journal is not None and journal.runs()):
            values = {
                f"agent.{name}.instructions": f"told {version + 1}" for name in AGENTS
            }
            store.write(values, by="ann", at=1.0, expected=version)
        return Runtime(
            witnessed(self.model), tools=[look, put, send], journal=journal, gate=AllowAll(), settings=store
        )  # fmt: skip

    def _define(self, runtime: Runtime) -> LoopEngine:
        runtime.agent("helper", tools=[look, put])
        runtime.agent("closer", tools=[send])
        tools = [AgentsToolbox(runtime, ["helper"]), look]
        return runtime.agent("boss", tools=tools, handoffs=["closer"]).engine

    def _reply(self, request: Request) -> Line:
        """Use each tool once, and hand off; whoever is told something else says so."""
        if request.system is None or not request.system.startswith("told 1"):
            return f"not told: {request.system}"
        names = [tool.name for tool in request.tools]
        done = {made.name for message in request.conversation for made in message.calls}
        if "send" in names:
            return "told 1" if "send" in done else call("send", what="note")
        if "put" in names:
            return "told 1" if "put" in done else call("put", what="cup")
        if "delegate" not in done:
            return call("delegate", agent="helper", task="Put the cup away.")
        last = request.conversation.messages[-1].content
        return call("transfer_to_closer") if "told 1" in last else f"heard {last}"


FILE = """\
[runtime]
agent = "clerk"
gates = ["allow-all"]
toolboxes = ["post"]
retry = { max_attempts = 2 }
after = [{ follow_up = "critique", adversarial = false }]

[providers.main]
provider = "ollama"
model = "small"

[toolboxes.post]
object = "programs:send"

[engines.careful]
engine = "react"
max_iterations = 5

[pipelines.report]
engine = "chain"
steps = [{ engine = "careful" }, "writer", "Sum up {input}."]

[agents.clerk]
engine = "report"
hooks = [{ hook = "loop-detection", edits = 3 }]

[agents.writer]
instructions = "You write."
"""


class FromFile(Program):
    """A run of a pipeline that a file describes, nested engines, hook and follow-up with it."""

    def __init__(self) -> None:
        super().__init__(lambda runtime: self._clerk.engine, _work_for_file, "blue")

    def journal(self, folder: Path) -> Journal:
        """Return the journal, and write the file beside it."""
        vars(self)["path"] = folder / "agents.toml"
        (folder / "agents.toml").write_text(FILE)
        return SQLiteJournal(folder / "runs.db")

    def runtime(self, journal: Journal | None = None) -> Runtime:
        """Return the runtime of the file, with a scripted model."""
        models = {"main": witnessed(self.model)}
        found = load(vars(self)["path"], journal=journal, providers=models)  # type: ignore[typeddict-item]
        vars(self)["found"] = found
        return found.runtime

    @property
    def _clerk(self) -> Agent[Any]:
        clerk: Agent[Any] = vars(self)["found"].agents["clerk"]
        return clerk


def _work_for_file(request: Request) -> Line:
    """Act as who works, who writes, who sums up, and the critic of the follow-up."""
    asked = request.conversation.messages[-1].content
    done = {made.name for message in request.conversation for made in message.calls}
    if request.schema is not None:
        return '{"confidence": 0.9, "quality": 0.9}'
    if asked.startswith("Sum up"):
        return "blue"
    if request.system == "You write.":
        return "It is blue."
    return "The sky is blue." if "send" in done else call("send", what="sky")


@dataclasses.dataclass(frozen=True)
class _Reviewed:
    """An engine whose drafts a person reviews while no process works on the run."""

    engine: LoopEngine
    runtime: Runtime

    async def run(self, task: str, run_id: str) -> Result:
        """Begin the run, and review."""
        return await self._review(await self.engine.run(task, run_id=run_id))

    async def resume(self, run_id: str) -> Result:
        """Resume the run, and review."""
        return await self._review(await self.engine.resume(run_id))

    async def _review(self, result: Result) -> Result:
        while result.status == "waiting":
            [question] = result.pending
            score = 0.9 if "draft 1" in question.text else 0.2
            scores = {"plain words": score, "wit": 0.5}
            reply = json.dumps({"scores": scores, "feedback": f"I give {score}."})
            await self.runtime.control(result.run_id).answer(
                reply, question=question.id, by="ann"
            )
            result = await self.engine.resume(result.run_id)
        return result


def _make_reviewed(runtime: Runtime) -> Any:
    engine = DirectorCriticEngine(
        runtime,
        critic=HumanCritic(),
        mode="rubric",
        rubric={"plain words": 0.5, "wit": 0.5},
        convergence=FixedRounds(2),
    )
    return _Reviewed(engine, runtime)


def _draft(request: Request) -> Line:
    shown = " ".join(message.content for message in request.conversation)
    return "draft 2" if "I give 0.9" in shown else "draft 1"


REVIEWED = Program(_make_reviewed, _draft, "draft 1")


def configured_program(name: str) -> Program:
    """The program of that name, for another process to make it again."""
    if name == "reviewed":
        return REVIEWED
    return ChangingSettings() if name == "settings" else FromFile()
