"""An agent as a tool: typed arguments, a typed answer, and what of the caller's history it sees."""

import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ValidationError

from .._internal.options import explain
from .._kernel.phases.output_type import OutputType
from ..errors import ConfigError, ToolError
from ..messages import Conversation, Json, JsonObject, Message
from ..tools.child_call import ChildCall
from ..tools.schema import without_titles

History: TypeAlias = (
    Literal["none", "last", "all"] | Callable[[Conversation], Conversation]
)
"""What a tool that is an agent sees of the caller's conversation: nothing, the last message of a person, all, or what a
function selects."""


def read_input(model: object) -> JsonObject:
    """Return the schema of a model class for arguments; raise `ConfigError` for anything else."""
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise ConfigError(f"input: must be a pydantic model class, got {model!r:.80}")
    schema: Any = without_titles(model.model_json_schema())
    return {"properties": {}, **schema, "additionalProperties": False}


def build_child_call(
    input_model: type[BaseModel] | None, output: object, history: History
) -> ChildCall:
    """Return how a call of an agent becomes its conversation, and its answer the result."""
    select = select_history(history)

    def open_call(arguments: JsonObject, caller: Conversation) -> Conversation:
        text = _format(input_model, arguments)
        selected: Any = select(caller)
        if not isinstance(selected, Conversation):
            raise ConfigError(
                f"history: the function must return a Conversation, got {selected!r:.80}"
            )
        return selected.add(*Conversation.of(text).messages)

    if output is None:
        return ChildCall(open_call)
    wanted: OutputType[Any] = OutputType(output)

    def read(answer: str) -> str:
        dumped: Json = wanted.dump(wanted.read(answer))
        return json.dumps(dumped, ensure_ascii=False)

    return ChildCall(open_call, wanted.as_schema(), read)


def _format(model: type[BaseModel] | None, arguments: JsonObject) -> str:
    """Return arguments as the agent reads them: the JSON of the model, or the text of the task."""
    if model is None:
        return str(arguments["task"])
    try:
        return model.model_validate(arguments).model_dump_json()
    except ValidationError as error:
        raise ToolError(explain(error, model.__name__)) from None


def select_history(history: History) -> Callable[[Conversation], Conversation]:
    """Return what selects a part of a conversation."""
    if callable(history):
        return history
    if history not in ("none", "last", "all"):
        raise ConfigError(
            f'history: must be "none", "last", "all" or a function of a conversation, got {history!r:.80}'
        )

    def select(caller: Conversation) -> Conversation:
        spoken: list[Message] = [one for one in caller if one.role != "system"]
        if history == "all":
            return Conversation(spoken)
        asked = [one for one in spoken if one.role == "user" and one.origin == "caller"]
        return Conversation(asked[-1:] if history == "last" else [])

    return select
