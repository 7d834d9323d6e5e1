"""Verification before publishing: counters and metadata (V0), and a second read of the written files (V1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import Self

import pyarrow as pa

from lsm_core.arrays import chosen_rows, concat_columns, plain
from lsm_core.compact.rewrite import ProducedChangelog, RewriteResult
from lsm_core.compact.row_digests import Content, RowGroupDigest, Streams, content_of
from lsm_core.compact.splice import SplicedGroup
from lsm_core.compact.splicing import key_columns
from lsm_core.compact.task import COUNTS, SAMPLED, BucketTask, Witness
from lsm_core.errors import CorruptFile, VerificationFailed
from lsm_core.files.formats import FileSource
from lsm_core.files.reader import open_source
from lsm_core.files.row_group_copier import require_copied
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge import normalise_keys
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.merge_read import Shapes
from lsm_core.tree import Levels
from lsm_core.types.arrow import refit

_BATCH_ROWS = 65_536


def check_counters(rows_in: int, rows_out: int, dropped: dict[str, int], files: Sequence[DataFileMeta]) -> None:
    """Check that rows in = rows out + rows dropped for a named reason (V0).

    The files' metadata must count the same rows.

    Args:
        rows_in: input rows.
        rows_out: written rows.
        dropped: rows left out, by reason.
        files: files written.

    Raises:
        VerificationFailed: V0 failed.
    """
    if rows_in != rows_out + sum(dropped.values()):
        raise VerificationFailed("V0", [f"{rows_in} rows in, {rows_out} out, dropped {dict(dropped)}"])
    counted = sum(file.row_count for file in files)
    if counted != rows_out:
        raise VerificationFailed("V0", [f"{rows_out} rows out, the new files' metadata says {counted}"])


def check_metadata(store: TableStore, task: BucketTask, done: RewriteResult, shapes: Shapes) -> None:
    """Check that levels, sequence ranges, key ranges and delete counts of a rewrite match its inputs and task (V0).

    Args:
        store: the table.
        task: task that the rewrite belongs to.
        done: the rewrite, with its input and output files.
        shapes: cache of the files' :class:`DataFile` objects.

    Raises:
        VerificationFailed: V0 failed; the error names the file.
    """
    if not done.after:
        return
    lowest = min(file.min_sequence_number for file in (*done.before, *done.above))
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
    for file_shape, following in pairwise(after):
        if not file_shape.max_key < following.min_key:
            raise VerificationFailed("V0", [f"{file_shape.name} and {following.name} overlap"])
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
    """Check that the bucket is a valid LSM tree after ``before`` is replaced by ``after`` (V0).

    Args:
        store: the table.
        task: task that lists the bucket's files.
        before: files that the compaction removes.
        after: files that the compaction adds.
        shapes: cache of the files' :class:`DataFile` objects.

    Raises:
        VerificationFailed: V0 failed.
    """
    removed = {(file.file_name, file.level) for file in before}
    remaining = [file for file in task.files if (file.file_name, file.level) not in removed]
    try:
        Levels(shapes.of([*remaining, *after]), store.options.num_levels).validate()
    except CorruptFile as error:
        raise VerificationFailed("V0", [str(error)]) from error


def check_content(
    store: TableStore,
    task: BucketTask,
    done: RewriteResult,
    witness: Witness | None = None,
    *,
    threads: int = 1,
    repeats: bool = False,
) -> int:
    """Re-read the new files and compare their content with the rows that the writer received (V1).

    Values and order are compared to the bit if Parquet keeps every bit of the types; otherwise digests are compared.
    With `dredge.verification` = sampled, some row groups and all footers are read, and the witness (collector of rows
    for V2) receives no rows; with counts, no file is read.

    Args:
        store: the table.
        task: the task.
        done: the rewrite.
        witness: receives rows of the files for the independent check (V2); None to skip this check.
        threads: number of threads; with two, each decodes half of the columns of a row group, or half of the row
            groups of a file that is compared as a whole.
        repeats: whether a key may occur more than once.

    Returns:
        Number of rows that were re-read.

    Raises:
        VerificationFailed: V1 failed.
        CorruptFile: a file cannot be read.
    """
    if task.verification == COUNTS:
        return 0
    groups = None if done.digests is None else done.digests.groups
    content, rows, number = Content(), 0, 0
    witness = None if task.verification == SAMPLED else witness  # it received the rows from the writer instead
    with ExitStack() as helpers:
        helper = helpers.enter_context(ThreadPoolExecutor(1, "dredge-reread")) if threads > 1 else None
        comparer = (
            helpers.enter_context(ThreadPoolExecutor(1, "dredge-compare")) if threads > 1 and done.copied else None
        )
        for file in done.after:
            with _SecondReading(store, task, file, witness, helper, repeats=repeats) as second_reading:
                if groups is None:
                    content = content.plus(second_reading.whole_content())
                    continue
                compared = _compare_copies(store, task, done, file, comparer)
                for place, group_rows in enumerate(second_reading.group_rows):
                    written = groups[number] if number < len(groups) else RowGroupDigest(0)
                    number += 1
                    if group_rows != written.rows:
                        reason = (
                            f"row group {place} of {file.file_name} has {group_rows} rows, {written.rows} were written"
                        )
                        raise VerificationFailed("V1", [reason])
                    if written.streams is not None:
                        reread = second_reading.streams(place, written.streams.coded)
                        if differing := reread.differing(written.streams):
                            columns = ", ".join(f"'{column}'" for column in differing)
                            reason = f"values re-read differ from those written in {columns}: {file.file_name}"
                            raise VerificationFailed("V1", [reason])
                    elif written.content is not None:
                        _require_same_content(second_reading.content([place]), written.content, file.file_name)
                    elif written.spliced is not None:
                        second_reading.check_ends(written.spliced, place)
                    rows += group_rows if written.is_read_again else 0
                compared.result()
                second_reading.finish()
    if groups is None:
        _require_same_content(content, done.content, ", ".join(file.file_name for file in done.after))
        return content.rows
    if number < len(groups):
        raise VerificationFailed("V1", [f"{number} row groups in the new files, {len(groups)} were written"])
    return rows


def check_changes(store: TableStore, task: BucketTask, changelog: ProducedChangelog, *, threads: int = 1) -> None:
    """Re-read changelog files and compare their rows with the rows that the writer received (V1).

    Keys must ascend, but may repeat.

    Raises:
        VerificationFailed: the rows differ, or keys do not ascend.
    """
    written = RewriteResult((), changelog.files, changelog.content, {}, digests=changelog.digests)
    check_content(store, task, written, threads=threads, repeats=True)


def _compare_copies(
    store: TableStore, task: BucketTask, done: RewriteResult, file: DataFileMeta, comparer: Executor | None
) -> Future[None]:
    """Start to compare the spliced bytes of a new file with those of the input files; ``comparer`` is a thread for it.

    Returns:
        The comparison; its result raises CorruptFile if bytes differ.
    """
    compared: Future[None] = Future()
    ranges = done.copied.get(file.file_name, ())
    if ranges:
        copied = store.file_io, store.data_path(task.partition, task.bucket, file), ranges
        if comparer is not None:
            return comparer.submit(require_copied, *copied)
        require_copied(*copied)
    compared.set_result(None)
    return compared


def _require_same_content(actual: Content, written: Content, names: str) -> None:
    for kind, seen, expected in (("live", actual.live, written.live), ("deleted", actual.dead, written.dead)):
        if seen != expected:
            digests = "digests differ" if seen.rows == expected.rows else "digests too"
            reason = f"{seen.rows} {kind} rows re-read, {expected.rows} written, {digests}"
            raise VerificationFailed("V1", [f"{reason}: {names}"])


class _SecondReading:
    """Second read of one new file, in the table's types.

    The keys of key-value files are checked, both in `_KEY_<name>` and in `<name>`. The optional ``helper`` thread
    decodes some of the columns of a row group in parallel, with a separate file handle.
    """

    def __init__(
        self,
        store: TableStore,
        task: BucketTask,
        file: DataFileMeta,
        witness: Witness | None,
        helper: Executor | None,
        *,
        repeats: bool = False,
    ) -> None:
        self._repeats = repeats
        self._store, self._task, self._file, self._witness, self._helper = store, task, file, witness, helper

    def __enter__(self) -> Self:
        place = self._store, self._task.partition, self._task.bucket, self._file
        with ExitStack() as opened:
            self._source: FileSource = opened.enter_context(closing(open_source(*place)))
            self._second = opened.enter_context(closing(open_source(*place))) if self._helper else self._source
            self._opened = opened.pop_all()
        schema, stored = self._store.schema, self._source.schema.names
        keys = [] if self._task.is_append else list(schema.trimmed_primary_keys)
        self._keys = [name for name in stored if name.startswith(KEY_PREFIX)] + keys if keys else []
        system = [name for name in (SEQUENCE_NUMBER, VALUE_KIND) if name in stored]
        self._other_columns = list(dict.fromkeys([*system, *(name for name in schema.field_names if name not in keys)]))
        self._order = _KeyOrder(self._file, keys, repeats=self._repeats, nullable=self._store.schema.nullable_key)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def group_rows(self) -> list[int]:
        """Number of rows of each row group, from the file's footer."""
        return self._source.group_rows

    def streams(self, group: int, coded: Collection[str] = ()) -> Streams:
        """Return the hashes of a row group; the columns ``coded`` are read as dictionaries and hashed by values.

        The row group is decoded column by column, so that each column is in the CPU cache when it is hashed. The helper
        begins with the other columns while the calling thread decodes and checks the keys.
        """
        hashes = Streams(self._store.schema.field_names, coded)
        kept: dict[str, pa.Array] = {}
        waiting = deque(self._other_columns)
        sampled: Future[pa.Array | None] = Future()

        def read_waiting(source: FileSource) -> None:
            while True:
                try:
                    name = waiting.popleft()
                except IndexError:
                    return
                add(name, self._column(source, name, group, as_dictionary=name in coded))

        def add(name: str, column: pa.Array) -> None:
            hashes.add_column(name, column, 0)
            if (positions := sampled.result()) is not None:
                chosen = chosen_rows(column, positions)
                kept[name] = plain(chosen) if pa.types.is_dictionary(chosen.type) else chosen

        helper_read = None if self._helper is None else self._helper.submit(read_waiting, self._second)
        try:
            keys = {name: self._column(self._source, name, group) for name in self._keys}
            sampled.set_result(self._check_keys(pa.RecordBatch.from_pydict(keys), group) if keys else None)
            for name, column in keys.items():
                add(name, column)
            read_waiting(self._source)
        except BaseException:
            waiting.clear()
            if not sampled.done():
                sampled.set_result(None)  # the helper ends
            raise
        finally:
            if helper_read is not None:
                wait([helper_read])
        if helper_read is not None:
            helper_read.result()
        hashes.rows = self.group_rows[group]
        if self._witness is not None and sampled.result() is not None:
            names = (*self._keys, *self._other_columns)
            self._witness.add_output(self._file, pa.RecordBatch.from_pydict({name: kept[name] for name in names}))
        return hashes

    def whole_content(self) -> Content:
        """Return the digests of the rows of the whole file; the helper reads half of the row groups.

        Keys are checked in their order, so files with keys are read by one thread.
        """
        middle = len(self.group_rows) // 2
        if self._helper is None or self._keys or not middle:
            return self.content(None)
        upper = self._helper.submit(self._content_of, self._second, list(range(middle, len(self.group_rows))))
        try:
            lower = self._content_of(self._source, list(range(middle)))
        finally:
            wait([upper])
        self.finish()
        return lower.plus(upper.result())

    def content(self, groups: list[int] | None) -> Content:
        """Return the digests of the rows of some row groups, or of the whole file for None."""
        content = self._content_of(self._source, groups)
        if groups is None:
            self.finish()
        return content

    def _content_of(self, source: FileSource, groups: list[int] | None) -> Content:
        content = Content()
        for batch in source.batches([*self._keys, *self._other_columns], _BATCH_ROWS, groups):
            columns = [self._convert(name, batch.column(name)) for name in (*self._keys, *self._other_columns)]
            table_rows = pa.RecordBatch.from_arrays(columns, [*self._keys, *self._other_columns])
            content = content.plus(content_of(table_rows, self._store.schema))
            if self._keys:
                key_batch = self._check_keys(table_rows.select(self._keys), groups[0] if groups else None)
                if key_batch is not None and self._witness is not None:
                    self._witness.add_output(self._file, chosen_rows(table_rows, key_batch))
        return content

    def check_ends(self, group: SplicedGroup, place: int) -> None:
        """Check that a spliced row group, whose bytes are compared, has its place in the order of the keys.

        The keys are decoded if the row group is the first or the last one of the file.

        Args:
            group: the spliced row group.
            place: index of the row group in the new file.
        """
        if not self._keys:
            return
        if place in (0, len(self.group_rows) - 1):
            keys = pa.RecordBatch.from_pydict({name: self._column(self._source, name, place) for name in self._keys})
        else:
            ends = key_columns(self._store, [group.low, group.high][: group.rows])  # one row is both ends
            columns = dict(zip(self._store.schema.trimmed_primary_keys, ends, strict=True))
            keys = pa.RecordBatch.from_pydict({name: columns[name.removeprefix(KEY_PREFIX)] for name in self._keys})
        self._order.add(keys, place == 0, place == len(self.group_rows) - 1)

    def finish(self) -> None:
        """Check that the file's first and last key, if they were read, are equal to those in its metadata."""
        self._order.finish(self._store)

    def _check_keys(self, keys: pa.RecordBatch, group: int | None) -> pa.Array | None:
        """Check the key order, and return the positions of the rows that the witness (V2 sample) selects.

        The result is None if there is no witness.

        ``group`` is the number of the row group that ``keys`` are read from; None if the whole file is read.
        """
        self._order.add(keys, group in (0, None), group in (len(self._source.group_rows) - 1, None))
        return None if self._witness is None else self._witness.select_output(self._file, keys)

    def _column(self, source: FileSource, name: str, group: int, *, as_dictionary: bool = False) -> pa.Array:
        rows = max(1, source.group_rows[group])
        if as_dictionary:
            return concat_columns([b.column(0) for b in source.batches([name], rows, [group], dictionaries=[name])])
        parts = [self._convert(name, batch.column(0)) for batch in source.batches([name], rows, [group])]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _convert(self, name: str, column: pa.Array) -> pa.Array:
        """Return a column cast to the table's type, because the writer digested it in this type."""
        schema, plain = self._store.schema.arrow_schema, name.removeprefix(KEY_PREFIX)
        target_type = pa.int8() if name == VALUE_KIND else column.type
        if self._store.schema.has_field(plain):
            target_type = schema.field(plain).type
        return column if column.type == target_type else refit(column, target_type)


def _bits(column: pa.Array) -> pa.Array:
    """Return floats as integers of the same bits, so that NaN keys are equal; in Arrow, NaN is not equal to NaN."""
    if not pa.types.is_floating(column.type):
        return column
    return column.view(pa.int64() if column.type == pa.float64() else pa.int32())


class _KeyOrder:
    """Check of ascending keys (strictly ascending unless ``repeats``).

    Each key must be equal in `_KEY_<name>` and `<name>`. The first and last key must match the file's metadata.
    """

    def __init__(self, file: DataFileMeta, keys: list[str], *, repeats: bool, nullable: bool) -> None:
        self._file, self._keys, self._repeats, self._nullable = file, keys, repeats, nullable
        self._first: list[pa.Array] | None = None
        self._last: list[pa.Array] | None = None
        self._from_start, self._to_end = False, False

    def add(self, batch: pa.RecordBatch, from_start: bool, to_end: bool) -> None:
        """Check the keys of a batch.

        Args:
            batch: the keys.
            from_start: whether the batch belongs to the file's first row group.
            to_end: whether the batch belongs to the file's last row group.
        """
        if not batch.num_rows:
            return
        columns = [batch.column(name) for name in self._keys]
        for name, column in zip(self._keys, columns, strict=True):
            if KEY_PREFIX + name in batch.schema.names:
                key_copy = batch.column(KEY_PREFIX + name)
                if not _bits(key_copy if key_copy.type == column.type else key_copy.cast(column.type)).equals(
                    _bits(column)
                ):
                    self._fail(f"'{KEY_PREFIX}{name}' and '{name}' differ")
        before = [] if self._last is None else [self._last]
        key_columns = [pa.concat_arrays([*(part[i] for part in before), column]) for i, column in enumerate(columns)]
        normalised = normalise_keys(key_columns, nullable=self._nullable)
        if not normalised.climbing():
            if not normalised.ascending():
                self._fail("keys do not ascend")
            if not self._repeats and normalised.order()[1].any():
                self._fail("keys do not ascend strictly")
        self._from_start = self._from_start or (from_start and self._first is None)
        self._first = self._first or [column.slice(0, 1) for column in columns]
        self._last = [column.slice(batch.num_rows - 1, 1) for column in columns]
        self._to_end = to_end

    def finish(self, store: TableStore) -> None:
        """Compare the first and last key with the metadata."""
        first, last = (self._first, self._file.min_key), (self._last, self._file.max_key)
        for ends, recorded in [first] * self._from_start + [last] * self._to_end:
            if ends is None or encode_rows(ends, store.schema.trimmed_key_types)[0].as_py() != recorded:
                self._fail("its first or last key is not the one in its metadata")

    def _fail(self, reason: str) -> None:
        raise VerificationFailed("V1", [f"{self._file.file_name}: {reason}"])
