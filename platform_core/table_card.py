"""Description of a table for Dagster's definitions (`TableCard`), and texts for counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ColumnCard:
    """Description of a column for display.

    Attributes:
        name: name of the column.
        type: SQL type, with NOT NULL.
        nullable: whether the column can be null.
        description: comment of the column, or "".
    """

    name: str
    type: str
    nullable: bool
    description: str


@dataclass(frozen=True)
class TableCard:
    """Description of a table at the time when definitions load.

    Attributes:
        name: full name, ``db.table``.
        primary_keys: primary key columns.
        partition_keys: partition key columns.
        columns: columns of the table.
        options: options of the table, with masked secrets.
        comment: comment of the table, or "".
        root: location of the table.
        refusal: why maintenance does not touch the table, or None.
        unreadable: whether the table could not be opened; then `refusal` is the error.
    """

    name: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    columns: tuple[ColumnCard, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    root: str = ""
    refusal: str | None = None
    unreadable: bool = False

    @property
    def partitioned(self) -> bool:
        """Whether the table has partition keys."""
        return bool(self.partition_keys)

    @property
    def writers_may_compact(self) -> bool:
        """Whether the options let writers compact the table after commits; invalid options count as not set."""
        write_only = self.options.get("write-only", "").strip().lower() == "true"
        return not write_only and self.options.get("dredge.compaction.inline", "").strip().lower() != "never"

    @property
    def append_only(self) -> bool:
        """Whether the table has no primary key."""
        return not self.primary_keys


def count_text(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 run``, ``4 runs``.

    Args:
        number: number of things, which decides between singular and plural.
        singular: noun for 1.
        plural: noun for other numbers, or "" for `singular` with an "s".
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
