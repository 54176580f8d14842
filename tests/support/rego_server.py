"""A stand-in for an OPA server on this machine: its data API, with real Rego evaluated by rego-cpp."""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import JsonValue
from regopy import Bundle, Interpreter, Output

DATA = "/v1/data/"
RULES = """
package loopwright

import rego.v1

decision := {"decision": "deny", "reason": "five calls are enough for one run"} if {
    input.state.tool_calls >= 5
} else := {"decision": "deny", "reason": "what came from outside may not lead to a change"} if {
    "untrusted" in input.action.labels
    input.action.effect != "read"
} else := {"decision": "modify", "arguments": object.union(input.action.arguments, {"cents": 10000}), "reason": "capped"} if {
    input.action.tool == "refund"
    input.action.arguments.cents > 10000
} else := {"decision": "ask", "question": sprintf("Let %s run?", [input.action.tool])} if {
    input.action.effect == "destructive"
} else := {"decision": "allow"} if {
    input.action.effect in {"read", "idempotent", "write"}
}

flag := true

number := 1
"""  # noqa: E501 - as one would write it


@dataclasses.dataclass
class RegoServer:
    """What it was asked, and where it listens."""

    rules: str
    url: str = ""
    asked: list[tuple[str, dict[str, str], JsonValue]] = dataclasses.field(
        default_factory=list
    )
    connections: int = 0
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    _plans: dict[str, Bundle] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rego = Interpreter()
        self._rego.add_module("rules.rego", self.rules)

    def answer(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        """Status and answer of one question, as OPA gives them."""
        try:
            question = json.loads(body)
        except ValueError:
            return 400, {
                "code": "invalid_parameter",
                "message": "body contains malformed input document",
            }
        with self._lock:
            self.asked.append((path, headers, question))
            if not path.startswith(DATA):
                return 404, {"code": "undefined_document"}
            output = self._evaluated(
                path.partition("?")[0].removeprefix(DATA), question["input"]
            )
        if output is None:
            return 200, {"decision_id": "7f1c"}
        if not output.ok():
            return 500, {"code": "internal_error", "message": str(output)}
        values = [value for result in output.results for value in result.expressions]
        return 200, {"decision_id": "7f1c", **({"result": values[0]} if values else {})}

    def _evaluated(self, path: str, question: Any) -> Output | None:
        """What the rules say under a path; `None` where there are none."""
        if path not in self._plans:
            self._plans[path] = self._rego.build(None, [path])
        plan = self._plans[path]
        self._rego.set_input(question)
        return self._rego.query_bundle_entrypoint(plan, path) if plan.ok() else None


@contextlib.contextmanager
def rego_server(rules: str = RULES) -> Iterator[RegoServer]:
    server = RegoServer(rules)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or head and body would leave 40 ms apart

        def setup(self) -> None:
            super().setup()
            server.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, said = server.answer(
                self.path, {k.lower(): v for k, v in self.headers.items()}, body
            )
            told = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as listening:
        listening.daemon_threads = True  # one may wait on a connection that is kept
        listening.block_on_close = False
        thread = threading.Thread(
            target=listening.serve_forever, kwargs={"poll_interval": 0.01}
        )
        thread.start()
        server.url = f"http://127.0.0.1:{listening.server_port}"
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
