"""Names of databases and tables, checked before the names become parts of paths.

Forms: "db.table", "db.table$branch_dev", "db.table$files".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lsm_core.errors import InvalidData, InvalidSchema
from lsm_core.metadata.branches import MAIN, NAME_PREFIX, branch_name
from lsm_core.storage import check_name

DATABASE_SUFFIX: Final = ".db"
# The database of the tables about the whole catalog ("sys.tables"); it has no directory.
SYSTEM_DATABASE: Final = "sys"
_PATTERN_SIGNS: Final = "*?["


@dataclass(frozen=True)
class TableName:
    """Parsed name of a table.

    Attributes:
        database: name of the database.
        table: name of the table.
        system: name of the system table, or "".
        branch: name of the branch.

    Source: Paimon `Identifier`.
    """

    database: str
    table: str
    system: str = ""
    branch: str = MAIN

    def __str__(self) -> str:
        return self.on_branch + (f"${self.system}" if self.system else "")

    @property
    def plain(self) -> str:
        """Name of the table itself: "db.table"."""
        return f"{self.database}.{self.table}"

    @property
    def on_branch(self) -> str:
        """Name of the table on its branch: "db.table$branch_dev", or "db.table" on main."""
        return branch_name(self.plain, self.branch)

    @staticmethod
    def parse(text: str) -> TableName:
        """Parse a name with an optional branch and system table, such as "db.table$branch_dev$files".

        Raises InvalidSchema.
        """
        if not isinstance(text, str):
            raise InvalidSchema(f"a table name is a text such as 'database.table', not {text!r}")
        database, dot, table_part = text.partition(".")
        table, *more = table_part.split("$")
        branch = more.pop(0).removeprefix(NAME_PREFIX) if more and more[0].startswith(NAME_PREFIX) else MAIN
        system = more.pop(0) if more else ""
        if not dot or not database or not table or more or not branch or text.endswith("$"):
            raise InvalidSchema(
                f"{text!r} is not a table name; write it as database.table, database.table$branch_name or "
                "database.table$system"
            )
        return TableName(checked_database(database), _plain(table, text), system, _plain(branch, text))


def checked_new(name: TableName) -> TableName:
    """Check the name of a new table.

    Args:
        name: name that :meth:`TableName.parse` returned.

    Returns:
        The same name.

    Raises:
        InvalidSchema: the table name begins with a dot, begins or ends with a blank, or contains a character of
            patterns, such as "*".
    """
    table = name.table
    if table.startswith(".") or table != table.strip() or any(sign in table for sign in _PATTERN_SIGNS):
        raise InvalidSchema(
            f"{str(name)!r} cannot be the name of a new table: '{table}' must not begin with '.', "
            f"begin or end with a blank, or hold one of {' '.join(_PATTERN_SIGNS)} (signs of patterns)"
        )
    return name


def checked_table(name: str) -> str:
    """Return the name of a table without its database. Raises InvalidSchema for a bad name."""
    return TableName.parse(f"d.{name}").table


def checked_database(name: str) -> str:
    """Return a database name after checking that it can be part of a path. Raises InvalidSchema."""
    if not isinstance(name, str) or "." in name or "$" in name:
        raise InvalidSchema(f"{name!r} is not a database name: it must be a text without '.' and '$'")
    return _plain(name, name)


def _plain(part: str, whole: str) -> str:
    if not part.strip():
        raise InvalidSchema(f"{whole!r} cannot be a name: one of its parts is blank")
    try:
        return check_name(part, subject="the part")
    except InvalidData as error:
        raise InvalidSchema(f"{whole!r} cannot be a name: {error.reason}") from error
