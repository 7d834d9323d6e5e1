"""What definitions know of a table when they load, and numbers said for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ColumnCard:
    """One column as people read it: name, SQL type (with NOT NULL) and description."""

    name: str
    type: str
    nullable: bool
    description: str


@dataclass(frozen=True)
class TableCard:
    """What definitions know of a table when they load.

    ``refusal`` says why maintenance leaves the table alone (None: it is looked after); ``unreadable`` marks a table that
    could not even be opened, for the same text.
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
        """Whether Dagster shows partitions."""
        return bool(self.partition_keys)

    @property
    def append_only(self) -> bool:
        """Whether the table has no primary key."""
        return not self.primary_keys


def count_text(number: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 run``, ``4 runs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
