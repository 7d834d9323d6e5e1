"""Merge-on-read: the files of one bucket as one stream of merged rows, shared by reads and compactions.

The files are divided into key-disjoint sections, each with sorted runs and the age order of its files. Batch sizes are
computed from the decoded bytes of a row, before large data is decoded. If there are more inputs than may be open at
once, some are read into memory first, and others are merged in earlier passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import SharedDictionaries, arrow_array, as_dictionaries, batch_of, numpy_array, rows_bytes
from lsm_core.files import SpilledRun, SpillSpace, kv_read_schema, open_append, open_kv
from lsm_core.files.reader import Evolution, open_source
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import VALUE_KIND, key_name
from lsm_core.merge import (
    EXPIRED,
    FoldFunction,
    MergeCounters,
    MergeFunction,
    NormalisedKeys,
    RunInput,
    merge_function,
    merge_streams,
)
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.merge.keys import Ints
from lsm_core.merge.rows import retracts
from lsm_core.metadata.indexes import DeletionFile, read_vector
from lsm_core.metadata.live_files import key_ranges
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_sorted_keys
from lsm_core.storage.allocator import keep_read_arrays
from lsm_core.tree import DataFile, interval_partition, newest_first

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from lsm_core.merge import ChangelogRules
    from lsm_core.merge.changelog import LookUp, WriteChanges
    from lsm_core.read.key_range import KeyBounds

_FILES: Final = 2
_PROBE_ROWS: Final = 256
_SYSTEM_BYTES: Final = 9.0
"""Bytes of the sequence number and row kind."""
_TEXT_BYTES_KEY: Final = "text bytes"
_REPEATING_KEY: Final = "repeating texts"
_KEPT_BYTES: Final = 256


def decoded_row_bytes(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], columns: Sequence[str]
) -> float:
    """Return the average decoded bytes of a row of ``columns``, from the files with the largest rows on disk.

    The size of fixed-width columns follows from their type. The size of plain-encoded text comes from the file's
    footer. The footer does not show the decoded size of dictionary-encoded text, so the first rows of such columns are
    decoded.
    """
    schema = store.schema.arrow_schema
    fixed = _SYSTEM_BYTES + sum(_width(schema.field(name).type) for name in columns)
    texts = [name for name in columns if not _width(schema.field(name).type)]
    largest = 0.0
    if texts:
        for file in sorted(files, key=lambda f: -f.file_size / max(1, f.row_count))[:_FILES]:
            largest = max(largest, _text_bytes(store, partition, bucket, file, texts))
    return fixed + largest


def repeating_texts(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], names: Sequence[str]
) -> list[str]:
    """Return the text columns among ``names`` whose values repeat, according to the footer of the largest file."""
    texts = [name for name in names if pa.types.is_string(store.schema.arrow_schema.field(name).type)]
    if not texts or not files:
        return []
    file = max(files, key=lambda f: f.file_size)
    cache_key = (_REPEATING_KEY, store.schema.id, file.file_name, *texts)
    repeating: list[str] | None = store.kept.get(cache_key)
    if repeating is None:
        with closing(open_source(store, partition, bucket, file)) as source:
            target = pa.schema([store.schema.arrow_schema.field(name) for name in texts])
            evolution = Evolution.of(store, file, source.schema, as_dictionaries(target, texts), source.path)
            stored = set(source.repeating_texts(evolution.dictionaries))
        repeating = [column.field.name for column in evolution.columns if column.stored in stored]
        store.kept.put(cache_key, repeating, _KEPT_BYTES)
    return repeating


def _width(kind: pa.DataType) -> float:
    """Return the bytes of one decoded value of a type, or 0 for types of variable length."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return 0.0


def _text_bytes(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, texts: list[str]) -> float:
    """Return the average decoded bytes per row of all columns ``texts`` together; cached with the table."""
    cache_key = (_TEXT_BYTES_KEY, store.schema.id, file.file_name, *texts)
    cached: float | None = store.kept.get(cache_key)
    if cached is not None:
        return cached
    with closing(open_source(store, partition, bucket, file)) as source:
        plain = source.value_bytes(texts)
    total = sum(plain.values())
    unknown = [name for name in texts if name not in plain]
    if unknown:
        rows = open_append(store, partition, bucket, file, columns=unknown, batch_rows=_PROBE_ROWS)
        with closing(rows):  # type: ignore[type-var]
            batch = next(rows, None)
        total += 0.0 if batch is None else batch.nbytes / max(1, batch.num_rows)
    store.kept.put(cache_key, total, _KEPT_BYTES)
    return total


MOST_IN_MEMORY: Final = 1_024
"""Largest number of inputs held in memory at once: each input has a fixed cost in addition to its size."""


def in_memory(sizes: Sequence[float], threshold: int) -> set[int]:
    """Return the positions of the inputs that are read as a whole before merging.

    These are the smallest inputs, so many that the remaining ones may be open at once. One of the ``threshold`` open
    inputs is reserved for reading the inputs into memory, one after another.

    Args:
        sizes: decoded bytes of each input.
        threshold: inputs that may be open at once.
    """
    excess = len(sizes) - threshold + 1 if len(sizes) > threshold else 0
    return set(sorted(range(len(sizes)), key=lambda position: sizes[position])[:excess])


def fits(sizes: Sequence[float], threshold: int, limit: float) -> bool:
    """Return whether all inputs can be merged in one pass.

    Args:
        sizes: decoded bytes of each input.
        threshold: inputs that may be open at once.
        limit: largest decoded bytes of all inputs in memory together.
    """
    chosen = in_memory(sizes, threshold)
    return len(chosen) <= MOST_IN_MEMORY and sum(sizes[position] for position in chosen) <= limit


def next_pass(sizes: Sequence[float], threshold: int, limit: float) -> list[range]:
    """Return ranges of neighbouring inputs to merge into one input each, in order.

    With at most ``threshold`` squared inputs, one range is returned: the neighbours with the fewest bytes whose merge
    removes the excess, at most ``threshold``. More inputs are all merged, in groups that fit into memory, so that each
    input is read only about log(n) / log(threshold) times.

    Args:
        sizes: decoded bytes of each input.
        threshold: inputs that may be open at once.
        limit: largest decoded bytes of all inputs in memory together.
    """
    count = len(sizes)
    if count <= threshold * threshold:
        width = min(threshold, count - threshold + 1)
        start = min(range(count - width + 1), key=lambda position: sum(sizes[position : position + width]))
        return [range(start, start + width)]
    groups: list[range] = []
    start = 0
    while start < count:
        stop = min(count, start + threshold)
        total = sum(sizes[start:stop])
        while stop < count and stop - start < MOST_IN_MEMORY and total + sizes[stop] <= limit:
            total += sizes[stop]
            stop += 1
        groups.append(range(start, stop))
        start = stop
    return groups


Files = tuple[DataFileMeta, ...]


@dataclass(frozen=True)
class Section:
    """Files of a bucket whose key ranges overlap each other, but not the key range of any file outside the section.

    Attributes:
        runs: the files in as few sorted runs as possible; a run may contain files of several levels.
        groups: the same files by age, oldest first. Each level above 0 is one group, highest level first; each level-0
            file is a group of its own. The files of a group are in key order.
    """

    runs: tuple[Files, ...]
    groups: tuple[Files, ...]

    @property
    def files(self) -> Files:
        """All files of the section, one sorted run after the other."""
        return tuple(file for run in self.runs for file in run)

    @property
    def size(self) -> int:
        """Sum of the file sizes (bytes)."""
        return sum(file.file_size for file in self.files)

    @property
    def disjoint_sequences(self) -> bool:
        """Whether the sequence number ranges of the groups are disjoint, so that the ranges alone order the rows."""
        return all(before[1] < after[0] for before, after in pairwise(sorted(map(sequence_range, self.groups))))


def sequence_range(files: Files) -> tuple[int, int]:
    """Return the smallest and largest sequence number of ``files``."""
    return min(f.min_sequence_number for f in files), max(f.max_sequence_number for f in files)


def as_tree(store: TableStore, files: Sequence[DataFileMeta]) -> list[DataFile]:
    """Return the files of one bucket as :class:`DataFile` of the tree package, with keys as order-preserving bytes."""
    lows, highs = key_ranges(
        store,
        arrow_array([file.min_key for file in files], pa.binary()),
        arrow_array([file.max_key for file in files], pa.binary()),
    )
    return [
        DataFile(
            file.file_name,
            file.level,
            file.file_size,
            low,
            high,
            file.row_count,
            file.min_sequence_number,
            file.max_sequence_number,
            file.creation_time_ms or 0,
            file.delete_row_count,
            file.schema_id,
            file.first_row_id,
        )
        for file, low, high in zip(files, lows, highs, strict=True)
    ]


class Shapes:
    """Cache of the :class:`DataFile` objects (tree package) of the files of one bucket."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: dict[tuple[str, int], DataFile] = {}

    def of(self, files: Sequence[DataFileMeta]) -> list[DataFile]:
        """Return the :class:`DataFile` objects of ``files``, in the same order."""
        new = [file for file in files if (file.file_name, file.level) not in self._known]
        if new:
            self._known.update(((shape.name, shape.level), shape) for shape in as_tree(self._store, new))
        return [self._known[file.file_name, file.level] for file in files]


def sections_of(store: TableStore, files: Sequence[DataFileMeta], shapes: Shapes | None = None) -> list[Section]:
    """Return the key-disjoint sections of ``files``, in key order.

    Args:
        store: the table.
        files: files of one bucket.
        shapes: cache of the files' :class:`DataFile` objects; None for a new cache.
    """
    if not files:
        return []
    shapes = shapes or Shapes(store)
    by_name = {file.file_name: file for file in files}

    def metas(parts: Sequence[Sequence[DataFile]]) -> tuple[Files, ...]:
        return tuple(tuple(by_name[file.name] for file in part) for part in parts)

    return [Section(metas(runs), metas(groups)) for runs, groups in divide_by_keys(shapes.of(files))]


Parts = Sequence[Sequence[DataFile]]


def divide_by_keys(files: Sequence[DataFile]) -> list[tuple[Parts, Parts]]:
    """Return the sorted runs and the groups of each key-disjoint section (`Section`), in key order.

    Args:
        files: files of one bucket.
    """
    sections: list[tuple[Parts, Parts]] = []
    for runs in interval_partition(files):
        inside = [file for run in runs for file in run.files]
        groups: list[Sequence[DataFile]] = []
        for level in sorted({file.level for file in inside if file.level > 0}, reverse=True):
            members = sorted((file for file in inside if file.level == level), key=attrgetter("min_key", "max_key"))
            clean = all(file.max_key < following.min_key for file, following in pairwise(members))
            groups += [members] if clean else [[file] for file in members]  # a broken level is still merged in order
        level0 = newest_first(file for file in inside if file.level == 0)
        groups += [[file] for file in reversed(level0)]
        sections.append(([run.files for run in runs], groups))
    return sections


_MOST_ROWS: Final = 65_536
_FEWEST_ROWS: Final = 16
_ROWS_AT_ONCE: Final = 1 << 19
"""Largest number of rows in one batch of every input of a merge together; it bounds the memory of a merge."""
_BUFFERED_ROWS: Final = 1_024
"""Number of rows of small batches that each input buffers before a window is merged, if memory allows."""
_NAMED_FILES: Final = 8
"""Largest number of files of one run that an error message names."""
_SMALLEST_ROW_BYTES: Final = 32.0
_IN_MEMORY_SHARE: Final = 8
"""Divisor of the merge budget: the resulting part may hold inputs that are read into memory.

The same part may hold the result of one pass before the result is spilled.
"""

Batches = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True)
class _InMemory:
    """Result of a merge pass that is too small for a spill file.

    Attributes:
        kept: batches that have not been read yet.
        size: decoded bytes of the result.
        path: text that error messages show instead of a path.
    """

    kept: list[pa.RecordBatch]
    size: int
    path: str = "(merged in memory)"

    @property
    def rows(self) -> int:
        """Number of rows that have not been read yet."""
        return sum(batch.num_rows for batch in self.kept)

    def batches(self) -> Batches:
        """Yield the batches; each batch is released from memory when it is yielded."""
        while self.kept:
            yield self.kept.pop(0)

    def delete(self) -> None:
        """Release the remaining batches."""
        self.kept.clear()


@dataclass(frozen=True)
class Parked:
    """Merged rows of several inputs of a section, kept on the local disk, or in memory if small.

    Attributes:
        run: the merged rows, in key order.
        level: level of the newest merged input.
        age: age rank of the newest merged input, from 0 for the oldest input of the section.
    """

    run: SpilledRun | _InMemory
    level: int
    age: int

    @property
    def held(self) -> bool:
        """Whether the rows are in memory."""
        return isinstance(self.run, _InMemory)


@dataclass(frozen=True)
class HighLevels:
    """Files above level 0 as one input, for a table whose compactions look up keys.

    A lookup compaction merges the rows of levels above its output into the output. The version of a key on the lowest
    level is therefore complete. Merging the versions of higher levels again would count these versions twice.

    Attributes:
        groups: the files, from the highest level down.

    Source: ``LookupMergeFunction``.
    """

    groups: tuple[Files, ...]

    @property
    def files(self) -> Files:
        """Files of all levels."""
        return tuple(file for group in self.groups for file in group)


Input = Files | Parked | HighLevels


@dataclass(frozen=True)
class Changes:
    """Settings of a merge that looks up keys and writes the changes of their rows (`merge.changelog`).

    Only merges of whole compaction units use these settings.

    Attributes:
        rules: rules of the changelog producer.
        max_level: highest level of the bucket's tree.
        look_up: function that looks up keys in the levels above the output, with all columns of the merge. None if
            these levels contain none of the unit's keys.
        write_changes: function that writes the changes as whole KV batches, in key order.
    """

    rules: ChangelogRules
    max_level: int
    look_up: LookUp | None
    write_changes: WriteChanges


@dataclass(frozen=True)
class BucketSource:
    """Bucket whose files are merged, and how its files are read.

    Attributes:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        deletions: deletion vectors by file name; the rows that they mark are left out before the merge.
        living: function that removes expired rows (record-level expiry) from a batch before the merge; None keeps these
            rows. Compactions and their verification set it, reads do not.
        opener: function that opens files instead of :func:`open_kv`, with the same arguments. Lookups and key ranges
            use it to read fewer rows.
        seen: callback for each batch that is read from a file, or None.
    """

    store: TableStore
    partition: bytes
    bucket: int
    _: KW_ONLY
    deletions: Mapping[str, DeletionFile] = field(default_factory=dict)
    living: Living | None = None
    opener: Callable[..., Iterator[pa.RecordBatch]] | None = None
    seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None = None


class BucketMerge:
    """Merge of the files of one bucket, section by section. At most `sort-spill-threshold` inputs are open.

    Attributes:
        source: the bucket.
        columns: merged value columns: those asked for, and those that the merge engine needs.
        counters: dropped rows, and keys merged, over all sections so far.
        row_bytes: largest decoded bytes of a row so far; 0 before the first batch.
        lock: held while the numbers and callbacks that all inputs share are updated.
    """

    def __init__(
        self,
        source: BucketSource,
        columns: tuple[str, ...],
        *,
        drop_delete: bool,
        exact: bool,
        budget: int | None = None,
        dictionaries: Collection[str] = (),
        changes: Changes | None = None,
        helper: Executor | None = None,
    ) -> None:
        """Choose the merge functions of the table.

        Args:
            source: the bucket.
            columns: value columns to merge.
            drop_delete: whether deleted rows are left out.
            exact: return true sequence numbers and row kinds (compaction). If False, sequence numbers are decoded only
                if file metadata does not order the rows, and row kinds only if a file may contain deletes.
            budget: decoded bytes of rows that the merge may hold at once; None for option `dredge.merge-budget`.
            dictionaries: text columns that may be returned as Arrow dictionaries of int32. A column is a dictionary if
                its values repeat in the files and the merge engine only selects rows. It may be plain in some batches.
            changes: settings for looking up keys and writing changes; None to do neither.
            helper: second thread, which decodes some of the files; None to decode all on the calling thread. Columns
                that are read as dictionaries are decoded by the calling thread, so that output files do not depend on
                the order in which threads run.

        Raises:
            UnsupportedFeature: the files are sorted by other columns than the key.
        """
        store = source.store
        require_sorted_keys(store, "a merge of the files")
        self.source, self.drop_delete, self.exact = source, drop_delete, exact
        self.dictionaries, self.changes = dictionaries, changes
        self.counters, self.row_bytes = MergeCounters(), 0.0
        self.function: MergeFunction = merge_function(store.schema, store.options.raw, store.name)
        # An engine that builds rows must see all versions of a key at once: earlier passes only sort them.
        folds = isinstance(self.function, FoldFunction)
        self.in_passes: MergeFunction = self.function
        if folds or changes is not None:
            from lsm_core.merge.engines.internal import AllVersions

            self.in_passes = AllVersions(self.function.key_spec)
        # Where rows are selected by sequence number, not built, the lowest level has the newest version anyway.
        compares = False
        if changes is not None:
            from lsm_core.merge.changelog import Against

            compares = changes.rules.against is Against.HIGH_LEVELS
        chooses = bool(self.function.key_spec.sequence_columns)
        self.looks_up = (folds or compares or chooses) and store.options.needs_lookup
        by_level = Deduplicate(replace(self.function.key_spec, sequence_columns=()))
        self.by_level: MergeFunction = self.function if self.function.name == "first-row" else by_level
        self.columns = self.function.effective_columns(columns)
        self.twins = {key_name(name): name for name in store.schema.trimmed_primary_keys if name in self.columns}
        self.shared = SharedDictionaries()
        self.helper, self.lock = helper, Lock()
        self.threshold = max(2, store.options.sort_spill_threshold)
        self.memory: int = store.options.merge_budget if budget is None else budget

    def reader(self, section: Section) -> SectionReader:
        """Return the reader of the inputs of one section.

        If the inputs are merged in one pass, columns whose values repeat in the largest file are read as dictionaries,
        unless the engine compares them.
        """
        reader = SectionReader.of(self, section)
        if self.in_one_pass(reader, reader.inputs):
            source = self.source
            compared_columns = {*source.store.schema.primary_keys, *self.function.key_spec.sequence_columns}
            names = [name for name in self.columns if name in self.dictionaries and name not in compared_columns]
            if names and not isinstance(self.function, FoldFunction):
                repeating = repeating_texts(source.store, source.partition, source.bucket, section.files, names)
                return replace(reader, dictionaries=frozenset(repeating))
        return reader

    def in_one_pass(self, reader: SectionReader, inputs: Sequence[Input]) -> bool:
        """Return whether the inputs of a section can be merged in one pass."""
        return fits(reader.sizes(inputs), self.threshold, self.memory // _IN_MEMORY_SHARE)

    def section(self, section: Section, reader: SectionReader | None = None) -> Batches:
        """Yield merged KV batches of one section, ascending by key, each key once.

        Args:
            section: the section.
            reader: reader of the section's inputs; None for a new one.

        Raises:
            CorruptFile: a file is damaged or not in key order; the error names it.
        """
        reader = self.reader(section) if reader is None else reader
        inputs: list[Input] = list(reader.inputs)
        with SpillSpace() as space:
            while not self.in_one_pass(reader, inputs):
                inputs = self._one_pass(inputs, reader, space, self.memory // _IN_MEMORY_SHARE)
            columns = None if self.exact else self.columns or None
            with closing(self._merge(inputs, reader, self.function, self.drop_delete, self.changes, columns)) as merged:
                if not self.exact:
                    yield from merged
                    return
                for batch in merged:
                    yield self._with_keys(batch)

    def _with_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with `_KEY_*` columns added: copies of the equal value columns, which alone were merged."""
        layout = kv_read_schema(self.source.store, self.columns)
        return batch_of([batch.column(self.twins.get(name, name)) for name in layout.names], layout)

    def count_dropped(self, counters: MergeCounters) -> None:
        """Add the dropped rows of one merge to the totals of this object."""
        with self.lock:
            for reason, rows in counters.dropped.items():
                self.counters.drop(reason, rows)

    def _one_pass(self, inputs: list[Input], reader: SectionReader, space: SpillSpace, limit: int) -> list[Input]:
        """Run one merge pass: merge inputs of neighbouring age into :class:`Parked` results, and keep deletes.

        Inputs outside the chosen ranges stay unchanged. If changes are written, the oldest input above level 0 stays
        unchanged too, because the rows of all newer inputs are compared with its rows.

        Args:
            inputs: inputs of one section.
            reader: reader of these inputs.
            space: local disk space for results that are too large for memory.
            limit: largest decoded bytes of all inputs in memory together.

        Returns:
            Fewer inputs, in the same order.
        """
        apart = int(self.changes is not None and reader.place(inputs[0])[0] > 0)
        fewer: list[Input] = []
        done = 0
        candidates = inputs[apart:]
        groups = next_pass(reader.sizes(candidates), max(2, self.threshold - apart), limit)
        for group in groups if len(candidates) > 2 else [range(len(candidates))]:
            group = range(group.start + apart, group.stop + apart)
            fewer += inputs[done : group.start]
            done = group.stop
            if len(group) == 1:
                fewer.append(inputs[group.start])
                continue
            chosen = inputs[group.start : group.stop]
            held_bytes = sum(
                part.run.size for part in (*fewer, *inputs[group.start :]) if isinstance(part, Parked) and part.held
            )
            level, age = reader.place(chosen[-1])
            with closing(self._merge(chosen, reader, self.in_passes, drop_delete=False)) as merged:
                fewer.append(Parked(_park(merged, reader.schema, space, limit - held_bytes), level, age))
            for merge_input in chosen:
                if isinstance(merge_input, Parked):
                    merge_input.run.delete()
        return [*fewer, *inputs[done:]]

    def _merge(
        self,
        inputs: Sequence[Input],
        reader: SectionReader,
        function: MergeFunction,
        drop_delete: bool,
        changes: Changes | None = None,
        columns: Sequence[str] | None = None,
    ) -> Batches:
        whole = in_memory(reader.sizes(inputs), self.threshold)
        streams = [reader.stream(source, whole=place in whole) for place, source in enumerate(inputs)]
        counters = MergeCounters()
        whole_keys = None
        if changes is not None:
            from lsm_core.merge.changelog import ChangelogMerger

            look_up, write_changes, names = changes.look_up, changes.write_changes, reader.schema.names

            def look_up_rows(keys: NormalisedKeys, columns: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
                assert look_up is not None
                key_rows, rows = look_up(keys, columns)
                return key_rows, rows.select(names) if len(key_rows) and rows.num_columns else rows

            whole_keys = ChangelogMerger(
                changes.rules,
                function,
                changes.max_level,
                None if look_up is None else look_up_rows,
                lambda batch: write_changes(self._with_keys(batch)),
                drop_delete,
                counters,
            ).merge
        try:
            yield from merge_streams(
                streams,
                function,
                drop_delete=drop_delete,
                counters=counters,
                whole_keys=whole_keys,
                columns=columns,
                helper=None if reader.dictionaries else self.helper,
            )
        finally:
            for stream in streams:
                for part in stream.parts or (stream,):
                    part.batches.close()  # type: ignore[attr-defined]
            self.count_dropped(counters)
            self.counters.keys_folded += counters.keys_folded
            self.counters.keys_one_by_one += counters.keys_one_by_one


@dataclass(frozen=True)
class SectionReader:
    """Reader of the inputs of one section.

    Attributes:
        merge: settings of the bucket's merge.
        inputs: groups or runs of files.
        ages: (level, age rank) of each file, by file name; a larger rank is newer.
        batch_rows: number of rows of a batch.
        need_sequence: whether sequence numbers must be decoded.
        need_kind: whether row kinds must be decoded.
        dictionaries: columns to read as Arrow dictionaries.
        rows_of: function that returns the rows of a file, if not all of them are merged at once; None for all rows.
    """

    merge: BucketMerge
    inputs: tuple[Input, ...]
    ages: dict[str, tuple[int, int]]
    batch_rows: int
    need_sequence: bool
    need_kind: bool
    dictionaries: frozenset[str] = frozenset()
    rows_of: Callable[[DataFileMeta], Batches] | None = None

    @staticmethod
    def of(merge: BucketMerge, section: Section) -> SectionReader:
        """Choose the inputs of a section: either its groups of files of one age, or its sorted runs.

        Groups are chosen if all of them may be open at once. If there are too many, the fewer runs are chosen. If even
        the runs are too many, some inputs are first merged into intermediate runs (merge passes). A pass may merge only
        inputs of neighbouring age, so groups are chosen then, unless their sequence number ranges are disjoint.

        If sequence numbers need not be decoded, the groups are ordered by their sequence number ranges.
        """
        disjoint = section.disjoint_sequences
        in_passes = min(len(section.runs), len(section.groups)) > merge.threshold
        by_run = len(section.runs) < len(section.groups) > merge.threshold and (disjoint or not in_passes)
        decides = bool(merge.function.key_spec.sequence_columns)
        # The age of files decides between equal sequence fields, unless a merge of levels replaces the files.
        need_sequence = merge.exact or (decides and merge.looks_up) or not disjoint or (in_passes and by_run)
        groups = list(section.groups) if need_sequence else sorted(section.groups, key=sequence_range)
        ages = {
            file.file_name: (file.level if need_sequence else 0, age)
            for age, group in enumerate(groups)
            for file in group
        }
        if merge.changes is not None:
            by_run = False  # levels must stay apart
        inputs: tuple[Input, ...] = section.runs if by_run else tuple(groups)
        high = [group for group in section.groups if group[0].level > 0]
        if merge.looks_up and len(high) > 1:
            inputs = (HighLevels(tuple(high)), *(group for group in groups if group[0].level == 0))
        need_kind = merge.exact or any(file.delete_row_count != 0 for file in section.files)
        rows = _batch_rows(merge, section.files, min(len(inputs), merge.threshold))
        return SectionReader(merge, inputs, ages, rows, need_sequence, need_kind)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of all inputs and of the merged rows; a key column that is also a value column is included once."""
        merge = self.merge
        full = kv_read_schema(
            merge.source.store,
            merge.columns,
            need_sequence=self.need_sequence,
            need_kind=self.need_kind,
            dictionaries=self.dictionaries,
        )
        return pa.schema([field for field in full if field.name not in merge.twins])

    def place(self, source: Input) -> tuple[int, int]:
        """Return (level, age rank) of the newest rows of an input; a larger rank is newer."""
        if isinstance(source, Parked):
            return source.level, source.age
        return self.ages[(source.files if isinstance(source, HighLevels) else source)[-1].file_name]

    def sizes(self, inputs: Sequence[Input]) -> list[float]:
        """Return the approximate decoded bytes of each input; inputs in memory have size 0."""
        sizes = []
        for source in inputs:
            files = () if isinstance(source, Parked) else source.files if isinstance(source, HighLevels) else source
            rows = source.run.rows if isinstance(source, Parked) else sum(file.row_count for file in files)
            sizes.append(0.0 if isinstance(source, Parked) and source.held else rows * self.merge.row_bytes)
        return sizes

    def stream(self, source: Input, *, whole: bool) -> RunInput:
        """Return the rows of an input with levels and age ranks; each file is opened when its first row is read.

        ``whole``: whether the complete input is read and closed when its first rows are needed.
        """
        if isinstance(source, Parked):
            batches = source.run.batches()
            return RunInput(
                _read_ahead(batches) if whole else batches,
                source.level,
                source.age,
                source.run.path,
                at_hand=self._buffered_rows,
            )
        if isinstance(source, HighLevels):
            lowest = self._lowest(source)
            return RunInput(
                _read_ahead(lowest) if whole else lowest,
                *self.place(source),
                "the levels above 0",
                at_hand=self._buffered_rows,
            )
        parts = []
        for file in source:
            path = self.merge.source.store.data_path(self.merge.source.partition, self.merge.source.bucket, file)
            rows = self.open_file(file) if self.rows_of is None else self.rows_of(file)
            ahead = _read_ahead(rows) if whole else rows
            parts.append(RunInput(ahead, *self.ages[file.file_name], path, at_hand=self._buffered_rows))
        return parts[0] if len(parts) == 1 else RunInput.chain(parts, _chain_name(parts), self._buffered_rows)

    @property
    def _buffered_rows(self) -> int:
        """Number of rows to buffer for each input: enough for an efficient merge, but not more than a batch."""
        return min(self.batch_rows, _BUFFERED_ROWS)

    def _lowest(self, high: HighLevels) -> Batches:
        """Yield for each key the row from the lowest level that contains the key."""
        streams = [self.stream(group, whole=False) for group in high.groups]
        counters = MergeCounters()
        try:
            yield from merge_streams(streams, self.merge.by_level, counters=counters)
        finally:
            self.merge.count_dropped(counters)
            for stream in streams:
                for part in stream.parts or (stream,):
                    part.batches.close()  # type: ignore[attr-defined]

    def open_file(self, file: DataFileMeta, row_groups: Sequence[int] | None = None) -> Batches:
        """Yield the rows of a file in the schema of the merge, without deleted and expired rows.

        Args:
            file: the file.
            row_groups: row groups to read; None for all.
        """
        merge = self.merge
        vector = merge.source.deletions.get(file.file_name)
        opened = merge.source.opener or open_kv
        coded: dict[str, Any] = {"dictionaries": self.dictionaries} if self.dictionaries else {}
        if row_groups is not None:
            coded["row_groups"] = row_groups
        batches = opened(
            merge.source.store,
            merge.source.partition,
            merge.source.bucket,
            file,
            columns=merge.columns,
            need_sequence=self.need_sequence,
            need_kind=self.need_kind,
            batch_rows=self.batch_rows,
            deleted=None if vector is None else read_vector(merge.source.store, vector, file.row_count),
            **coded,
        )
        schema = self.schema
        # Reads decode each dictionary value once: cheaper than one dictionary for all files, which only writers need.
        shared = merge.shared.reader() if merge.exact and self.dictionaries else None
        with closing(batches):  # type: ignore[type-var]
            for batch in batches:
                with merge.lock:
                    merge.row_bytes = max(merge.row_bytes, rows_bytes(batch) / max(1, batch.num_rows))
                    if merge.source.seen is not None:
                        merge.source.seen(file, batch)
                    if merge.source.living is not None:
                        kept = merge.source.living(batch)
                        if over := batch.num_rows - kept.num_rows:
                            merge.counters.drop(EXPIRED, over)
                        batch = kept
                chosen = batch.select(schema.names)
                yield chosen if shared is None else shared(chosen)


def _chain_name(parts: Sequence[RunInput]) -> str:
    """Return the names of the files of one input for error messages: all names, or the first few of many."""
    names = [part.name for part in parts[:_NAMED_FILES]]
    more = [f"one of {len(parts) - _NAMED_FILES} more files"] if len(parts) > _NAMED_FILES else []
    return " or ".join([*names, *more])


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Batches:
    """Read all batches before the first one is returned."""
    with closing(batches):  # type: ignore[type-var]
        held = list(batches)
    while held:
        yield held.pop(0)


def _park(merged: Batches, schema: pa.Schema, space: SpillSpace, limit: int) -> SpilledRun | _InMemory:
    """Keep merged batches in memory if they have up to ``limit`` decoded bytes, else write all of them to ``space``."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in merged:
        kept.append(batch)
        size += batch.nbytes
        if size > limit:
            return space.spill(chain(_InMemory(kept, size).batches(), merged), schema)
    return _InMemory(kept, size)


def _batch_rows(merge: BucketMerge, files: Files, open_inputs: int) -> int:
    """Return the rows of an input batch such that the budget holds two batches per open input (kernels.md note 1)."""
    if not merge.row_bytes:
        merge.row_bytes = max(
            _SMALLEST_ROW_BYTES,
            decoded_row_bytes(merge.source.store, merge.source.partition, merge.source.bucket, files, merge.columns),
        )
    fair = merge.memory / (2 * max(1, open_inputs) * merge.row_bytes)
    return int(max(_FEWEST_ROWS, min(fair, _MOST_ROWS, _ROWS_AT_ONCE / max(1, open_inputs))))


def read_bucket_merged(
    store: TableStore,
    partition: bytes,
    bucket: int,
    files: Sequence[DataFileMeta],
    *,
    columns: Sequence[str] | None = None,
    keep_deletes: bool = False,
    keep_system: bool = False,
    sections: Sequence[Section] | None = None,
    deletions: Mapping[str, DeletionFile] | None = None,
    budget: int | None = None,
    living: Living | None = None,
    dictionaries: Collection[str] = (),
    within: KeyBounds | None = None,
    seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None = None,
) -> Batches:
    """Yield the merged rows of ``files`` of one bucket, in key order, each key once.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        files: files of the bucket to merge.
        columns: columns to return, in this order; None for all.
        keep_deletes: return deleted rows too.
        keep_system: return whole KV batches (`_KEY_*`, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then at least ``columns``)
            with true sequence numbers.
        sections: key-disjoint sections of the files; None to compute them.
        deletions: deletion vectors by file name; the rows that they mark are left out before the merge.
        budget: decoded bytes of rows that the merge may hold at once; None for option `dredge.merge-budget`.
        living: function that removes expired rows (:class:`BucketSource`); None to keep these rows.
        dictionaries: text columns that may be returned as Arrow dictionaries of int32 (:class:`BucketMerge`).
        within: range of keys to read; None for all keys.
        seen: callback for each batch that is read from a file, or None.

    Raises:
        CorruptFile: a file is damaged or not in key order; the error names it.
    """
    names = tuple(store.schema.field_names if columns is None else columns)
    keep_read_arrays()
    opener = None if within is None else within.open
    source = BucketSource(store, partition, bucket, deletions=deletions or {}, living=living, opener=opener, seen=seen)
    merge = BucketMerge(
        source, names, drop_delete=not keep_deletes, exact=keep_system, budget=budget, dictionaries=dictionaries
    )
    if within is not None:
        files = [file for file, shape in zip(files, as_tree(store, files), strict=True) if within.meets(shape)]
    for section in sections_of(store, files) if sections is None else sections:
        with closing(merge.section(section)) as merged:
            for batch in merged:
                yield batch if keep_system else batch.select(list(names))


def read_unmerged(
    store: TableStore,
    place: tuple[bytes, int],
    files: Sequence[DataFileMeta],
    deletions: Mapping[str, DeletionFile],
    columns: Sequence[str],
    *,
    keep_deletes: bool = False,
) -> Batches:
    """Yield the rows of compacted files with `pk-clustering-override`, one file after the other.

    No two of these rows have the same key, because deletion vectors mark the older rows. Rows that delete a key stay
    stored.

    Args:
        store: the table.
        place: partition (BinaryRow bytes) and bucket.
        files: files above level 0.
        deletions: deletion vectors by file name.
        columns: value columns of the key-value batches, in this order.
        keep_deletes: yield the rows that delete a key, too.
    """
    names = list(columns)
    for file in files:
        vector = deletions.get(file.file_name)
        deleted = None if vector is None else read_vector(store, vector, file.row_count)
        rows = open_kv(store, *place, file, columns=names, need_sequence=False, deleted=deleted)
        with closing(rows) as batches:  # type: ignore[type-var]
            for batch in batches:
                kinds = numpy_array(batch.column(VALUE_KIND)).astype(np.int64)
                yield batch if keep_deletes else batch.filter(arrow_array(~retracts(kinds)))
