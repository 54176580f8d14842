"""Images from tools: a camera returns a picture, which a model that sees gets as it is and another one as words.

A tool returns an `Attachment`, alone or in a list with text. It is kept in the journal with the call's result, so a
resumed run has it, and each provider sends it in the form of its API.

No model is needed: `eyes` looks at the picture itself. For a real one that can see put
`OpenAIProvider.from_env("gpt-4.1-mini")` (from `loopwright.providers`) in place of the `ScriptedProvider`.
"""

import struct
import zlib

from loopwright import Attachment, ReActEngine, Request, Runtime, tool
from loopwright.events import ModelReplied
from loopwright.messages import ToolCall
from loopwright.providers import Capabilities
from loopwright.testing import ScriptedProvider, call

COLOURS = {(0, 71, 171): "blue", (227, 66, 52): "red"}


def picture(red: int, green: int, blue: int) -> bytes:
    """A PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(bytes([0, red, green, blue]))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", pixel)
        + chunk(b"IEND", b"")
    )


@tool(effect="read")
async def camera(place: str) -> list[str | Attachment]:
    """Take a photo of a place."""
    photo = Attachment.image(picture(0, 71, 171), name=f"{place}.png")
    return [f"Taken at 9:41 at the {place}.", photo]


def eyes(request: Request) -> str | ToolCall:
    """The model's part: it asks for a photo, and finds the colour in what it gets."""
    latest = request.conversation.messages[-1]
    if latest.role != "tool":
        return call("camera", place="door")
    if not latest.attachments:
        return f"I cannot see it; I was told: {latest.content.splitlines()[-1]}"
    content = latest.attachments[0].content
    start = content.index(b"IDAT") + 4
    pixel = zlib.decompressobj().decompress(content[start:])
    return f"The door is {COLOURS[pixel[1], pixel[2], pixel[3]]}."


def main() -> None:
    """Ask a model that sees, and one that does not."""
    for name, able in {"sees": True, "reads": False}.items():
        model = ScriptedProvider(
            eyes, model=name, capabilities=Capabilities(images=able)
        )
        runtime = Runtime(model, tools=[camera])
        result = ReActEngine(runtime).run_sync("Which colour does the door have?")
        replies = [
            entry.event.completion
            for entry in runtime.journal.read(result.run_id)
            if isinstance(entry.event, ModelReplied)
        ]
        print(f"The model that {name}: {result.answer}")
        print(f"  flags of its last reply: {', '.join(replies[-1].flags) or 'none'}")


if __name__ == "__main__":
    main()
