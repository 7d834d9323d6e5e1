"""DELETE and UPDATE of an append table in parts: splits of one scan that are looked at apart, here or by tasks elsewhere, for one commit."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.errors import CorruptFile
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.json_reader import parse_json
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, Split
from lsm_core.read.predicate import Predicate
from lsm_core.write.row_changes.assign import Assignments
from lsm_core.write.table_write import TableWrite

Place: TypeAlias = tuple[bytes, int]


@dataclass(frozen=True)
class PartOfChange:
    """What became of some splits: messages with the files that were written (and those that they replace), and by bucket and data file the
    rows that are marked as deleted, old marks included.
    """

    messages: Sequence[CommitMessage] = ()
    vectors: Mapping[Place, Mapping[str, DeletionVector]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Bytes for the one who commits."""
        marks = [
            [
                partition.hex(),
                bucket,
                {name: _text(vector.to_bytes(bitmap64=True)[0]) for name, vector in vectors.items()},
            ]
            for (partition, bucket), vectors in self.vectors.items()
        ]
        return json.dumps([[_text(message.to_bytes()) for message in self.messages], marks]).encode()

    @staticmethod
    def from_bytes(data: bytes) -> PartOfChange:
        """Inverse of :meth:`to_bytes`; raises CorruptFile on anything else."""
        try:
            messages, marks = parse_json(data)
            vectors = {
                (bytes.fromhex(partition), int(bucket)): {
                    name: DeletionVector.from_bytes(base64.b64decode(text), f"<marks of {name}>")
                    for name, text in named.items()
                }
                for partition, bucket, named in marks
            }
            return PartOfChange([CommitMessage.from_bytes(base64.b64decode(message)) for message in messages], vectors)
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptFile("<part of a change>", f"unreadable: {error!r}") from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@dataclass(frozen=True)
class AppendChange(ABC):
    """DELETE (``values`` is None) or UPDATE of the rows that ``predicate`` chooses; sent to whoever carries it out.

    ``values``: column to literal, or to an Arrow expression over the old row.
    """

    store: TableStore
    predicate: Predicate
    values: Mapping[str, Any] | None

    @property
    def assignments(self) -> Assignments | None:
        """The new values; None for a DELETE."""
        return None if self.values is None else Assignments(self.store, self.values)

    @property
    def by_bucket(self) -> bool:
        """Whether all splits of a bucket have to be in one part."""
        return False

    @abstractmethod
    def carried_out(self, splits: Iterable[Split]) -> PartOfChange:
        """Look at the rows of ``splits`` and write what takes their place; after an error nothing of that is left. Raises InvalidData, CorruptFile."""


Additions: TypeAlias = Callable[[int | None], pa.Table | None]
"""Rows that one commit adds beside its changes, by the id of the snapshot that is changed (None: an empty table); None for no rows."""


def added_rows(store: TableStore, additions: Additions | None, snapshot_id: int | None) -> list[CommitMessage]:
    """Write the rows that a change adds, and return what is to be committed with it. Raises InvalidData."""
    rows = None if additions is None else additions(snapshot_id)
    if rows is None or not rows.num_rows:
        return []
    with TableWrite(store) as writer:
        writer.write(rows)
        return list(writer.prepare_commit())


AppendRun: TypeAlias = Callable[[AppendChange, Scan], Iterable[PartOfChange]]
"""Who carries out a change on all splits of a scan. What is raised leaves no file of parts that were not given."""


def here(change: AppendChange, scan: Scan) -> Iterable[PartOfChange]:
    """All in one part, by this process; memory is that of a read and a write buffer."""
    yield change.carried_out(scan.splits)


__all__ = ["Additions", "AppendChange", "AppendRun", "PartOfChange", "Place", "added_rows", "here"]
