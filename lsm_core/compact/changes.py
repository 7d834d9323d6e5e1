"""The changelog that a compaction produces: keys looked up above its output, and changelog files beside it."""

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

_PLACE: Final = "which asked key"
_SYSTEM: Final = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclass(frozen=True)
class ProducedChangelog:
    """Changelog files, and the rows handed to their writer; ``superseded`` as :attr:`ChangelogProducer.superseded`."""

    files: tuple[DataFileMeta, ...]
    digests: OutputDigest
    superseded: Mapping[str, DeletionVector] = field(default_factory=dict)

    @property
    def content(self) -> Content:
        """Counts of the rows, by whether they retract."""
        return self.digests.content


class ChangelogProducer:
    """Looks keys up for one rewrite (or one upgrade), and writes its changelog (Java `ChangelogMergeTreeRewriter`). In a ``with`` block: files of one that fails are deleted.

    ``witness`` sees what was looked up and what is written.
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
        tree, mine = shapes.of(task.files), shapes.of(files)
        low, high = min(file.min_key for file in mine), max(file.max_key for file in mine)
        above = [
            file
            for file, shape in zip(task.files, tree, strict=True)
            if file.level > task.output_level and shape.min_key <= high and low <= shape.max_key
        ]
        asks = rules.against is Against.HIGH_LEVELS and bool(above)
        # first-row asks only whether a key is there
        self._layout = kv_read_schema(store)
        target = pa.schema([]) if store.options.merge_engine == "first-row" else self._layout
        place = store, task.partition, task.bucket
        self._above = RowsAbove(*place, above, target, deletions=deletions) if asks else None
        self.above = tuple(above) if asks else ()
        self._writer = self._digest = None
        if rules.produces:
            self._writer = KeyValueFileWriter.of_changes(*place, task.total_buckets, level=task.output_level)
            self._digest = OutputDigest(changelog_files_of(store), task, task.output_level)
        self._living, self._witness = living, witness
        self._keeps_vectors = store.options.deletion_vectors_enabled
        self._superseded: dict[str, list[DeletionVector]] = {}
        look_up: LookUp | None = self._find if asks else None
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
        asked = np.concatenate([hit.wanted_rows for hit in hits])
        order = np.argsort(asked)
        if not hits[0].rows.num_columns:
            if self._witness is not None:
                self._witness.looked_up(self._keys_alone(columns.take(pa.array(asked[order]))))
            return asked[order], hits[0].rows
        rows = pa.concat_batches([hit.rows for hit in hits]).take(pa.array(order))
        asked = asked[order]
        if self._living is not None:  # a row that is over is not there
            left = self._living(rows.append_column(_PLACE, pa.array(asked)))
            asked, rows = left.column(_PLACE).to_numpy(), left.select(rows.schema.names)
        if self._witness is not None:
            self._witness.looked_up(rows)
        return asked, rows

    @property
    def superseded(self) -> dict[str, DeletionVector]:
        """Tables with deletion vectors: by file above the output, rows that were found and are no answer any more."""
        return {name: DeletionVector.union(parts) for name, parts in self._superseded.items()}

    def _keys_alone(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """KV rows of which nothing is known but the key."""
        layout, count = self._layout, keys.num_rows
        columns = {name: pa.array(np.zeros(count, np.int64)).cast(layout.field(name).type) for name in _SYSTEM}
        for name in keys.schema.names:
            columns[key_name(name)] = columns[name] = keys.column(name)
        made = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in layout]
        return pa.RecordBatch.from_arrays(made, layout.names)

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None or self._digest is None:
            return
        if self._witness is not None:
            self._witness.changed(batch)
        self._digest.add(batch)
        self._writer.write(batch)
        self._digest.written(self._writer.group_rows)

    def close(self) -> ProducedChangelog | None:
        """Finish the changelog files; None where the table produces none. Raises :class:`StorageFull`."""
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
    """How the rewrite of ``files`` looks keys up and produces a changelog; None where it does neither.

    A lookup compares what comes up from level 0, a full compaction what reaches the top level (Java `ChangelogMergeTreeRewriter`).
    """
    options = store.options
    if options.deletion_vectors_enabled and newest_is_all(options) and options.changelog_producer != "lookup":
        return None  # what lies above is marked, and its values decide nothing
    rules = ChangelogRules.of(store.schema, store.options)
    if rules is None or task.output_level == 0:
        return None
    if rules.against is Against.TOP_LEVEL:
        return rules if task.output_level == max_level else None
    return rules if any(file.level == 0 for file in files) else None


__all__ = ["ChangelogProducer", "ProducedChangelog", "changelog_rules"]
