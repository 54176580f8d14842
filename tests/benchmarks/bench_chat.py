"""Size of the journal, and CPU time of a turn, of a chat whose every turn is a run that continues the one before."""

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from long_chat import chat


def main(turns: int) -> None:
    """Print what a chat costs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        conversation, seconds = asyncio.run(chat(path, turns))
        said = sum(len(message.content.encode()) for message in conversation)
        size = path.stat().st_size
        print(
            f"{turns} turns: {size:,} bytes, {size / said:.2f} times the conversation, "
            f"{size / turns:,.0f} bytes and {1000 * seconds / turns:.2f} ms of CPU a turn"
        )
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            kinds = "SELECT kind, sum(length(body)) FROM events GROUP BY kind"
            for kind, stored in connection.execute(kinds):
                print(f"  {kind}: {stored / turns:,.0f} bytes a turn")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
