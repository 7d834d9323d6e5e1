"""What an explanation of a row says, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class RowVersion:
    """One stored version of a key. ``number`` 1 is the newest, as merging orders them: partition by partition, the answer's first.

    ``kind`` is "+I", "-U", "+U" or "-D"; ``position`` the row's place in ``file``; ``written_ms`` when the file was made (epoch
    ms). ``hidden`` says why reads do not see the version, None = they do; ``note`` what else is to be known about it. ``partition``
    is its directory ("" without partitions): only versions of one partition merge.
    """

    number: int
    file: str
    level: int
    sequence: int
    kind: str
    position: int
    values: Mapping[str, Any]
    written_ms: int | None = None
    hidden: str | None = None
    note: str | None = None
    partition: str = ""


@dataclass(frozen=True)
class ColumnStory:
    """One column of the answer: its value, the numbers of the ``versions`` that supplied it, and why those.

    ``roles``: what every version that reads see did for the column, by its number.
    """

    column: str
    value: Any
    versions: tuple[int, ...]
    why: str
    roles: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RowStory:
    """The story of one key in one snapshot: ``versions`` newest first, ``answer`` what a read gives (None: no row).

    ``columns`` tell of the row that merging made, also of a deleted one. Where a key may move between partitions, answer and columns
    are those of the partition that has the row (the one written last, if none or several do). ``files``: how many were looked into; metadata rules the
    others out.
    """

    table: str
    key: Mapping[str, Any]
    snapshot_id: int | None
    engine: str
    summary: str
    answer: Mapping[str, Any] | None
    versions: tuple[RowVersion, ...] = ()
    columns: tuple[ColumnStory, ...] = ()
    files: int = 0

    @property
    def found(self) -> bool:
        """Whether any version of the key is stored."""
        return bool(self.versions)

    def column(self, name: str) -> ColumnStory:
        """The story of one column. Raises KeyError for one that is not there."""
        return next(iter(story for story in self.columns if story.column == name), None) or _missing(name)

    def to_object(self) -> dict[str, Any]:
        """The story as plain values (for JSON)."""
        return asdict(self)


def _missing(name: str) -> ColumnStory:
    raise KeyError(name)


__all__ = ["ColumnStory", "RowStory", "RowVersion"]
