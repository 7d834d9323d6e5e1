"""Changelog of a compaction: keys looked up above its output, and changelog files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa

from lsm_core.compact.content import Content
from lsm_core.compact.output_digest import OutputDigest
from lsm_core.compact.task import BucketTask, Witness
from lsm_core.files import KeyValueFileWriter, changelog_files_of, kv_read_schema
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import SEQUENCE_NUMBER, VALUE_KIND, key_name
from lsm_core.merge import ChangelogRules, NormalisedKeys
from lsm_core.merge.changelog import Against, LookUp
from lsm_core.merge.comparable import Ints
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Shapes
from lsm_core.read.lookup import RowsAbove, SortedKeys
from lsm_core.read.merge_read import Changes
from lsm_core.tree import Levels
from lsm_core.tree.upgrades import newest_is_all

_WANTED_ROW: Final = "row of the wanted key"
_SYSTEM: Final = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclass(frozen=True)
class ProducedChangelog:
    """Changelog files of a compaction.

    Attributes:
        files: the files.
        digests: digests of the rows that their writer received.
        superseded: see :attr:`ChangelogProducer.superseded`.
    """

    files: tuple[DataFileMeta, ...]
    digests: OutputDigest
    superseded: Mapping[str, DeletionVector] = field(default_factory=dict)

    @property
    def content(self) -> Content:
        """Counts of the rows, by whether they retract."""
        return self.digests.content


class ChangelogProducer:
    """Lookup of keys for one rewrite (or one upgrade), and writer of its changelog.

    Use it in a ``with`` block: files of a failed rewrite are deleted.

    Source: ``ChangelogMergeTreeRewriter``.
    """

    def __init__(
        self,
        store: TableStore,
        task: BucketTask,
        files: Sequence[DataFileMeta],
        rules: ChangelogRules,
        shapes: Shapes,
        living: Living | None,
        witness: Witness | None = None,
        deletions: Mapping[str, DeletionFile] | None = None,
    ) -> None:
        """Find the files above the output that meet the keys of the rewrite.

        Args:
            store: the table.
            task: the task.
            files: files to rewrite or upgrade.
            rules: rules of the table's changelog.
            shapes: cache of the files' keys.
            living: keeps rows that are not expired; None without expiry.
            witness: receives the rows that were looked up and the changes; None for none.
            deletions: deletion vectors by file name.
        """
        tree, mine = shapes.of(task.files), shapes.of(files)
        low, high = min(file.min_key for file in mine), max(file.max_key for file in mine)
        above = [
            file
            for file, shape in zip(task.files, tree, strict=True)
            if file.level > task.output_level and shape.min_key <= high and low <= shape.max_key
        ]
        looks_up = rules.against is Against.HIGH_LEVELS and bool(above)
        # first-row only needs to know whether a key exists
        self._layout = kv_read_schema(store)
        target = pa.schema([]) if store.options.merge_engine == "first-row" else self._layout
        place = store, task.partition, task.bucket
        self._above = RowsAbove(*place, above, target, deletions=deletions) if looks_up else None
        self.above = tuple(above) if looks_up else ()
        self._writer = self._digest = None
        if rules.produces:
            self._writer = KeyValueFileWriter.of_changes(*place, task.total_buckets, level=task.output_level)
            self._digest = OutputDigest(changelog_files_of(store), task, task.output_level)
        self._living, self._witness = living, witness
        self._keeps_vectors = store.options.deletion_vectors_enabled
        self._superseded: dict[str, list[DeletionVector]] = {}
        look_up: LookUp | None = self._find if looks_up else None
        max_level = Levels(tree, store.options.num_levels).max_level
        self.changes = Changes(rules, max_level, look_up, self._write)

    def _find(self, keys: NormalisedKeys, columns: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        assert self._above is not None
        hits = self._above.find(SortedKeys(keys, columns))
        if not hits:
            return np.zeros(0, np.int64), columns.slice(0, 0)
        if self._keeps_vectors:
            for hit in hits:
                self._superseded.setdefault(hit.file.file_name, []).append(DeletionVector.of(hit.positions))
        wanted_rows = np.concatenate([hit.wanted_rows for hit in hits])
        order = np.argsort(wanted_rows)
        if not hits[0].rows.num_columns:
            if self._witness is not None:
                self._witness.looked_up(self._keys_alone(columns.take(pa.array(wanted_rows[order]))))
            return wanted_rows[order], hits[0].rows
        rows = pa.concat_batches([hit.rows for hit in hits]).take(pa.array(order))
        wanted_rows = wanted_rows[order]
        if self._living is not None:  # expired rows do not count
            kept = self._living(rows.append_column(_WANTED_ROW, pa.array(wanted_rows)))
            wanted_rows, rows = kept.column(_WANTED_ROW).to_numpy(), kept.select(rows.schema.names)
        if self._witness is not None:
            self._witness.looked_up(rows)
        return wanted_rows, rows

    @property
    def superseded(self) -> dict[str, DeletionVector]:
        """Rows by file above the output that were found and are no longer valid; for tables with deletion vectors."""
        return {name: DeletionVector.union(parts) for name, parts in self._superseded.items()}

    def _keys_alone(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return KV rows with only the key set."""
        layout, count = self._layout, keys.num_rows
        columns = {name: pa.array(np.zeros(count, np.int64)).cast(layout.field(name).type) for name in _SYSTEM}
        for name in keys.schema.names:
            columns[key_name(name)] = columns[name] = keys.column(name)
        arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in layout]
        return pa.RecordBatch.from_arrays(arrays, layout.names)

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None or self._digest is None:
            return
        if self._witness is not None:
            self._witness.changed(batch)
        self._digest.add(batch)
        self._writer.write(batch)
        self._digest.written(self._writer.group_rows)

    def close(self) -> ProducedChangelog | None:
        """Finish the changelog files.

        Returns:
            The changelog, or None if the table writes none.

        Raises:
            StorageFull: the disk is full.
        """
        if self._above is not None:
            self._above.close()
        if self._writer is None or self._digest is None:
            return None
        files = self._writer.close()
        self._digest.finish(self._writer.group_rows)
        return ProducedChangelog(tuple(files), self._digest, self.superseded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._above is not None:
            self._above.close()
        if kind is not None and self._writer is not None:
            self._writer.abort()


def changelog_rules(
    store: TableStore, task: BucketTask, files: Sequence[DataFileMeta], max_level: int
) -> ChangelogRules | None:
    """Return the rules for lookups and changelog of the rewrite of ``files``, or None if it needs neither.

    A lookup compares the rows that leave level 0; a full compaction compares the rows that reach the top level.

    Args:
        store: the table.
        task: the task.
        files: files to rewrite.
        max_level: highest level of the bucket's tree.

    Source: ``ChangelogMergeTreeRewriter``.
    """
    options = store.options
    if options.deletion_vectors_enabled and newest_is_all(options) and options.changelog_producer != "lookup":
        return None  # rows above are marked by vectors, and their values are not needed
    rules = ChangelogRules.of(store.schema, store.options)
    if rules is None or task.output_level == 0:
        return None
    if rules.against is Against.TOP_LEVEL:
        return rules if task.output_level == max_level else None
    return rules if any(file.level == 0 for file in files) else None
