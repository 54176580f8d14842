"""An MCP server that does what none should, without the SDK: `python mcp_rogue.py TOOLS.json MARK`, by stdio.

It lists what TOOLS.json holds at that moment. What a call does is for the tool's name to say, up to the first "_".
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ANSWERS: dict[str, dict[str, Any]] = {
    "refuse": {"error": {"code": -32602, "message": "no such file"}},
    "parts": {
        "result": {
            "content": [{"type": "text", "text": f"[{n}]"} for n in range(1_500)],
            "structuredContent": {"a": [1]},
        }
    },
    "odd": {"result": {"content": 17}},
    "full": {"error": {"code": -32000, "message": "the disk is full"}},
    "ended": {"error": {"code": -32600, "message": "Session terminated"}},
    "need": {"error": {"code": -32000, "message": "Connection closed"}},
}
TOOLS, MARK = Path(sys.argv[1]), Path(sys.argv[2])


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def mark(text: str) -> int:
    """Note something in the file of marks; gives how often it was noted by now."""
    with MARK.open("a") as file:
        file.write(f"{text}\n")
    return MARK.read_text().split().count(text)


def call(number: object, tool: str, arguments: dict[str, Any]) -> None:
    times, kind = mark(tool), tool.partition("_")[0]
    if kind == "die" or (kind == "once" and times == 1):
        os._exit(3)
    if kind == "flood":
        sys.stdout.write("x" * 50_000_000 + "\n")
    elif kind == "junk":
        print("Starting up ...\n\n{}\n[1, 2]")
    elif kind == "change":
        TOOLS.write_text(arguments["tools"])
        send(method="notifications/tools/list_changed")
    if kind != "hang":
        text = {"content": [{"type": "text", "text": json.dumps(arguments)}]}
        send(id=number, **ANSWERS.get(kind, {"result": text}))


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message["method"]:
            case "initialize":
                about = {"name": "rogue", "version": "1"}
                can = {"tools": {"listChanged": True}}
                send(
                    id=number,
                    result={
                        "protocolVersion": "2025-11-25",
                        "capabilities": can,
                        "serverInfo": about,
                    },
                )
            case "tools/list":
                mark("list")
                send(id=number, result={"tools": json.loads(TOOLS.read_text())})
            case "tools/call":
                call(number, params["name"], params["arguments"])
            case "notifications/cancelled":
                mark("cancelled")
            case _ if number is not None:
                send(id=number, error={"code": -32601, "message": "Method not found"})
    if "stay" in MARK.read_text().split():
        time.sleep(60)


if __name__ == "__main__":
    main()
