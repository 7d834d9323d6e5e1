"""Keys whose row a compaction changed, computed where `dredge.compaction.order-sensitive` is `as-paimon`.

Merging the newest runs of an order-sensitive table first can change its rows (`merge.order_free`). Users of Paimon's
choice of units are at least warned about the affected keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.schema import KEY_PREFIX
from lsm_core.merge import KeySpec, RunInput, merge_streams
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.merge.engines.internal import Differences
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.read import read_bucket_merged
from lsm_core.read.prune import living_at

_SHOWN: Final = 5


@dataclass(frozen=True)
class ChangedKeys:
    """Number of keys whose row changed, and some of them."""

    count: int = 0
    examples: tuple[dict[str, Any], ...] = ()

    def warning(self, store: TableStore) -> str:
        """Return one line for people; empty if nothing changed.

        Args:
            store: the table.
        """
        if not self.count:
            return ""
        reasons = order_free(store.schema, store.options.raw, has_retracts=True, table=store.name).reasons
        shown = "; ".join(", ".join(f"{name}={value!r}" for name, value in key.items()) for key in self.examples)
        advice = "'dredge.compaction.order-sensitive' = 'closed' prevents that"
        return f"{self.count} keys of {store.name} have another answer now ({shown}); {reasons[0]}; {advice}"


def changed_keys(
    store: TableStore, snapshot_id: int, messages: Iterable[CommitMessage], now_ms: int | None = None
) -> ChangedKeys:
    """Compare the content of each compacted bucket with its former content, both merged in full, in bounded memory.

    Rows that others added meanwhile are on both sides; rows whose record-level lifetime is over are on neither.

    Args:
        store: the table.
        snapshot_id: snapshot of the compaction.
        messages: its commit messages.
        now_ms: clock of record-level expiry (epoch ms), None without expiry.
    """
    living, snapshot = living_at(store, now_ms), snapshots.read(store, snapshot_id)
    count = 0
    examples: list[dict[str, Any]] = []
    for message in messages:
        entries = manifests.live_entries(store, snapshot, partitions=[message.partition], buckets=[message.bucket])
        after = [entry.file for _, _, _, table in bucket_groups(entries) for entry in table_to_entries(table)]
        new_files = {(file.file_name, file.level) for file in message.compact_after}
        before = [file for file in after if (file.file_name, file.level) not in new_files] + list(
            message.compact_before
        )
        for keys in _differing(store, message, (before, after), living):
            count += keys.num_rows
            examples += keys.slice(0, _SHOWN - len(examples)).to_pylist() if len(examples) < _SHOWN else []
    return ChangedKeys(count, tuple(examples))


def _differing(
    store: TableStore,
    message: CommitMessage,
    file_lists: tuple[list[DataFileMeta], list[DataFileMeta]],
    living: Living | None,
) -> Iterator[pa.Table]:
    spec = KeySpec(store.schema.trimmed_primary_keys, table=store.name)
    sides = [
        read_bucket_merged(store, message.partition, message.bucket, files, keep_system=True, living=living)
        for files in file_lists
    ]
    inputs = [RunInput(side, 0, age) for age, side in enumerate(sides)]
    with closing(sides[0]), closing(sides[1]):
        for batch in merge_streams(inputs, Differences(spec), key_spec=spec):
            names = [f"{KEY_PREFIX}{name}" for name in spec.key_columns]
            yield pa.Table.from_batches([batch.select(names)]).rename_columns(list(spec.key_columns))
