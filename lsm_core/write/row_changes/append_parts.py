"""DELETE and UPDATE of an append table in parts, for one commit.

Each part handles some splits of one scan, in this process or in tasks elsewhere.
"""

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
from lsm_core.json_text import parse_json
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, Split
from lsm_core.read.predicate import Predicate
from lsm_core.write.row_changes.assign import Assignments
from lsm_core.write.table_write import TableWrite

Place: TypeAlias = tuple[bytes, int]


@dataclass(frozen=True)
class PartOfChange:
    """Outcome of some splits.

    Attributes:
        messages: messages with the written files and the files that they replace.
        vectors: rows marked as deleted by bucket and data file, earlier marks included.
    """

    messages: Sequence[CommitMessage] = ()
    vectors: Mapping[Place, Mapping[str, DeletionVector]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return bytes for the process that commits."""
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
        """Return the part of :meth:`to_bytes`. Raises CorruptFile for other bytes."""
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
    """DELETE or UPDATE of the rows that a predicate matches; it can be sent to tasks.

    Attributes:
        store: the table.
        predicate: condition on the rows.
        values: literal, or Arrow expression over the old row, by column; None for DELETE.
    """

    store: TableStore
    predicate: Predicate
    values: Mapping[str, Any] | None

    @property
    def assignments(self) -> Assignments | None:
        """New values; None for a DELETE."""
        return None if self.values is None else Assignments(self.store, self.values)

    @property
    def by_bucket(self) -> bool:
        """Whether all splits of a bucket must be in one part."""
        return False

    @abstractmethod
    def carried_out(self, splits: Iterable[Split]) -> PartOfChange:
        """Read the rows of some splits and write their replacement; after an error no written file is left.

        Raises:
            InvalidData: a new value does not fit.
            CorruptFile: a file cannot be read.
        """


Additions: TypeAlias = Callable[[int | None], pa.Table | None]
"""Returns the rows that a commit adds beside its changes, or None; called with the changed snapshot's id, or None."""


def added_rows(store: TableStore, additions: Additions | None, snapshot_id: int | None) -> list[CommitMessage]:
    """Write the rows that a change adds, and return their messages. Raises InvalidData."""
    rows = None if additions is None else additions(snapshot_id)
    if rows is None or not rows.num_rows:
        return []
    with TableWrite(store) as writer:
        writer.write(rows)
        return list(writer.prepare_commit())


AppendRun: TypeAlias = Callable[[AppendChange, Scan], Iterable[PartOfChange]]
"""Who carries out a change on all splits of a scan. What is raised leaves no file of parts that were not given."""


def here(change: AppendChange, scan: Scan) -> Iterable[PartOfChange]:
    """Handle all splits as one part in this process; memory is that of a read and a write buffer."""
    yield change.carried_out(scan.splits)
