"""What a worker is told about sorting one partition of an append table."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lsm_core.compact.task import BucketTask
from lsm_core.merge.curves import ORDER, Curve
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class SortTask(BucketTask):
    """A task whose one bin is rewritten sorted by the columns ``order_by`` along ``strategy`` (`merge.curves.STRATEGIES`)."""

    order_by: tuple[str, ...] = ()
    strategy: str = ORDER

    def curve(self, store: TableStore) -> Curve:
        """The order of the rows, with the table's `zorder.var-length-contribution` (bytes of a text)."""
        return Curve(self.order_by, self.strategy, int(store.options.get("zorder.var-length-contribution")))

    def to_bytes(self) -> bytes:
        """Bytes for a worker: one line of JSON about the order, then the bytes of the plain task."""
        line = json.dumps({"order_by": self.order_by, "strategy": self.strategy}).encode()
        return line + b"\n" + super().to_bytes()


__all__ = ["SortTask"]
