"""Images and documents: a picture and a text file are sent beside the words, and stay with the run when it is resumed.

An `Attachment` is made of bytes, a file (a `Path`) or a URL, and goes with a user message. It is kept in the journal
with its message, and its hash tells whether a resumed run is still the same one. In a conversation's size it counts as
a fixed 6,000 bytes, whatever a file weighs: what a model is paid for a picture does not follow its bytes.

No model is needed: `eyes` looks at the picture itself. For a real one that can see put
`OpenAIProvider.from_env("gpt-4.1-mini")` (from `loopwright.providers`) in place of the `ScriptedProvider`.
"""

import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from loopwright import Attachment, Conversation, ReActEngine, Request, Runtime
from loopwright.events import RunStarted
from loopwright.testing import ScriptedProvider


def picture(red: int, green: int, blue: int) -> bytes:
    """A PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data))
            + kind
            + data
            + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(bytes([0, red, green, blue]))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", pixel)
        + chunk(b"IEND", b"")
    )


def eyes(request: Request) -> str:
    """The model's part: it finds the colour in the picture, and its name in the document."""
    image, table = request.conversation.messages[-1].attachments
    start = image.content.index(b"IDAT") + 4
    _, *colour = zlib.decompressobj().decompress(image.content[start:])
    names = dict(line.split("  ") for line in table.content.decode().splitlines())
    return f"The wall is painted in {names[' '.join(map(str, colour))]}."


def main() -> None:
    """Ask what a picture shows."""
    with TemporaryDirectory() as folder:
        table = Path(folder, "colours.txt")
        table.write_text("0 71 171  cobalt blue\n227 66 52  vermilion\n")
        sent = [
            Attachment.image(picture(0, 71, 171), name="wall.png"),
            Attachment.document(table),
        ]
    for attachment in sent:
        print(
            f"{attachment.kind:<9} {attachment.name:<12} {attachment.media_type}, sha256 {attachment.digest[:8]}..."
        )

    runtime = Runtime(ScriptedProvider(eyes))
    task = Conversation.of(
        "Which of these colours does the wall have?", attachments=sent
    )
    result = ReActEngine(runtime).run_sync(task)

    for entry in runtime.journal.read(result.run_id):
        if isinstance(entry.event, RunStarted):
            kept = [
                attachment
                for message in entry.event.messages
                for attachment in message.attachments
            ]
            print(
                f"Kept in the journal: {', '.join(attachment.name for attachment in kept)}"
            )
    print(f"{result.status}: {result.llm_calls} model call")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
