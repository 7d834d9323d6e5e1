"""Verification in flight: counters and metadata (V0), and a second reading of what was written (V1), before anything is published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

import pyarrow as pa

from lsm_core.compact.content import Content, content_of
from lsm_core.compact.rewrite import Rewritten
from lsm_core.compact.streams import Streams
from lsm_core.compact.task import BucketTask, Witness
from lsm_core.errors import CorruptFile, VerificationFailed
from lsm_core.files.append_reader import open_source
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge import normalise_keys
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Shapes
from lsm_core.read.key_range import KeyBounds
from lsm_core.tree import Levels
from lsm_core.types.nesting import refit

_BATCH_ROWS = 65_536


def check_counters(rows_in: int, rows_out: int, dropped: dict[str, int], files: Sequence[DataFileMeta]) -> None:
    """V0: rows in = rows out + rows dropped for a named reason, and the files' metadata counts the same rows.

    Raises :class:`VerificationFailed` ("V0").
    """
    if rows_in != rows_out + sum(dropped.values()):
        raise VerificationFailed("V0", [f"{rows_in} rows in, {rows_out} out, dropped {dict(dropped)}"])
    counted = sum(file.row_count for file in files)
    if counted != rows_out:
        raise VerificationFailed("V0", [f"{rows_out} rows out, the new files' metadata says {counted}"])


def check_metadata(store: TableStore, task: BucketTask, done: Rewritten, shapes: Shapes) -> None:
    """V0: levels, sequence ranges, key ranges and delete counts of a rewrite are consistent with its inputs and its task.

    Raises :class:`VerificationFailed` ("V0") naming the file.
    """
    if not done.after:
        return
    lowest = min(file.min_sequence_number for file in done.before)
    highest = max(file.max_sequence_number for file in done.before)
    before, after = shapes.of(done.before), shapes.of(done.after)
    within = None if task.piece is None else KeyBounds(store, task.piece)
    low, high = min(file.min_key for file in before), max(file.max_key for file in before)
    for file, shape in zip(done.after, after, strict=True):
        problem = None
        if file.level != task.output_level:
            problem = f"level {file.level}, not {task.output_level}"
        elif not lowest <= file.min_sequence_number <= file.max_sequence_number <= highest:
            problem = "sequence numbers outside of its inputs'"
        elif not low <= shape.min_key <= shape.max_key <= high:
            problem = "keys outside of its inputs'"
        elif within is not None and not within.holds(shape):
            problem = "keys outside of its piece"
        if problem:
            raise VerificationFailed("V0", [f"{file.file_name}: {problem}"])
    for one, following in pairwise(after):
        if not one.max_key < following.min_key:
            raise VerificationFailed("V0", [f"{one.name} and {following.name} overlap"])
    deletes = sum(file.delete_row_count or 0 for file in done.after)
    if deletes != done.content.dead.rows or (task.drop_delete and deletes):
        raise VerificationFailed("V0", [f"{deletes} deletes in the new files, {done.content.dead.rows} were written"])


def check_tree(
    store: TableStore,
    task: BucketTask,
    before: Sequence[DataFileMeta],
    after: Sequence[DataFileMeta],
    shapes: Shapes,
) -> None:
    """V0: the bucket with ``before`` replaced by ``after`` is a proper tree. Raises :class:`VerificationFailed` ("V0")."""
    gone = {(file.file_name, file.level) for file in before}
    left = [file for file in task.files if (file.file_name, file.level) not in gone]
    try:
        Levels(shapes.of([*left, *after]), store.options.num_levels).validate()
    except CorruptFile as error:
        raise VerificationFailed("V0", [str(error)]) from error


def check_content(store: TableStore, task: BucketTask, done: Rewritten, witness: Witness | None = None) -> None:
    """V1: re-read the new files; their content must be what was handed to the writer. A ``witness`` sees their rows too.

    Values and order are compared to the bit where Parquet keeps them, else digests. Raises :class:`VerificationFailed` ("V1"),
    and :class:`CorruptFile` when a file cannot be read back.
    """
    names = ", ".join(file.file_name for file in done.after)
    if done.streams is not None:
        same = Streams(store.schema.field_names)
        for file in done.after:
            _reread(store, task, file, same.add, witness)
        if same.rows != done.streams.rows:
            raise VerificationFailed("V1", [f"{same.rows} rows re-read, {done.streams.rows} written: {names}"])
        if wrong := same.differing(done.streams):
            columns = ", ".join(f"'{name}'" for name in wrong)
            raise VerificationFailed("V1", [f"other values re-read than were written in {columns}: {names}"])
        return
    parts: list[Content] = []
    for file in done.after:
        _reread(store, task, file, lambda batch: parts.append(content_of(batch, store.schema)), witness)
    found, handed = reduce(Content.plus, parts, Content()), done.content
    for what, seen, expected in (("live", found.live, handed.live), ("deleted", found.dead, handed.dead)):
        if seen != expected:
            reason = f"{seen.rows} {what} rows re-read, {expected.rows} written, digests {'differ' if seen.rows == expected.rows else 'too'}"
            raise VerificationFailed("V1", [f"{reason}: {names}"])


def _reread(
    store: TableStore,
    task: BucketTask,
    file: DataFileMeta,
    see: Callable[[pa.RecordBatch], None],
    witness: Witness | None,
) -> None:
    """Show all rows of one file, in the table's types; for key-value files its keys too are checked, in both of their copies."""
    source = open_source(store, task.partition, task.bucket, file)
    try:
        keys = [name for name in store.schema.trimmed_primary_keys if not task.is_append]
        wanted = (VALUE_KIND, SEQUENCE_NUMBER)
        system = [name for name in source.schema.names if name in wanted or name.startswith(KEY_PREFIX)]
        order = _KeyOrder(file, keys)
        for batch in source.batches([*system, *store.schema.field_names], _BATCH_ROWS):
            shaped = _typed(batch, store)
            see(shaped)
            if witness is not None:
                witness.output(file, shaped)
            if keys:
                order.add(shaped)
        if keys:
            order.finish(store)
    finally:
        source.close()


def _typed(batch: pa.RecordBatch, store: TableStore) -> pa.RecordBatch:
    """Value columns in the table's types, as they were when they were handed to the writer."""
    schema = store.schema.arrow_schema
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = name.removeprefix(KEY_PREFIX)
        wanted = schema.field(plain).type if plain in schema.names else column.type
        if name == VALUE_KIND:
            wanted = pa.int8()
        columns.append(column if column.type == wanted else refit(column, wanted))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _bits(column: pa.Array) -> pa.Array:
    """Floats as their bits: to Arrow a NaN does not equal itself, as a key it does."""
    if not pa.types.is_floating(column.type):
        return column
    return column.view(pa.int64() if column.type == pa.float64() else pa.int32())


class _KeyOrder:
    """Keys strictly ascending, equal in `_KEY_k` and `k`, first and last as the metadata says."""

    def __init__(self, file: DataFileMeta, keys: list[str]) -> None:
        self._file, self._keys = file, keys
        self._first: list[pa.Array] | None = None
        self._last: list[pa.Array] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        columns = [batch.column(name) for name in self._keys]
        for name, column in zip(self._keys, columns, strict=True):
            if KEY_PREFIX + name in batch.schema.names:
                twin = batch.column(KEY_PREFIX + name)
                if not _bits(twin if twin.type == column.type else twin.cast(column.type)).equals(_bits(column)):
                    self._fail(f"'{KEY_PREFIX}{name}' and '{name}' differ")
        before = [] if self._last is None else [self._last]
        joined = [pa.concat_arrays([*(part[i] for part in before), column]) for i, column in enumerate(columns)]
        normalised = normalise_keys(joined)
        if not normalised.climbing() and (not normalised.ascending() or normalised.order()[1].any()):
            self._fail("keys do not ascend strictly")
        self._first = self._first or [column.slice(0, 1) for column in columns]
        self._last = [column.slice(batch.num_rows - 1, 1) for column in columns]

    def finish(self, store: TableStore) -> None:
        for ends, recorded in ((self._first, self._file.min_key), (self._last, self._file.max_key)):
            if ends is None or encode_rows(ends, store.schema.trimmed_key_types)[0].as_py() != recorded:
                self._fail("its first or last key is not the one in its metadata")

    def _fail(self, reason: str) -> None:
        raise VerificationFailed("V1", [f"{self._file.file_name}: {reason}"])
