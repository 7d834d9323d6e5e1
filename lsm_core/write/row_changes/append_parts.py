"""DELETE and UPDATE of an append table in parts, for one commit.

Each part handles some splits of one scan, in this process or in a task of a cluster.
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
    """Result of a DELETE or UPDATE for some splits of the scan.

    Attributes:
        messages: commit messages with the written files and the files that they replace.
        vectors: deletion vectors by bucket and data file name, including rows that were deleted earlier.
    """

    messages: Sequence[CommitMessage] = ()
    vectors: Mapping[Place, Mapping[str, DeletionVector]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return this result as bytes, to send it to the process that commits."""
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
        """Decode the bytes of :meth:`to_bytes`. Raises CorruptFile if they are invalid."""
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
        """New column values of an UPDATE; None for a DELETE."""
        return None if self.values is None else Assignments(self.store, self.values)

    @property
    def by_bucket(self) -> bool:
        """Whether one task must handle all splits of a bucket."""
        return False

    @abstractmethod
    def apply_to(self, splits: Iterable[Split]) -> PartOfChange:
        """Apply the change to the rows of some splits and return the result; after an error no written file is left.

        Raises:
            InvalidData: a new value does not fit its column.
            CorruptFile: a file cannot be read.
        """


Additions: TypeAlias = Callable[[int | None], pa.Table | None]
"""Function that returns new rows to insert in the same commit, or None for no rows.

Its argument is the id of the snapshot whose rows are changed, or None for an empty table.
"""


def added_rows(store: TableStore, additions: Additions | None, snapshot_id: int | None) -> list[CommitMessage]:
    """Write the rows to insert in the same commit as a change, and return their commit messages.

    Args:
        store: the table.
        additions: returns the rows to insert; None for no rows.
        snapshot_id: id of the snapshot whose rows are changed, or None for an empty table; passed to ``additions``.

    Raises:
        InvalidData: a value does not fit its column.
    """
    rows = None if additions is None else additions(snapshot_id)
    if rows is None or not rows.num_rows:
        return []
    with TableWrite(store) as writer:
        writer.write(rows)
        return list(writer.prepare_commit())


AppendRun: TypeAlias = Callable[[AppendChange, Scan], Iterable[PartOfChange]]
"""Function that applies a change to all splits of a scan and yields the results.

If it raises, it has deleted the written files of all results that it did not yield.
"""


def here(change: AppendChange, scan: Scan) -> Iterable[PartOfChange]:
    """Apply the change to all splits in this process, as one part.

    Memory is that of one read and one write buffer.
    """
    yield change.apply_to(scan.splits)
