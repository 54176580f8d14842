"""A server on this machine for an API over HTTP: a handler says what each request is answered with."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EVENTS, JSON = "text/event-stream", "application/json"


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 128
    daemon_threads = True


class ApiHandler(BaseHTTPRequestHandler):
    """Answers requests with what `answer` returns for their body."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        """Return the status, the content type and the body of the response."""
        raise NotImplementedError

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"]))
        status, kind, body = self.answer(asked)
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(handler: type[ApiHandler]) -> Iterator[str]:
    """Serve an API, and give the URL of its server."""
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
