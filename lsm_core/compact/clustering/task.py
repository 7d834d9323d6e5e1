"""Task of a worker that sorts one partition of an append table."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from lsm_core.compact.task import BucketTask
from lsm_core.errors import CorruptFile
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.json_reader import parse_json
from lsm_core.merge.curves import ORDER, Curve
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class SortTask(BucketTask):
    """Task whose only bin is rewritten in sorted order.

    Attributes:
        order_by: columns of the order.
        strategy: one of `merge.curves.STRATEGIES`.
    """

    order_by: tuple[str, ...] = ()
    strategy: str = ORDER

    def curve(self, store: TableStore) -> Curve:
        """Return the order of the rows, with the table's `zorder.var-length-contribution` (bytes of a text)."""
        return Curve(self.order_by, self.strategy, int(store.options.get("zorder.var-length-contribution")))

    @property
    def files_to_sort(self) -> tuple[DataFileMeta, ...]:
        """The files of its bin, in the bin's order."""
        by_name = {file.file_name: file for file in self.files}
        return tuple(by_name[name] for names in self.bins for name in names)

    def to_bytes(self) -> bytes:
        """Return the task as bytes for a worker: one line of JSON about the order, then the bytes of the plain task."""
        line = json.dumps({"order_by": self.order_by, "strategy": self.strategy}).encode()
        return line + b"\n" + super().to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> SortTask:
        """Return the task of :meth:`to_bytes`.

        Raises:
            CorruptFile: the bytes are something else.
        """
        line, _, task_bytes = data.partition(b"\n")
        plain = BucketTask.from_bytes(task_bytes)
        try:
            order = parse_json(line)
            columns, strategy = tuple(map(str, order["order_by"])), str(order["strategy"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<compaction task>", f"unreadable: {error!r}") from error
        same = {field.name: getattr(plain, field.name) for field in fields(BucketTask)}
        return SortTask(**same, order_by=columns, strategy=strategy)


def task_from_bytes(data: bytes) -> BucketTask:
    """Return a task of either kind.

    Raises:
        CorruptFile: the bytes are no task.
    """
    return SortTask.from_bytes(data) if data.startswith(b"{") else BucketTask.from_bytes(data)
