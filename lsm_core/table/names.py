"""Names of databases and tables: "db.table" and "db.table$system", checked before they touch a path."""

from __future__ import annotations

from dataclasses import dataclass

from lsm_core.errors import InvalidData, InvalidSchema
from lsm_core.storage import check_name

DATABASE_SUFFIX = ".db"


@dataclass(frozen=True)
class TableName:
    """``database``.``table``, with the part after "$" (a system table) or ""."""

    database: str
    table: str
    system: str = ""

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" + (f"${self.system}" if self.system else "")

    @staticmethod
    def parse(text: str) -> TableName:
        """Split "db.table" or "db.table$files". Raises InvalidSchema for anything else."""
        database, dot, rest = text.partition(".")
        table, dollar, system = rest.partition("$")
        if not dot or not database or not table or (dollar and not system):
            raise InvalidSchema(f"{text!r} is no table name; write it as database.table")
        return TableName(checked_database(database), _plain(table, text), system)


def checked_database(name: str) -> str:
    """The name of a database as it may be used in a path. Raises InvalidSchema."""
    if "." in name or "$" in name:
        raise InvalidSchema(f"{name!r} is no database name: it may hold neither '.' nor '$'")
    return _plain(name, name)


def _plain(part: str, whole: str) -> str:
    try:
        return check_name(part)
    except InvalidData as error:
        raise InvalidSchema(f"{whole!r} cannot be a name: {error}") from error
