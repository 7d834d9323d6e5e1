"""Description of a table for Dagster's definitions (`TableCard`), and texts for counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ColumnCard:
    """Column for display.

    Attributes:
        name: name of the column.
        type: SQL type, with NOT NULL.
        nullable: whether it can be null.
        description: its comment, or "".
    """

    name: str
    type: str
    nullable: bool
    description: str


@dataclass(frozen=True)
class TableCard:
    """Description of a table when definitions load.

    Attributes:
        name: full name, ``db.table``.
        primary_keys: primary key columns.
        partition_keys: partition key columns.
        columns: its columns.
        options: its options, secrets masked.
        comment: its comment, or "".
        root: its location.
        refusal: why maintenance does not touch it, or None.
        unreadable: whether it could not be opened; `refusal` is the error then.
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
        """Whether the options let writers compact the table after commits; invalid values count as the default."""
        write_only = self.options.get("write-only", "").strip().lower() == "true"
        return not write_only and self.options.get("dredge.compaction.inline", "").strip().lower() != "never"

    @property
    def append_only(self) -> bool:
        """Whether the table has no primary key."""
        return not self.primary_keys


def count_text(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 run``, ``4 runs``.

    Args:
        number: the number.
        singular: noun for 1.
        plural: noun for other numbers, or "" for `singular` with an "s".
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
