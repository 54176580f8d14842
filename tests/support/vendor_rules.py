"""Stand-ins for model APIs that enforce their vendors' rules: each answers a two-tool conversation, or refuses with 400.

A rule is written from the vendor's documentation or from a refusal that users reported. What a server seals (signatures,
encrypted reasoning) must come back byte for byte.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

Body = dict[str, Any]
ANSWER = "Oslo: 7 degrees at 9:41."
REPORT = {"city": "Oslo", "degrees": 7}
WANTED = (("weather", {"city": "Oslo"}), ("clock", {"city": "Oslo"}))


class Refusal(Exception):
    """A request that the API answers with 400."""


def need(holds: object, message: str) -> None:
    """Raise `Refusal` unless a rule holds."""
    if not holds:
        raise Refusal(message)


def seal(number: int) -> str:
    """Return what a server seals its reply `number` with: base64 with the signs that a re-encoding would change."""
    return f"Cq+/{number}//c2VhbGVk+++/AA=="


def check_strict(schema: Body, place: str) -> None:
    """Raise `Refusal` unless every object of a schema is closed and requires all of its properties."""
    if schema.get("type") == "object":
        names = set(schema.get("properties", {}))
        need(
            schema.get("additionalProperties") is False,
            f"Invalid schema for {place}: 'additionalProperties' is required to be supplied and to be false",
        )
        need(
            set(schema.get("required", [])) == names,
            f"Invalid schema for {place}: 'required' is required to include every key in properties",
        )
    for inner in schema.values():
        if isinstance(inner, dict):
            check_strict(inner, place)


def check_root(schema: Body) -> None:
    """Raise `Refusal` unless the root of a schema is an object, and no choice.

    Source: https://developers.openai.com/api/docs/guides/structured-outputs
    """
    need(
        schema.get("type") == "object",
        f"Invalid schema for response_format: schema must be a JSON Schema of 'type: \"object\"', "
        f"got 'type: \"{schema.get('type')}\"'.",
    )
    need(
        "anyOf" not in schema, "Invalid schema for response_format: 'anyOf' at the root"
    )


UNSUPPORTED = {"minLength", "maxLength", "minimum", "maximum", "multipleOf", "maxItems"}
"""Keywords that Converse refuses: https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html"""


def check_supported(schema: Body) -> None:
    """Raise `Refusal` if a schema has a keyword that Converse does not take, at any depth."""
    found = UNSUPPORTED & schema.keys()
    need(not found, f"output schema: {sorted(found)} are not supported")
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema["items"]] if "items" in schema else []
    for one in inner:
        check_supported(one)


def choose_step(results: list[str], *, has_schema: bool, has_final_tool: bool) -> Any:
    """Return what the model does next: a call, or its answer (the final tool, a JSON text, or words)."""
    if has_schema or has_final_tool:
        if len(results) < 1:
            return WANTED[0]
        return ("final_answer", REPORT) if has_final_tool else json.dumps(REPORT)
    if len(results) < len(WANTED):
        return WANTED[len(results)]
    need(
        "7 degrees" in results[0] and "9:41" in results[1],
        "the results are not those of the tools",
    )
    return ANSWER


# --- Responses ---


def answer_responses(body: Body) -> Body:
    """OpenAI's Responses API, stateless, with a model that reasons."""
    need(
        body.get("store") is False, "store must be false: this project retains nothing"
    )
    need(
        "reasoning.encrypted_content" in body.get("include", ()),
        "include: reasoning.encrypted_content is needed",
    )
    need(
        "temperature" not in body,
        "Unsupported parameter: 'temperature' is not supported with this model.",
    )
    for tool in body.get("tools", ()):
        need(
            tool["type"] != "function" or "strict" in tool,
            f"tools: {tool['name']} has no strict",
        )
        if tool.get("strict"):
            check_strict(tool["parameters"], f"function '{tool['name']}'")
    text_format = body.get("text", {}).get("format")
    if text_format:
        need(text_format["type"] == "json_schema", "text.format")
        check_root(text_format["schema"])
        if text_format.get("strict"):
            check_strict(text_format["schema"], "response_format")
    results = check_items(body["input"])
    step = choose_step(results, has_schema=bool(text_format), has_final_tool=False)
    number = len(results)
    thought = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": seal(number),
    }
    if isinstance(step, str):
        part = {"type": "output_text", "text": step, "annotations": []}
        said = {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "content": [part],
            "phase": "final_answer",
        }
        return {
            "status": "completed",
            "output": [thought, said],
            "usage": {"input_tokens": 9, "output_tokens": 9},
        }
    name, arguments = step
    call = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": json.dumps(arguments),
    }
    return {
        "status": "completed",
        "output": [thought, call],
        "usage": {"input_tokens": 9, "output_tokens": 9},
    }


def check_items(items: list[Body]) -> list[str]:
    """Check the order and the seals of items; return the results of calls."""
    results: list[str] = []
    open_calls: list[str] = []
    before: Body = {}
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            number = int(item["id"].removeprefix("rs_"))
            need(
                item.get("encrypted_content") == seal(number),
                f"The encrypted content for item {item['id']} could not be verified.",
            )
            need(
                "status" not in item,
                f"Unknown parameter: input: 'status' of {item['id']}",
            )
        elif kind == "function_call":
            own = item.get("id", "")  # another model's call has none
            wanted = f"rs_{own.removeprefix('fc_')}"
            need(
                not own or before.get("id") == wanted,
                f"Item '{own}' of type 'function_call' was provided without its required 'reasoning' item: "
                f"'{wanted}'.",
            )
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            need(
                item["call_id"] in open_calls,
                f"No tool call found for function call output with call_id {item['call_id']}.",
            )
            open_calls.remove(item["call_id"])
            results.append(read_output(item["output"]))
        else:
            need(
                not open_calls, f"No tool output found for function call {open_calls}."
            )
        before = item
    need(
        before.get("type") != "reasoning",
        "a 'reasoning' item was provided without its required following item.",
    )
    need(not open_calls, f"No tool output found for function call {open_calls}.")
    return results


def read_output(output: Any) -> str:
    return output if isinstance(output, str) else output[0]["text"]


# --- Chat Completions ---


def answer_chat(body: Body) -> Body:
    """OpenAI's Chat Completions: a reasoning family takes function tools with `reasoning_effort: "none"` alone."""
    if body.get("tools") and body["model"].startswith("gpt-5.6"):
        need(
            body.get("reasoning_effort") == "none",
            f"Function tools with reasoning_effort are not supported for {body['model']} in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
        )
    need(
        "max_tokens" not in body,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    )
    text_format = body.get("response_format")
    if text_format:
        check_root(text_format["json_schema"]["schema"])
        if text_format["json_schema"].get("strict"):
            check_strict(text_format["json_schema"]["schema"], "response_format")
    return build_chat_reply(body, check_messages(body["messages"]))


def answer_mistral(body: Body) -> Body:
    """Mistral's Chat Completions: no user's message behind a result, and no field that it does not know."""
    roles = [message["role"] for message in body["messages"]]
    for before, after in itertools.pairwise(roles):
        need(
            (before, after) != ("tool", "user"),
            "Unexpected role 'user' after role 'tool'",
        )
        need(
            (before, after) != ("assistant", "assistant"),
            "Expected last role User or Tool for serving but got assistant",
        )
    need(
        not {"stream_options", "reasoning_effort", "max_completion_tokens"}
        & body.keys(),
        "Extra inputs are not permitted",
    )
    return build_chat_reply(body, check_messages(body["messages"]))


def check_messages(messages: list[Body]) -> list[str]:
    """Check that results follow their calls; return them."""
    results: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            need(
                isinstance(message["content"], str),
                "Invalid type for 'content' of a tool message",
            )
            need(
                message["tool_call_id"] in waiting,
                "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
            )
            waiting.remove(message["tool_call_id"])
            results.append(message["content"])
            continue
        need(
            not waiting,
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        )
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
    need(
        not waiting,
        "An assistant message with 'tool_calls' must be followed by tool messages.",
    )
    return results


def build_chat_reply(body: Body, results: list[str]) -> Body:
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    step = choose_step(
        results,
        has_schema="response_format" in body,
        has_final_tool="final_answer" in names,
    )
    message: Body = {"role": "assistant", "content": step}
    if not isinstance(step, str):
        function = {"name": step[0], "arguments": json.dumps(step[1])}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call0000{len(results)}",
                    "type": "function",
                    "function": function,
                }
            ],
        }
    return {
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9},
    }


# --- Messages ---


def answer_claude(body: Body) -> Body:
    """Anthropic's Messages API; where thinking is on, a turn with calls begins with it."""
    thinks = "thinking" in body
    budget = body.get("thinking", {}).get("budget_tokens", 0)
    need(
        body.get("max_tokens", 0) > budget,
        "max_tokens must be greater than thinking.budget_tokens",
    )
    is_cold = body.get("temperature", 1) == 1
    need(
        is_cold or not thinks,
        "temperature may only be set to 1 when thinking is enabled",
    )
    results = check_turns(body["messages"], thinks=thinks)
    text_format = body.get("output_config", {}).get("format")
    if text_format:
        check_closed(text_format["schema"])
    names = [tool["name"] for tool in body.get("tools", ())]
    step = choose_step(
        results, has_schema=bool(text_format), has_final_tool="final_answer" in names
    )
    number = len(results)
    thought = {"type": "thinking", "thinking": "Hm.", "signature": seal(number)}
    content: list[Body] = [thought] if thinks else []
    if isinstance(step, str):
        content.append({"type": "text", "text": step})
    else:
        content.append(
            {
                "type": "tool_use",
                "id": f"toolu_{number}",
                "name": step[0],
                "input": step[1],
            }
        )
    stop = "end_turn" if isinstance(step, str) else "tool_use"
    usage = {"input_tokens": 9, "output_tokens": 9}
    return {
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "usage": usage,
    }


def check_closed(schema: Body) -> None:
    need(
        schema.get("type") != "object" or schema.get("additionalProperties") is False,
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false",
    )


def check_turns(turns: list[Body], *, thinks: bool) -> list[str]:
    """Check that turns alternate, that thinking is as it was, and that results follow their calls; return them."""
    results: list[str] = []
    calls: list[str] = []
    for place, turn in enumerate(turns):
        need(
            turn["role"] == ("user", "assistant")[place % 2],
            f"messages.{place}: roles must alternate",
        )
        blocks = turn["content"]
        if turn["role"] == "assistant":
            calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            need(
                not (calls and thinks) or blocks[0]["type"] == "thinking",
                f"messages.{place}.content.0.type: Expected `thinking` or `redacted_thinking`, "
                f"but found `{blocks[0]['type']}`.",
            )
            for block in blocks:
                need(
                    block["type"] != "thinking"
                    or block["signature"] == seal(len(results)),
                    f"messages.{place}.content.0: Invalid `signature` in `thinking` block",
                )
            continue
        given = [
            block["tool_use_id"] for block in blocks if block["type"] == "tool_result"
        ]
        need(
            given == calls,
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {calls}",
        )
        results += [
            read_output(block["content"])
            for block in blocks
            if block["type"] == "tool_result"
        ]
        calls = []
    return results


# --- Gemini ---


def answer_gemini(body: Body) -> Body:
    """Google's generateContent with a model of Gemini 3: the first call of each step needs its signature."""
    results: list[str] = []
    for place, content in enumerate(body["contents"]):
        need(
            content["role"] == ("user", "model")[place % 2],
            "Please ensure that function response turn comes immediately after a function call turn.",
        )
        calls = [part for part in content["parts"] if "functionCall" in part]
        for part in calls[:1]:
            name = part["functionCall"]["name"]
            need(
                "thoughtSignature" in part,
                f"Function call is missing a thought_signature in functionCall parts. ({name}, position {place})",
            )
            allowed = (seal(len(results)), "skip_thought_signature_validator")
            need(part["thoughtSignature"] in allowed, "Thought signature is not valid.")
        if calls:
            answers = [
                part
                for part in body["contents"][place + 1]["parts"]
                if "functionResponse" in part
            ]
            need(
                len(answers) == len(calls),
                "Please ensure that the number of function response parts is equal to the number of function call parts "
                "of the function call turn.",
            )
            results += [
                answer["functionResponse"]["response"]["result"] for answer in answers
            ]
    tools = [
        tool["name"]
        for group in body.get("tools", ())
        for tool in group["functionDeclarations"]
    ]
    config = body.get("generationConfig", {})
    need(
        not (tools and "responseJsonSchema" in config),
        "Function calling with a response mime type: 'application/json' is unsupported",
    )
    step = choose_step(
        results,
        has_schema="responseJsonSchema" in config,
        has_final_tool="final_answer" in tools,
    )
    part: Body = (
        {"text": step}
        if isinstance(step, str)
        else {"functionCall": {"name": step[0], "args": step[1]}}
    )
    part["thoughtSignature"] = seal(len(results))
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9}
    return {
        "candidates": [
            {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        ],
        "usageMetadata": usage,
    }


# --- Converse ---


def answer_bedrock(body: Body) -> Body:
    """Amazon's Converse: turns alternate, and a conversation with calls declares the tools."""
    results: list[str] = []
    calls: list[str] = []
    used = False
    for place, turn in enumerate(body["messages"]):
        need(
            turn["role"] == ("user", "assistant")[place % 2],
            "A conversation must alternate between user and assistant roles.",
        )
        given = [
            block["toolResult"] for block in turn["content"] if "toolResult" in block
        ]
        need(
            [one["toolUseId"] for one in given] == calls,
            "Expected toolResult blocks for the toolUse blocks of the previous turn.",
        )
        results += [one["content"][0]["text"] for one in given]
        calls = [
            block["toolUse"]["toolUseId"]
            for block in turn["content"]
            if "toolUse" in block
        ]
        used = used or bool(calls)
        for block in turn["content"]:
            sealed = (
                block.get("reasoningContent", {})
                .get("reasoningText", {})
                .get("signature")
            )
            need(
                sealed in (None, seal(len(results))),
                "Invalid `signature` in `thinking` block",
            )
    need(
        "toolConfig" in body or not used,
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    )
    if "outputConfig" in body:
        structure = body["outputConfig"]["textFormat"]["structure"]
        check_supported(json.loads(structure["jsonSchema"]["schema"]))
    names = [
        tool["toolSpec"]["name"] for tool in body.get("toolConfig", {}).get("tools", ())
    ]
    step = choose_step(
        results,
        has_schema="outputConfig" in body,
        has_final_tool="final_answer" in names,
    )
    number = len(results)
    thought = {
        "reasoningContent": {
            "reasoningText": {"text": "Hm.", "signature": seal(number)}
        }
    }
    if isinstance(step, str):
        block, stop = {"text": step}, "end_turn"
    else:
        block, stop = (
            {
                "toolUse": {
                    "toolUseId": f"tooluse_{number}",
                    "name": step[0],
                    "input": step[1],
                }
            },
            "tool_use",
        )
    content = [thought, block]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop,
        "usage": {"inputTokens": 9, "outputTokens": 9},
    }


# --- the server ---


@dataclasses.dataclass
class Vendor:
    """A server on this machine: the requests that it got, and what it said to those that broke a rule."""

    answer: Callable[[Body], Body]
    url: str = ""
    bodies: list[Body] = dataclasses.field(default_factory=list[Body])
    refusals: list[str] = dataclasses.field(default_factory=list[str])
    connections: set[asyncio.StreamWriter] = dataclasses.field(
        default_factory=set[asyncio.StreamWriter]
    )

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of a connection."""
        self.connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                status, reply = self.respond(await read_body(reader))
                encoded = json.dumps(reply).encode()
                head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(encoded)}\r\n\r\n"
                writer.write(head.encode() + encoded)
                await writer.drain()
        await self.close(writer)

    async def close(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection."""
        self.connections.discard(writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def respond(self, body: Body) -> tuple[int, Body]:
        """Return the status and the reply to a request."""
        self.bodies.append(body)
        try:
            return 200, self.answer(body)
        except Refusal as error:
            text = str(error)
            self.refusals.append(text)
            failure = {"message": text, "type": "invalid_request_error"}
            return 400, {"error": failure, "message": text}


async def read_body(reader: asyncio.StreamReader) -> Body:
    """Return the JSON of the next request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    lengths = [
        int(line.partition(":")[2])
        for line in head.splitlines()
        if line.startswith("content-length:")
    ]
    body: Body = json.loads(await reader.readexactly(lengths[0]))
    return body


@contextlib.asynccontextmanager
async def running(answer: Callable[[Body], Body]) -> AsyncGenerator[Vendor]:
    """Run the stand-in of an API."""
    vendor = Vendor(answer)
    server = await asyncio.start_server(vendor.serve, "127.0.0.1", 0, limit=2**22)
    vendor.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield vendor
    finally:
        server.close()
        for writer in list(vendor.connections):
            await vendor.close(writer)
