"""Proof that maintenance changed no row: sampled verification (V2) before a commit, digests of all rows afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, repeat, starmap
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, chosen_rows, numpy_array, one_array
from lsm_core.compact import BucketTask
from lsm_core.compact.rewrite import changelog_rules
from lsm_core.compact.row_digests import Content, content_of
from lsm_core.compact.splice import rows_by_file
from lsm_core.compact.task import SAMPLED
from lsm_core.errors import InvalidOption, VerificationFailed
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.hashing import bucket_of
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.actions.compact.compaction import expiry_clock
from lsm_core.maintenance.actions.undo.replaced_files import UNDO_PROPERTY
from lsm_core.maintenance.canonical_values import canonical_rows, sort_map_entries
from lsm_core.maintenance.lone_versions import BucketFiles, compacted_lone_versions
from lsm_core.maintenance.reference import Row, builds_rows, key_order, merge_by_key
from lsm_core.maintenance.reference.changes import LOOKED_UP, ChangeRules, merge_with_changes
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.merging import living
from lsm_core.maintenance.reference.sampling import KEYS, Place, RowCollector, draw
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.maintenance.verification_scope import entries_to_compare
from lsm_core.merge.changelog import Against, ChangelogRules
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import manifests, tags
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.progress import advance, reached, stage
from lsm_core.read import Split, read_bucket_merged
from lsm_core.read.evolution import read_evolved
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.prune import expiry_of, living_at
from lsm_core.read.scan import read_raw
from lsm_core.tracing import record_span


@dataclass(frozen=True)
class BucketDifference:
    """Bucket whose content view (digest of its merged rows) differs between two snapshots.

    Attributes:
        bucket: "dt=1/bucket-0", or "dt=1, 1 and 3 buckets" for a partition that was rescaled between the snapshots.
        rows_a: merged rows in the first snapshot.
        rows_b: merged rows in the second snapshot.
        digest_a: hex digest of the first snapshot's rows.
        digest_b: hex digest of the second snapshot's rows.
    """

    bucket: str
    rows_a: int
    rows_b: int
    digest_a: str
    digest_b: str


@dataclass(frozen=True)
class VerifyReport:
    """Comparison of the rows of two snapshots: by reference if a bucket has the same files in both, else by digest.

    Attributes:
        table: name of the table.
        snapshot_a: id of the first snapshot.
        snapshot_b: id of the second snapshot.
        ok: whether every bucket is equal.
        buckets: number of compared buckets.
        by_reference: number of buckets with the same files in both snapshots.
        by_digest: number of buckets compared by digest.
        rows_a: merged rows of the first snapshot in buckets compared by digest.
        rows_b: merged rows of the second snapshot in buckets compared by digest.
        differences: buckets that differ.
        level: verification level as text, for example "V1" (docs/verification.md).
        seconds: wall-clock time.
        by_part: number of buckets of which only the replaced files were compared.
    """

    table: str
    snapshot_a: int
    snapshot_b: int
    ok: bool
    buckets: int = 0
    by_reference: int = 0
    by_digest: int = 0
    rows_a: int = 0
    rows_b: int = 0
    differences: tuple[BucketDifference, ...] = ()
    level: str = "V1"
    seconds: float = 0.0
    by_part: int = 0


_SHOWN: Final = 5
_COMPARED_BYTES: Final = 32 << 20
_SAMPLED_SHARE: Final = 4
"""Divisor of the number of sampled keys with `dredge.verification` = sampled; small units are merged whole anyway."""
_WRITTEN: Final = "(what was handed to the writer)"
_ABOVE: Final = "(what was looked up)"
_CHANGELOG: Final = "(changelog)"
_Buckets: TypeAlias = "dict[tuple[bytes, int], _Bucket]"


class ReferenceJudge:
    """Verification V2: merges a sample of a rewrite's keys again with the reference (implements `compact.Judge`).

    The sampled rows are collected while the rewrite reads its inputs, and while check V1 reads the output files back.
    So V2 reads no file again.
    """

    def watch(
        self,
        store: TableStore,
        task: BucketTask,
        inputs: Sequence[DataFileMeta],
        within: KeyBounds | None = None,
        pieces: int = 1,
    ) -> ReferenceWitness:
        """Return the collector of sampled rows (`compact.Witness`) for a task's rewrite of some files.

        Record-level expiry uses the time at which the task was planned.

        Args:
            store: the table.
            task: compaction task of one bucket.
            inputs: files that the rewrite reads.
            within: range of keys that is rewritten, None for all keys.
            pieces: number of parts of the bucket that are rewritten separately and share one sample of keys. A sampled
                verification takes a quarter of the sample.
        """
        keys = KEYS // (_SAMPLED_SHARE if task.verification == SAMPLED else 1) // pieces
        max_level = max([store.options.num_levels - 1, *(file.level for file in task.files)])
        rules = changelog_rules(store, task, inputs, max_level)
        place = Place(store, task.partition, task.bucket, within)
        spliced = rows_by_file(task.spliced)
        return ReferenceWitness(
            place, inputs, task.now_ms, max(1, keys), rules=rules, max_level=max_level, spliced=spliced
        )

    def check(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        inputs: Sequence[DataFileMeta],
        outputs: Sequence[DataFileMeta],
        drop_delete: bool,
        now_ms: int | None = None,
    ) -> int:
        """Verify a finished rewrite by reading its input and output files.

        At least 1,000 keys are compared, or all keys if the inputs have at most 4,096 rows.

        Args:
            store: the table.
            partition: partition in Paimon's binary form.
            bucket: number of the bucket.
            inputs: files before the rewrite.
            outputs: files after the rewrite.
            drop_delete: whether the rewrite drops deletes.
            now_ms: clock of record-level expiry (epoch ms), None without expiry.

        Returns:
            Number of compared keys.

        Raises:
            VerificationFailed: keys are missing, must not exist, or have a wrong value ("V2"); the message names them.
        """
        witness = ReferenceWitness(Place(store, partition, bucket), inputs, now_ms)
        for file in inputs:
            for _, batch in witness.place.batches(file, store.schema.field_names):
                witness.add_input(file, batch)
        for file in outputs:
            for _, batch in witness.place.batches(file, store.schema.field_names):
                witness.add_output(file, chosen_rows(batch, witness.select_output(file, batch)))
        return witness.verify(outputs, drop_delete)


class ReferenceWitness:
    """Collector of the sampled rows of one bucket's rewrite, which it verifies (implements `compact.Witness`)."""

    def __init__(
        self,
        place: Place,
        inputs: Sequence[DataFileMeta],
        now_ms: int | None = None,
        keys: int = KEYS,
        *,
        rules: ChangelogRules | None = None,
        max_level: int = 0,
        spliced: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._produces_changelog = rules is not None and rules.produces
        self._comparison = None
        store = place.store
        if rules is not None:
            compared = rules.compared
            self._comparison = ChangeRules(
                max_level if rules.against is Against.TOP_LEVEL else None,
                None if compared is None else tuple(map(store.schema.field_names.index, compared)),
            )
        elif store.options.needs_lookup and store.options.merge_engine != "first-row":
            self._comparison = ChangeRules(None, lone_as_is=True)  # the lowest level above 0 includes the higher ones
        self.place, self._inputs, self._now_ms = place, tuple(inputs), now_ms
        self._catch = RowCollector(place, draw(place, inputs, keys, spliced), keys)
        self._handed = False

    def add_input(self, file: DataFileMeta, batch: pa.RecordBatch) -> None:
        """Add rows read from an input file."""
        self._catch.add(file.file_name, batch)

    def add_looked_up(self, batch: pa.RecordBatch) -> None:
        """Add rows that the rewrite looked up on the levels above its output level."""
        self._catch.add(_ABOVE, batch)

    def add_changes(self, batch: pa.RecordBatch) -> None:
        """Add rows that the rewrite wrote to the changelog."""
        self._catch.add(_CHANGELOG, batch)

    def select_output(self, file: DataFileMeta, keys: pa.RecordBatch) -> pa.Array:
        """Return the positions of the rows read back from an output file that must be passed to :meth:`add_output`.

        Args:
            file: the output file.
            keys: rows with at least the key columns.
        """
        self._catch.drop_early_rows()
        return self._catch.choose(file.file_name, keys)

    def add_output(self, file: DataFileMeta, rows: pa.RecordBatch) -> None:
        """Add the rows of an output file that :meth:`select_output` selected."""
        self._catch.keep(file.file_name, rows)

    def add_written(self, batch: pa.RecordBatch) -> None:
        """Add rows passed to the writer, if the output file is not read back."""
        self._handed = True
        self._catch.add(_WRITTEN, batch)

    def verify(
        self, outputs: Sequence[DataFileMeta], drop_delete: bool, rows_read: Mapping[str, int] | None = None
    ) -> int:
        """Merge the sampled input rows one by one, and compare the result with the output rows in every column.

        Args:
            outputs: files after the rewrite.
            drop_delete: whether the rewrite drops deletes.
            rows_read: number of rows that must have been added, by file name; None for all rows of each file.

        Returns:
            Number of compared keys.

        Raises:
            VerificationFailed: rows differ, or rows of a file were never added.
        """
        results = {_WRITTEN: sum(file.row_count for file in outputs)}
        if not self._handed:
            results = {file.file_name: file.row_count for file in outputs}
        # A witness that sees only a part of the rows would accept a rewrite that lost the other rows.
        inputs_read = {file.file_name: file.row_count for file in self._inputs} | dict(rows_read or {})
        for name, count in {**inputs_read, **results}.items():
            if missed := self._catch.count_missing(name, count):
                raise VerificationFailed(
                    "V2", [f"table {self.place.store.name}: {missed} rows of {name} were never read"]
                )
        self._catch.drop_early_rows()
        inputs = [(self._catch.table(file.file_name), file.level, age) for file, age in files_by_age(self._inputs)]
        level = max((file.level for file in outputs), default=0)
        outputs_read = [(self._catch.table(name), level, 0) for name in results]
        store = self.place.store
        if self._comparison is not None:
            rows = _rows(self.place, [*inputs, (self._catch.table(_ABOVE), LOOKED_UP, 0)])
            if self._now_ms is not None:
                rows = living(rows, store.schema, store.options.raw, self._now_ms)
            outcomes, changes = merge_with_changes(rows, store.schema, store.options.raw, drop_delete, self._comparison)
            compared = _compare(store, rows, _rows(self.place, outputs_read), drop_delete, outcomes=outcomes)
            if self._produces_changelog:
                self._compare_changes(rows, changes)
            return compared
        if self._now_ms is None and not builds_rows(store.options.raw):
            return _compare_picked(store, _SampledRows.of(inputs), _SampledRows.of(outputs_read), drop_delete)
        rows = _rows(self.place, inputs)
        if self._now_ms is not None:
            rows = living(rows, store.schema, store.options.raw, self._now_ms)
        return _compare(store, rows, _rows(self.place, outputs_read), drop_delete)

    def check_lookups(
        self,
        above: Sequence[DataFileMeta],
        searched: Collection[str],
        marked: Mapping[str, DeletionVector] | None,
        vector_of: Callable[[DataFileMeta], DeletionVector | None],
        *,
        alone: bool,
    ) -> None:
        """Check the rewrite's lookups against a direct read of one random row group above the output level.

        Every sampled row there whose key the rewrite updates must have been looked up. If the table has deletion
        vectors, the row must also be marked. Rows that may have expired by record-level expiry are not checked.

        Args:
            above: files on the levels above the output level.
            searched: names of files whose rows were added by :meth:`add_looked_up`.
            marked: rows that the rewrite supersedes, by file name; None if the table has no deletion vectors.
            vector_of: function that returns the earlier deletion vector of a file, or None.
            alone: whether this witness received all rows that left level 0.
        """
        store = self.place.store
        newer, older = (
            {
                key
                for file in self._inputs
                if (file.level == 0) is exists
                for key in _key_list(store, self._catch.table(file.file_name))
            }
            for exists in (True, False)
        )
        updated_keys = newer - older  # for a key that was compacted before, the unit has the older row itself
        if not above or not updated_keys or self._now_ms is not None:
            return
        file = sorted(above, key=lambda each: each.file_name)[self.place.salt % len(above)]
        first, stretch = self.place.stretch(file)
        chosen = self._catch.places(stretch)
        old = vector_of(file)
        if old is not None:
            chosen = chosen[~old.deleted_mask(first, stretch.num_rows)[chosen]]
        rows = pa.Table.from_batches([stretch]).take(pa.array(chosen))
        row_by_key = dict(zip(_key_list(store, rows), range(len(chosen)), strict=True))
        wrong: list[str] = []
        if marked is not None:
            vector = marked.get(file.file_name, DeletionVector())
            new = vector.deleted_mask(first, stretch.num_rows)[chosen]
            for key, at in row_by_key.items():
                where = f"row {first + int(chosen[at])} of {file.file_name}, key {_ordered_text(key)},"
                if key in updated_keys and not new[at]:
                    wrong.append(f"{where} is superseded and not marked")
                elif new[at] and alone and key not in newer:
                    wrong.append(f"{where} is marked, and no newer version came up")
        if file.file_name in searched:
            looked_up = self._catch.table(_ABOVE)
            place_by_key = {key: place for place, key in enumerate(_key_list(store, looked_up))}
            pairs = [
                (row_by_key[key], place_by_key[key])
                for key in row_by_key
                if key in updated_keys and key in place_by_key
            ]
            wrong += [
                f"key {_ordered_text(key)} is in {file.file_name}, and the lookup did not find it"
                for key in row_by_key
                if key in updated_keys and key not in place_by_key
            ]
            lowest = min(each.level for each in above if each.file_name in searched)
            if pairs and looked_up is not None and file.level == lowest and store.options.merge_engine != "first-row":
                mine, theirs = (
                    table.take(pa.array(places))
                    for table, places in zip((rows, looked_up), zip(*pairs, strict=True), strict=True)
                )
                differs = unequal_rows(mine, theirs, store.schema)
                for name in (SEQUENCE_NUMBER, VALUE_KIND):
                    differs |= mine.column(name).to_numpy() != theirs.column(name).to_numpy()
                keys = _key_list(store, mine)
                wrong += [
                    f"key {_ordered_text(keys[at])}: the lookup gave another version or value than {file.file_name} has"
                    for at in np.flatnonzero(differs)
                ]
        _refuse(store, wrong)

    def _compare_changes(self, rows: Sequence[Row], changes: Mapping[Any, Sequence[Row]]) -> None:
        """Compare the changelog of the sampled keys with that of the reference, in the same order per key."""
        store, changelog = self.place.store, self._catch.table(_CHANGELOG)
        same = _row_equality(store, rows)
        emitted: dict[Any, list[Row]] = {}
        for row in _rows(self.place, [(changelog, 0, 0)]):
            emitted.setdefault(key_order(row.key), []).append(row)
        wrong = [
            f"key {_key_text(key)} changed as {[kind_text(row) for row in expected]}, "
            f"the changelog has {[kind_text(row) for row in actual]}"
            for key in changes.keys() | emitted.keys()
            if len(expected := list(changes.get(key, ()))) != len(actual := emitted.get(key, []))
            or not all(map(same, expected, actual))
        ]
        _refuse(store, wrong)


def kind_text(row: Row) -> str:
    """Return the row kind of a change as text: "+I", "-U", "+U" or "-D".

    Args:
        row: the change.
    """
    return ("+I", "-U", "+U", "-D")[row.kind]


def files_by_age(files: Sequence[DataFileMeta]) -> list[tuple[DataFileMeta, int]]:
    """Return pairs of a file and its age rank (larger = newer), by semantics.md 3.5.

    Files of level 0 are ranked by largest sequence number, from 1; files of higher levels have rank 0.

    Args:
        files: files of a bucket.
    """
    newest_last = sorted(
        (file for file in files if file.level == 0),
        key=lambda f: (-f.max_sequence_number, f.min_sequence_number, f.creation_time_ms or 0, f.file_name),
        reverse=True,
    )
    ages = {id(file): age for age, file in enumerate(newest_last, 1)}
    return [(file, ages.get(id(file), 0)) for file in files]


@dataclass(frozen=True)
class _SampledRows:
    """Sampled rows of all files of a bucket.

    Attributes:
        table: the rows, or None if there are none.
        levels: level of each row's file.
        ages: age rank of each row's file (larger = newer, `files_by_age`).
    """

    table: pa.Table | None
    levels: list[int]
    ages: list[int]

    @staticmethod
    def of(tables: Sequence[tuple[pa.Table | None, int, int]]) -> _SampledRows:
        """Return the sampled rows of all files, given as (rows, level of the file, age rank of the file)."""
        present = [(table, level, age) for table, level, age in tables if table is not None]
        whole = pa.concat_tables([table for table, _, _ in present]) if present else None
        levels = chain.from_iterable(repeat(level, table.num_rows) for table, level, _ in present)
        ages = chain.from_iterable(repeat(age, table.num_rows) for table, _, age in present)
        return _SampledRows(whole, list(levels), list(ages))

    def rows(self, store: TableStore, values: Iterable[tuple[Any, ...]]) -> list[Row]:
        """Return the rows as `Row` objects of the reference, with one tuple of ``values`` per row."""
        if self.table is None:
            return []
        keys = _tuples(self.table, [KEY_PREFIX + name for name in store.schema.trimmed_primary_keys])
        order = _tuples(self.table, store.options.sequence_field)
        sequences, kinds = (_to_list(self.table.column(name)) for name in (SEQUENCE_NUMBER, VALUE_KIND))
        return list(starmap(Row, zip(keys, order, sequences, kinds, values, self.levels, self.ages, strict=True)))


def _rows(place: Place, tables: Sequence[tuple[pa.Table | None, int, int]]) -> list[Row]:
    """Return `Row` objects of the reference for tables given as (rows, level of the file, age rank of the file)."""
    caught, store = _SampledRows.of(tables), place.store
    if caught.table is None:
        return []
    if builds_rows(store.options.raw):
        columns = [plain_values(caught.table.column(name)) for name in store.schema.field_names]
        return caught.rows(store, zip(*columns, strict=True))
    return caught.rows(store, _tuples(_encode_nested(caught.table, store.schema), store.schema.field_names, exact=True))


def _encode_nested(table: pa.Table, schema: TableSchema) -> pa.Table:
    """Replace nested columns by the bytes of their BinaryRow, equal if and only if all inner values are the same.

    Entries of maps are sorted before, because their order has no meaning: Java's compaction may change it.
    """
    for field in schema.fields:
        if field.type.is_nested:
            at = table.column_names.index(field.name)
            table = table.set_column(
                at, field.name, encode_rows([sort_map_entries(one_array(table.column(at)))], [field.type])
            )
    return table


def _tuples(table: pa.Table, names: Sequence[str], exact: bool = False) -> list[tuple[Any, ...]]:
    """Return rows as tuples of plain values; dates and times become numbers, which have the same order.

    ``exact``: values are equal only if they are the same, so floats become their bits (one NaN, two zeros).
    """
    if not names:
        return [()] * table.num_rows
    columns = (_numbers(table.column(name)) for name in names)
    return list(zip(*(_to_list(_bits(column) if exact else column) for column in columns), strict=True))


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        return column.cast(pa.int32())
    return column


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    width = pa.int64() if column.type == pa.float64() else pa.int32()
    return pa.chunked_array([chunk.view(width) for chunk in one_nan.chunks], width)


def _key_list(store: TableStore, table: pa.Table | None) -> list[Any]:
    """Return the keys of KV rows as comparable values; [] without a table."""
    if table is None:
        return []
    names = [KEY_PREFIX + name for name in store.schema.trimmed_primary_keys]
    return [key_order(key) for key in _tuples(table, names)]


def _ordered_text(key: tuple[Any, ...]) -> str:
    """Return a key of :func:`_key_list` as text for people."""
    return ", ".join(repr(part[-1]) for part in key)


def _to_list(column: pa.ChunkedArray) -> list[Any]:
    if column.null_count == 0 and pa.types.is_integer(column.type):
        return list(numpy_array(column).tolist())
    return list(column.to_pylist())


def _compare_picked(store: TableStore, inputs: _SampledRows, outputs: _SampledRows, drop_delete: bool) -> int:
    """Merge the inputs, compare the result with the outputs, and return the number of merged keys.

    This is for merge engines that return one of the versions unchanged: whole Arrow columns are compared instead of
    Python values. ``drop_delete`` is whether the merge drops deletes. Raises VerificationFailed if keys differ.
    """
    mine = inputs.rows(store, ((number,) for number in range(len(inputs.levels))))
    theirs = outputs.rows(store, ((number,) for number in range(len(outputs.levels))))
    pairs: list[tuple[Row, Row]] = []

    def same(picked: Row, stored: Row) -> bool:
        pairs.append((picked, stored))
        return (picked.sequence, picked.kind) == (stored.sequence, stored.kind)

    compared = _compare(store, mine, theirs, drop_delete, same)
    if pairs and inputs.table is not None and outputs.table is not None:
        input_table, output_table = inputs.table, outputs.table
        step = max(1, _COMPARED_BYTES * output_table.num_rows // max(1, output_table.nbytes))  # rows may be wide
        if step > 1:
            input_table, output_table = (
                input_table.combine_chunks(),
                output_table.combine_chunks(),
            )  # or each `take` would join the chunks
        for start in range(0, len(pairs), step):
            some = pairs[start : start + step]
            if step == 1:  # a row that large is not copied
                ours, other = (
                    side.slice(row.values[0], 1) for side, row in zip((input_table, output_table), some[0], strict=True)
                )
            else:
                ours = input_table.take(arrow_array([picked.values[0] for picked, _ in some]))
                other = output_table.take(arrow_array([stored.values[0] for _, stored in some]))
            wrong = np.flatnonzero(unequal_rows(ours, other, store.schema))
            _refuse(
                store, [f"key {_key_text(some[place][0].key)} has another version or value" for place in wrong[:_SHOWN]]
            )
    return compared


def unequal_rows(left: pa.Table, right: pa.Table, schema: TableSchema) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that differ in any column: floats by their bits, nested values by their BinaryRow.

    Args:
        left: rows to compare.
        right: rows to compare with, in the same order.
        schema: schema of the table.
    """
    wrong = np.zeros(left.num_rows, dtype=bool)
    left, right = _encode_nested(left, schema), _encode_nested(right, schema)
    for name in schema.field_names:
        mine, theirs = (_bits(_numbers(side.column(name))) for side in (left, right))
        if mine.equals(theirs):
            continue
        differ = pc.fill_null(pc.not_equal(mine, theirs), fill_value=False)
        wrong |= np.asarray(pc.or_(differ, pc.xor(mine.is_null(), theirs.is_null())))
    return wrong


def _refuse(store: TableStore, wrong: Sequence[str]) -> None:
    if wrong:
        raise VerificationFailed("V2", [f"table {store.name}: {text}" for text in wrong[:_SHOWN]])


def _compare(
    store: TableStore,
    inputs: Sequence[Row],
    outputs: Sequence[Row],
    drop_delete: bool,
    same: Callable[[Row, Row], bool] | None = None,
    outcomes: Mapping[Any, Row | None] | None = None,
) -> int:
    """Merge the inputs, compare the result with the outputs, and return the number of merged keys.

    Args:
        store: the table.
        inputs: versions that were merged.
        outputs: rows that the merge stored.
        drop_delete: whether the merge drops deletes.
        same: function that compares a merged row with a stored row, None for :func:`_row_equality`.
        outcomes: merged rows by key (None for a key without a row), None to merge ``inputs``.

    Raises:
        VerificationFailed: keys differ; the message names them.
    """
    if outcomes is None:
        outcomes = merge_by_key(inputs, store.schema, store.options.raw, drop_delete)
    expected = {key: row for key, row in outcomes.items() if row is not None}
    stored: dict[Any, Row] = {}
    wrong: dict[Any, str] = {}
    same = same or _row_equality(store, inputs)
    for row in outputs:
        key = key_order(row.key)
        if key in stored:
            wrong[key] = f"key {row.key} is stored twice"
        stored[key] = row
    for key in expected.keys() | stored.keys():
        if key not in stored:
            wrong[key] = f"key {_key_text(expected[key].key)} is missing"
        elif key not in expected:
            wrong[key] = f"key {_key_text(stored[key].key)} should not be there"
        elif not same(expected[key], stored[key]):
            wrong[key] = f"key {_key_text(stored[key].key)} has another version or value"
    _refuse(store, list(wrong.values()))
    return len(outcomes)


def _row_equality(store: TableStore, inputs: Sequence[Row]) -> Callable[[Row, Row], bool]:
    """Return a function that compares a merged row with a stored row of the same key.

    If the merge engine builds rows, floats may differ in the last bits that depend on the order of ``inputs``.
    """
    if not builds_rows(store.options.raw):
        return lambda mine, theirs: (
            (mine.sequence, mine.kind, mine.values)
            == (
                theirs.sequence,
                theirs.kind,
                theirs.values,
            )
        )
    answers = ResultComparison(store.schema, store.options.raw)

    def same(mine: Row, theirs: Row) -> bool:
        # The versions, by which sums of floats may differ, are searched only for rows that differ.
        return answers.same(mine, theirs) or answers.same(
            mine, theirs, [row for row in inputs if key_order(row.key) == key_order(mine.key)]
        )

    return same


def _key_text(key: tuple[Any, ...]) -> str:
    return ", ".join(repr(part) for part in key)


@dataclass(frozen=True)
class _Bucket:
    """Live files of a bucket in one snapshot.

    Attributes:
        partition: partition bytes.
        bucket: number of the bucket.
        total: number of buckets of the partition, 0 if it is not known.
        files: metadata of the live files.
        deletions: deletion vector of each file of ``files``, None for a file without one.
    """

    partition: bytes
    bucket: int
    total: int = 0
    files: tuple[DataFileMeta, ...] = ()
    deletions: tuple[DeletionFile | None, ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether the bucket function decides which rows belong to this bucket."""
        return self.bucket >= 0 and self.total > 0

    def without(self, shared: Collection[tuple[str, int, DeletionFile | None]]) -> _Bucket:
        """Return the bucket without the ``shared`` files, given as (name, level, deletion vector or None)."""
        kept = [
            (file, vector)
            for file, vector in zip(self.files, self.deletions, strict=True)
            if (file.file_name, file.level, vector) not in shared
        ]
        return replace(self, files=tuple(file for file, _ in kept), deletions=tuple(vector for _, vector in kept))

    def as_files(self) -> BucketFiles:
        """Return the files with their deletion vectors by file name."""
        vectors = {f.file_name: vector for f, vector in zip(self.files, self.deletions, strict=True) if vector}
        return BucketFiles(self.partition, self.bucket, self.files, vectors)

    @property
    def identity(self) -> frozenset[tuple[str, int, DeletionFile | None]]:
        return frozenset(
            (file.file_name, file.level, vector) for file, vector in zip(self.files, self.deletions, strict=True)
        )


@dataclass(frozen=True)
class _Pair:
    """Unit of comparison between two snapshots: one bucket, or a partition whose number of buckets changed.

    Attributes:
        name: name of the bucket or partition for people.
        sides: buckets in the first and in the second snapshot.
        rescaled: whether this is a partition whose number of buckets changed.
    """

    name: str
    sides: tuple[tuple[_Bucket, ...], tuple[_Bucket, ...]]
    rescaled: bool = False

    @property
    def places(self) -> set[int]:
        """Numbers of the buckets in either snapshot."""
        return {place.bucket for side in self.sides for place in side}

    @property
    def rows(self) -> int:
        """Number of stored rows in both snapshots together."""
        return sum(file.row_count for side in self.sides for place in side for file in place.files)

    @property
    def shared(self) -> bool:
        """Whether both snapshots have the same files."""
        first, second = self.sides
        return not self.rescaled and [place.identity for place in first] == [place.identity for place in second]

    def replaced(self, store: TableStore) -> _Pair | None:
        """Return the files that only one snapshot has, or None if comparing only these files would prove too little.

        The comparison proves enough only if merging some files first never changes the rows of the bucket. So the
        result is None if the order of merging may change rows. Except for deduplicate, it is also None if an unchanged
        file overlaps the sequence numbers of the replaced files.
        """
        if self.rescaled or any(len(side) != 1 for side in self.sides):
            return None
        (before,), (after,) = self.sides
        shared = before.identity & after.identity
        if not shared or not store.schema.primary_keys or store.options.needs_lookup or expiry_of(store) is not None:
            return None
        retracts = any(file.delete_row_count != 0 for place in (before, after) for file in place.files)
        if not order_free(store.schema, store.options.raw, retracts, store.name, has_expired=False).ok:
            return None
        parts = tuple(place.without(shared) for place in (before, after))
        if store.options.merge_engine != "deduplicate":
            first = min(file.min_sequence_number for file in parts[0].files)
            last = max(file.max_sequence_number for file in parts[0].files)
            shared_files = [file for file in before.files if (file.file_name, file.level, None) in shared]
            if any(file.min_sequence_number <= last and file.max_sequence_number >= first for file in shared_files):
                return None
        return _Pair(self.name, ((parts[0],), (parts[1],)))

    def drops_deletes(self, store: TableStore, replaced: _Pair) -> bool:
        """Return whether deletes in the ``replaced`` files may be dropped: no unchanged file can hold an older row."""
        if store.options.merge_engine != "deduplicate" or store.options.sequence_field:
            return False
        (part,), (whole,) = replaced.sides[0], self.sides[0]
        last = max((file.max_sequence_number for file in part.files), default=0)
        part_names = {file.file_name for file in part.files}
        return all(file.min_sequence_number > last for file in whole.files if file.file_name not in part_names)

    def content(self, store: TableStore, side: int, living: Living | None) -> Content:
        """Return the row digest of one snapshot (``side`` 0 or 1); if rescaled, without rows in a wrong bucket."""
        content = Content()
        for place in self.sides[side]:
            content = content.plus(content_view(store, place, living, placed=self.rescaled))
        return content

    def explained(
        self, store: TableStore, left: Content, right: Content, living: Living | None, *, is_undo: bool
    ) -> tuple[Content, Content]:
        """Return the contents of both snapshots, without differences that a compaction with lookups must make.

        Args:
            store: the table.
            left: content of the first snapshot.
            right: content of the second snapshot.
            living: filter that drops expired rows (record-level expiry); None for all rows.
            is_undo: whether the second snapshot undoes a compaction, and so makes the opposite differences.
        """
        if self.rescaled or any(len(side) != 1 for side in self.sides):
            return left, right
        before, after = (side[0].as_files() for side in self.sides)
        if is_undo:
            return left, with_lone_versions_merged(store, right, after, before, living)
        return with_lone_versions_merged(store, left, before, after, living), right


class _Moves:
    """Buckets that differ, grouped by partition or table if rows may move between buckets.

    Keys of dynamic buckets may be in any bucket of their partition, and keys of cross-partition tables in any
    partition. The buckets of a group count as different only if their summed contents differ.
    """

    def __init__(self, store: TableStore) -> None:
        self._mode = store.bucket_mode
        self._buckets: dict[object, list[tuple[BucketDifference, Content, Content]]] = {}

    def add(self, pair: _Pair, difference: BucketDifference, left: Content, right: Content) -> None:
        """Add a bucket whose rows have different digests in the two snapshots (``left`` and ``right``)."""
        place = pair.sides[0][0]
        scope: object = (place.partition, place.bucket)
        if self._mode is BucketMode.DYNAMIC:
            scope = place.partition
        elif self._mode is BucketMode.CROSS_PARTITION:
            scope = None
        self._buckets.setdefault(scope, []).append((difference, left, right))

    def differences(self) -> list[BucketDifference]:
        """Return the buckets of all groups whose contents differ as a whole."""
        differences: list[BucketDifference] = []
        for buckets in self._buckets.values():
            before = reduce(Content.plus, (left for _, left, _ in buckets), Content())
            after = reduce(Content.plus, (right for _, _, right in buckets), Content())
            if before.live != after.live:
                differences += [difference for difference, _, _ in buckets]
        return differences


def verify_snapshots(
    store: TableStore,
    snapshot_a: int,
    snapshot_b: int,
    *,
    replaced_only: bool = False,
    places: Collection[tuple[bytes, int]] | None = None,
    appended: bool = False,
) -> VerifyReport:
    """Compare the rows of two snapshots by bucket: by reference if the files are the same, else by digest.

    Use this function for the snapshots before and after a COMPACT commit or a rescale. Rows appended in between are a
    difference unless ``appended`` is set. A partition whose number of buckets changed is compared as a whole, and rows
    outside the bucket of their key count as lost. Rows that had expired (record-level expiry) at the compaction's clock
    are ignored in both snapshots. The result does not depend on the order of rows. Memory holds the merge of one
    bucket.

    Args:
        store: the table.
        snapshot_a: id of the first snapshot.
        snapshot_b: id of the second snapshot.
        replaced_only: compare only the files that one of the snapshots lacks, with sequence numbers, kinds and deletes
            (`VerifyReport.by_part`). A bucket for which this would prove too little is compared as a whole.
        places: buckets to compare (partition bytes and bucket), None for all.
        appended: add rows appended between the snapshots to the first snapshot, so that they are no difference.

    Raises:
        InvalidOption: an id is not a number.
        SnapshotNotFound: a snapshot does not exist.
        CorruptFile: a file cannot be read.
        UnsupportedFeature: Dredge cannot read the table.
    """
    for snapshot_id in (snapshot_a, snapshot_b):
        if not isinstance(snapshot_id, int):
            raise InvalidOption("snapshot id", snapshot_id, "the number of a snapshot", store.name)
    with record_span(
        "verify", table=store.name, level=VerifyReport.level, snapshot_a=snapshot_a, snapshot_b=snapshot_b
    ) as span:
        report = _verify_snapshots(store, snapshot_a, snapshot_b, replaced_only, places, appended)
        span.set(ok=report.ok, buckets=report.buckets, rows=report.rows_b, differences=len(report.differences))
    return report


def _verify_snapshots(
    store: TableStore,
    snapshot_a: int,
    snapshot_b: int,
    replaced_only: bool,
    places: Collection[tuple[bytes, int]] | None,
    appended: bool,
) -> VerifyReport:
    """Compare the rows of two snapshots; the arguments are those of `verify_snapshots`."""
    started = time.perf_counter()
    for number in (snapshot_a, snapshot_b):
        require_readable(store, tags.find_snapshot(store, number))
    entries = entries_to_compare(store, snapshot_a, snapshot_b, places, appended=appended)
    first, second = (
        _buckets(store, number, side) for number, side in zip((snapshot_a, snapshot_b), entries, strict=True)
    )
    newest = tags.find_snapshot(store, snapshot_b)
    living = living_at(store, expiry_clock(newest))
    is_undo = UNDO_PROPERTY in (newest.properties or {})
    differences: list[BucketDifference] = []
    moves = _Moves(store)
    rows = [0, 0]
    pairs = list(_pairs(store, first, second))
    changed = [pair for pair in pairs if not pair.shared]
    by_digest = sum(len(pair.places) for pair in changed)
    by_reference = sum(len(pair.places) for pair in pairs) - by_digest
    through = by_part = 0
    parts = [pair.replaced(store) if replaced_only else None for pair in changed]
    with stage(
        f"comparing {store.name}", sum((part or pair).rows for pair, part in zip(changed, parts, strict=True)), "rows"
    ):
        for pair, part in zip(changed, parts, strict=True):
            if part is not None:
                sides = [_digest_exact(store, side[0]) for side in part.sides]
                kept = sides[0].dead == sides[1].dead or (not sides[1].dead.rows and pair.drops_deletes(store, part))
                if kept and sides[0].live == sides[1].live:
                    by_part += 1
                    through += part.rows
                    reached(through)
                    rows = [total + side.live.rows for total, side in zip(rows, sides, strict=True)]
                    continue
            # A bucket whose replaced files differ is compared as a whole, to find the difference that readers see.
            left, right = pair.content(store, 0, living), pair.content(store, 1, living)
            if left.live != right.live:
                left, right = pair.explained(store, left, right, living, is_undo=is_undo)
            through += pair.rows
            reached(through)  # merging drops some rows: progress counts stored rows
            rows[0] += left.live.rows
            rows[1] += right.live.rows
            if left.live != right.live:
                texts = left.text(), right.text()
                difference = BucketDifference(pair.name, left.live.rows, right.live.rows, *texts)
                moves.add(pair, difference, left, right)
            elif part is not None and sides[0].live != sides[1].live:  # not yet visible to readers
                texts = sides[0].text(), sides[1].text()
                differences.append(BucketDifference(pair.name, sides[0].rows, sides[1].rows, *texts))
    differences += moves.differences()
    return VerifyReport(
        table=store.name,
        snapshot_a=snapshot_a,
        snapshot_b=snapshot_b,
        ok=not differences,
        buckets=by_reference + by_digest,
        by_reference=by_reference,
        by_digest=by_digest,
        rows_a=rows[0],
        rows_b=rows[1],
        differences=tuple(differences),
        seconds=round(time.perf_counter() - started, 3),
        by_part=by_part,
    )


def _pairs(store: TableStore, first: _Buckets, second: _Buckets) -> Iterator[_Pair]:
    """Yield the pairs of buckets to compare, by partition bytes and bucket number."""
    fixed = [_buckets_by_hash(first), _buckets_by_hash(second)]
    totals = [{p: sorted({place.total for place in places}) for p, places in side.items()} for side in fixed]
    rescaled = {p for p in totals[0].keys() & totals[1].keys() if totals[0][p] != totals[1][p]}
    done: set[bytes] = set()
    for partition, bucket in sorted(first.keys() | second.keys()):
        text = partition_text(store.schema, partition, store.options)
        nothing = _Bucket(partition, bucket)
        a, b = first.get((partition, bucket), nothing), second.get((partition, bucket), nothing)
        if partition not in rescaled or not (a.fixed or b.fixed):
            yield _Pair(bucket_name(text, bucket), ((a,), (b,)))
        elif partition not in done:
            done.add(partition)
            counts = " and ".join("/".join(map(str, side[partition])) for side in totals)
            sides = tuple(fixed[0][partition]), tuple(fixed[1][partition])
            yield _Pair(f"{text}, {counts} buckets".removeprefix(", "), sides, rescaled=True)


def _buckets_by_hash(side: _Buckets) -> dict[bytes, list[_Bucket]]:
    """Return the buckets of fixed bucket mode by partition: those whose rows the hash of the bucket key chooses."""
    by_partition: dict[bytes, list[_Bucket]] = {}
    for place in side.values():
        if place.fixed:
            by_partition.setdefault(place.partition, []).append(place)
    return by_partition


def _buckets(store: TableStore, snapshot_id: int, entries: pa.Table) -> _Buckets:
    snapshot = tags.find_snapshot(store, snapshot_id)
    require_in_place(store, snapshot, entries)
    vectors = deletion_vectors(store, snapshot)
    buckets = {}
    for partition, bucket, total, table in bucket_groups(entries):
        files = tuple(entry.file for entry in table_to_entries(table))
        bucket_vectors = vectors.get((partition, bucket), {})
        buckets[partition, bucket] = _Bucket(
            partition, bucket, total, files, tuple(bucket_vectors.get(f.file_name) for f in files)
        )
    return buckets


def content_view(store: TableStore, place: _Bucket, living: Living | None = None, placed: bool = False) -> Content:
    """Return the digest of one bucket's merged rows, without deletes and without rows that ``living`` excludes.

    Args:
        store: the table.
        place: the bucket.
        living: filter that drops expired rows (record-level expiry); None for all rows.
        placed: count only rows that the bucket function puts into this bucket.
    """
    content = Content()
    with closing(_merged(store, place, living)) as batches:  # type: ignore[type-var]
        for batch in batches:
            advance(batch.num_rows)
            rows = canonical_rows(_own(store, place, batch) if placed else batch, store.schema, store.options.raw)
            content = content.plus(content_of(rows, store.schema))
    return content


def _digest_exact(store: TableStore, place: _Bucket) -> Content:
    """Return the digest of the merged rows of some files, including sequence numbers, row kinds and deletes."""
    content = Content()
    merged = read_bucket_merged(
        store, place.partition, place.bucket, list(place.files), keep_deletes=True, keep_system=True
    )
    with closing(merged) as batches:
        for batch in batches:
            advance(batch.num_rows)
            content = content.plus(content_of(batch, store.schema, exact=True))
    return content


def bucket_content(
    store: TableStore,
    partition: bytes,
    bucket: int,
    files: Sequence[DataFileMeta],
    deletions: Mapping[str, DeletionFile],
    living: Living | None = None,
) -> Content:
    """Return the digest of a bucket's merged rows as if it had exactly ``files``, which need not be live.

    Args:
        store: the table.
        partition: partition in Paimon's binary form.
        bucket: number of the bucket.
        files: data files to merge.
        deletions: deletion vectors by data file.
        living: filter that drops expired rows (record-level expiry); None for all rows.

    Raises:
        CorruptFile: a file cannot be read.
    """
    vectors = tuple(deletions.get(file.file_name) for file in files)
    return content_view(store, _Bucket(partition, bucket, 0, tuple(files), vectors), living)


def with_lone_versions_merged(
    store: TableStore, content: Content, before: BucketFiles, after: BucketFiles, living: Living | None = None
) -> Content:
    """Return the content of a bucket before a compaction, with the rows that the compaction makes of lone versions.

    Only keys count whose row after the compaction is the merge of their only version (`lone_versions`).

    Args:
        store: the table.
        content: content of the bucket before the compaction.
        before: files of the bucket before the compaction.
        after: files of the bucket after the compaction.
        living: filter that drops expired rows (record-level expiry); None for all rows.

    Raises:
        CorruptFile: a file cannot be read.
    """
    live = content.live
    for rows in compacted_lone_versions(store, before, after, living):
        stored, merged = (
            content_of(canonical_rows(batch, store.schema, store.options.raw), store.schema) for batch in rows
        )
        live = live.subtract(stored.live).add(merged.live)
    return replace(content, live=live)


def _own(store: TableStore, place: _Bucket, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that the bucket function puts into ``place``; lookups would not find misplaced rows."""
    if not store.schema.bucket_keys:
        return batch
    keys = [batch.column(name) for name in store.schema.bucket_keys]
    buckets = bucket_of(keys, store.schema.bucket_key_types, place.total, store.options.bucket_function)
    own = buckets == place.bucket
    return batch if own.all() else batch.filter(pa.array(own))


def _merged(store: TableStore, place: _Bucket, living: Living | None) -> Iterator[pa.RecordBatch]:
    if store.schema.primary_keys:
        vectors = {f.file_name: vector for f, vector in zip(place.files, place.deletions, strict=True) if vector}
        return read_bucket_merged(
            store, place.partition, place.bucket, list(place.files), deletions=vectors, living=living
        )
    if manifests.evolves(store):
        vectors = {f.file_name: vector for f, vector in zip(place.files, place.deletions, strict=True) if vector}
        return read_evolved(store, (place.partition, place.bucket), place.files, vectors, store.schema.field_names)
    split = Split(place.partition, place.bucket, place.files, raw=True, deletions=place.deletions)
    return read_raw(store, split, columns=store.schema.field_names)
