"""The format of a SQLite file, and how an older file becomes one of today's."""

import sqlite3
from collections.abc import Mapping

from .._internal import dataclasses


@dataclasses.dataclass(frozen=True)
class Format:
    """The format of a file: `application_id` identifies it, `version` grows with incompatible changes.

    Args:
        application_id: identifies the kind of file.
        version: the version that this library writes.
        tables: the statements that make a new file.
        indexes: for speed; a file may lack them.
        steps: the statements that turn a file of each older version into one of the next.
        views: what a file of each older version is read through, since a reader may not change it.
    """

    application_id: int
    version: int
    tables: tuple[str, ...]
    indexes: tuple[str, ...] = ()
    steps: Mapping[int, tuple[str, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[str, ...]]
    )
    views: Mapping[int, tuple[str, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[str, ...]]
    )

    def upgrade(
        self, connection: sqlite3.Connection, version: int, new_id: str
    ) -> None:
        """Make the tables of a new file (version 0), or those of an older one today's, in one transaction.

        `new_id` is the id of a file that has none.
        """
        statements = self.tables
        if version:
            later = range(version, self.version)
            statements = tuple(one for step in later for one in self.steps[step])
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement, {"new_id": new_id})
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")
        connection.execute("COMMIT")

    def show_as_current(self, connection: sqlite3.Connection, version: int) -> None:
        """Let the queries of this connection find today's columns in a file of an older version."""
        for view in self.views.get(version, ()):
            connection.execute(view)
