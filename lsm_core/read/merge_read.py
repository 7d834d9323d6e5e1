"""Merge-on-read: the files of one bucket as one stream of merged rows; reads and compactions share these very streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.files import SpilledRun, SpillSpace, kv_read_schema, open_kv
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import key_name
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
from lsm_core.merge.comparable import Ints
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.metadata.indexes import DeletionFile, read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Files, Section, as_tree, sections_of, sequence_range
from lsm_core.read.passes import fits, in_memory, next_pass
from lsm_core.read.row_size import decoded_row_bytes, repeating_texts
from lsm_core.storage.allocator import keep_small_arrays
from lsm_core.types.dictionaries import SharedDictionaries, batch_of, rows_bytes

if TYPE_CHECKING:  # what looks keys up and tells changes is imported where it is done
    from lsm_core.merge import ChangelogRules
    from lsm_core.merge.changelog import LookUp, WriteChanges
    from lsm_core.read.key_range import KeyBounds

_MOST_ROWS: Final = 65_536
_FEWEST_ROWS: Final = 16
_ROWS_AT_ONCE: Final = 1 << 19
"""Rows of all inputs of a merge together: windows are long enough then, and come from the same memory again and again."""
_AT_HAND: Final = 1_024
"""Rows that each input has at hand, however small its files are."""
_NAMED: Final = 8
"""Files of a chain that an error names."""
_SMALLEST_ROW_BYTES: Final = 32.0
_IN_MEMORY_SHARE: Final = 8
"""Inputs read as a whole, and the outcome of passes before it is spilled, take up to this share of the merge budget."""

Batches = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True)
class _InMemory:
    """A merged part that is too small to be worth a file; ``size`` in decoded bytes."""

    kept: list[pa.RecordBatch]
    size: int
    path: str = "(merged in memory)"

    @property
    def rows(self) -> int:
        """Rows left."""
        return sum(batch.num_rows for batch in self.kept)

    def batches(self) -> Batches:
        """The batches, let go one by one."""
        while self.kept:
            yield self.kept.pop(0)

    def delete(self) -> None:
        """Let go of what is left."""
        self.kept.clear()


@dataclass(frozen=True)
class Parked:
    """A merged part of a section on the local disk (a small one in memory), with the level and age of its newest rows."""

    run: SpilledRun | _InMemory
    level: int
    age: int

    @property
    def held(self) -> bool:
        """Whether it lies in memory."""
        return isinstance(self.run, _InMemory)


@dataclass(frozen=True)
class HighLevels:
    """The files above level 0 of a table whose compactions look up: ``groups`` from the highest level down, as one input.

    Such a compaction merges what it finds above its output into it, so of these versions of a key that of the lowest level says
    everything, and merging the others again would count them twice (Java `LookupMergeFunction`).
    """

    groups: tuple[Files, ...]

    @property
    def files(self) -> Files:
        """The files of all runs."""
        return tuple(file for group in self.groups for file in group)


Input = Files | Parked | HighLevels


@dataclass(frozen=True)
class Changes:
    """A merge that looks keys up, and writes what changed of them (`merge.changelog`); for whole compaction units alone.

    ``max_level``: of the bucket's tree. ``look_up``: asks the levels above the output, None where none of them meets the unit's keys;
    its rows have all columns of the merge. ``write_changes`` takes the changes as whole KV batches, by key.
    """

    rules: ChangelogRules
    max_level: int
    look_up: LookUp | None
    write_changes: WriteChanges


@dataclass
class Merging:
    """What merging one bucket needs, made once; ``dropped`` (reason -> rows) and the counts of keys add up over its sections.

    ``exact``: real sequence numbers and kinds come out (compaction). Otherwise they are not decoded where file metadata
    alone orders the rows. ``drop_delete``: deleted rows do not come out. ``seen`` is shown every batch read from a file. At most `sort-spill-threshold` inputs are open.
    ``living`` keeps those rows of a batch that are not over (record-level expiry), before they are merged; only compactions expire.
    ``opener`` reads files in place of :func:`open_kv`, with its arguments: a lookup's or a key range's gives some rows only.
    ``budget``: decoded bytes of all windows together (None: what option `dredge.merge-budget` says).
    ``dictionaries``: text columns that may come out as Arrow dictionaries of int32: those do whose values repeat in the files, where the
    engine only chooses rows and never looks at them. A column may be one in some batches and plain in others.
    ``changes``: keys are looked up, and their changes written.
    """

    store: TableStore
    partition: bytes
    bucket: int
    columns: tuple[str, ...]
    drop_delete: bool
    exact: bool
    dropped: dict[str, int] = field(default_factory=dict)
    keys_folded: int = 0
    keys_one_by_one: int = 0
    seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None = None
    deletions: Mapping[str, DeletionFile] = field(default_factory=dict)
    living: Living | None = None
    opener: Callable[..., Iterator[pa.RecordBatch]] | None = None
    budget: int | None = None
    dictionaries: Collection[str] = ()
    changes: Changes | None = None

    row_bytes: float = 0.0

    def __post_init__(self) -> None:
        self.function: MergeFunction = merge_function(self.store.schema, self.store.options.raw, self.store.name)
        # an engine that builds rows must see all versions of a key at once: passes before only sort them
        folds = isinstance(self.function, FoldFunction)
        self.in_passes: MergeFunction = self.function
        if folds or self.changes is not None:
            from lsm_core.merge.engines.internal import AllVersions

            self.in_passes = AllVersions(self.function.key_spec)
        # Of rows that are chosen by number, not built, the version of the lowest level is the newest one anyway.
        compares = False
        if self.changes is not None:
            from lsm_core.merge.changelog import Against

            compares = self.changes.rules.against is Against.HIGH_LEVELS
        chooses = bool(self.function.key_spec.sequence_columns)
        self.looks_up = (folds or compares or chooses) and self.store.options.needs_lookup
        by_level = Deduplicate(replace(self.function.key_spec, sequence_columns=()))
        self.by_level: MergeFunction = self.function if self.function.name == "first-row" else by_level
        self.columns = self.function.effective_columns(self.columns)
        self.twins = {key_name(name): name for name in self.store.schema.trimmed_primary_keys if name in self.columns}
        self.shared = SharedDictionaries()
        self.threshold = max(2, self.store.options.sort_spill_threshold)
        self.memory: int = self.store.options.merge_budget if self.budget is None else self.budget

    def section(self, section: Section) -> Batches:
        """Merged KV batches of one section, ascending by key, each key once.

        Raises :class:`CorruptFile` naming the file that is damaged or not in key order.
        """
        reader = _Reader.of(self, section)
        inputs: list[Input] = list(reader.inputs)
        limit = self.memory // _IN_MEMORY_SHARE
        if fits(reader.sizes(inputs), self.threshold, limit):
            # Columns that repeat in the largest file are carried as dictionaries, unless the engine looks at their values.
            looked_at = {*self.store.schema.primary_keys, *self.function.key_spec.sequence_columns}
            names = [name for name in self.columns if name in self.dictionaries and name not in looked_at]
            if names and not isinstance(self.function, FoldFunction):
                repeating = repeating_texts(self.store, self.partition, self.bucket, section.files, names)
                reader = replace(reader, dictionaries=frozenset(repeating))
        with SpillSpace() as space:
            while not fits(reader.sizes(inputs), self.threshold, limit):
                inputs = self._one_pass(inputs, reader, space, limit)
            with closing(self._merge(inputs, reader, self.function, self.drop_delete, self.changes)) as merged:
                if not self.exact:
                    yield from merged
                    return
                for batch in merged:
                    yield self._with_keys(batch)

    def _with_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its `_KEY_*` columns, which were merged as the value columns that they equal."""
        layout = kv_read_schema(self.store, self.columns)
        return batch_of([batch.column(self.twins.get(name, name)) for name in layout.names], layout)

    def count_dropped(self, counters: MergeCounters) -> None:
        """Add the rows that a merge left out."""
        for reason, rows in counters.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + rows

    def _one_pass(self, inputs: list[Input], reader: _Reader, space: SpillSpace, limit: int) -> list[Input]:
        """Merge neighbours (in age order) into parked runs, deletes kept; the other inputs stay as they are.

        Where changes are written so does the oldest one above level 0, whose rows those of the others are compared with.
        """
        apart = int(self.changes is not None and reader.place(inputs[0])[0] > 0)
        fewer: list[Input] = []
        done = 0
        rest = inputs[apart:]
        groups = next_pass(reader.sizes(rest), max(2, self.threshold - apart), limit)
        for group in groups if len(rest) > 2 else [range(len(rest))]:
            group = range(group.start + apart, group.stop + apart)
            fewer += inputs[done : group.start]
            done = group.stop
            if len(group) == 1:
                fewer.append(inputs[group.start])
                continue
            chosen = inputs[group.start : group.stop]
            held = sum(one.run.size for one in (*fewer, *inputs[group.start :]) if isinstance(one, Parked) and one.held)
            level, age = reader.place(chosen[-1])
            with closing(self._merge(chosen, reader, self.in_passes, drop_delete=False)) as merged:
                fewer.append(Parked(_park(merged, reader.schema, space, limit - held), level, age))
            for one in chosen:
                if isinstance(one, Parked):
                    one.run.delete()
        return [*fewer, *inputs[done:]]

    def _merge(
        self,
        inputs: Sequence[Input],
        reader: _Reader,
        function: MergeFunction,
        drop_delete: bool,
        changes: Changes | None = None,
    ) -> Batches:
        whole = in_memory(reader.sizes(inputs), self.threshold)
        streams = [reader.stream(one, whole=place in whole) for place, one in enumerate(inputs)]
        counters = MergeCounters()
        whole_keys = None
        if changes is not None:
            from lsm_core.merge.changelog import ChangelogMerger

            look_up, write_changes, names = changes.look_up, changes.write_changes, reader.schema.names

            def found(keys: NormalisedKeys, columns: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
                assert look_up is not None
                which, rows = look_up(keys, columns)
                return which, rows.select(names) if len(which) and rows.num_columns else rows

            whole_keys = ChangelogMerger(
                changes.rules,
                function,
                changes.max_level,
                None if look_up is None else found,
                lambda batch: write_changes(self._with_keys(batch)),
                drop_delete,
                counters,
            ).merge
        try:
            yield from merge_streams(
                streams, function, drop_delete=drop_delete, counters=counters, whole_keys=whole_keys
            )
        finally:
            for stream in streams:
                for part in stream.parts or (stream,):
                    part.batches.close()  # type: ignore[attr-defined]
            self.count_dropped(counters)
            self.keys_folded += counters.keys_folded
            self.keys_one_by_one += counters.keys_one_by_one


@dataclass(frozen=True)
class _Reader:
    """Opens the inputs of one section: how they are cut, how old each file is, and which columns decide nothing."""

    merging: Merging
    inputs: tuple[Input, ...]
    ages: dict[str, tuple[int, int]]
    batch_rows: int
    need_sequence: bool
    need_kind: bool
    dictionaries: frozenset[str] = frozenset()

    @staticmethod
    def of(merging: Merging, section: Section) -> _Reader:
        """Groups of one age each where they may all be open at once, else the fewest runs.

        More inputs are merged in passes. These take neighbours in age, so they need groups too, unless no two groups
        share a sequence number: then numbers alone decide. Where numbers need not be decoded the groups' ranges do.
        """
        disjoint = section.disjoint_sequences
        in_passes = min(len(section.runs), len(section.groups)) > merging.threshold
        by_run = len(section.runs) < len(section.groups) > merging.threshold and (disjoint or not in_passes)
        decides = bool(merging.function.key_spec.sequence_columns)
        need_sequence = merging.exact or decides or not disjoint or (in_passes and by_run)
        groups = list(section.groups) if need_sequence else sorted(section.groups, key=sequence_range)
        ages = {
            file.file_name: (file.level if need_sequence else 0, age)
            for age, group in enumerate(groups)
            for file in group
        }
        if merging.changes is not None:
            by_run = False  # levels must stay apart
        inputs: tuple[Input, ...] = section.runs if by_run else tuple(groups)
        high = [group for group in section.groups if group[0].level > 0]
        if merging.looks_up and len(high) > 1:
            inputs = (HighLevels(tuple(high)), *(group for group in groups if group[0].level == 0))
        need_kind = merging.exact or any(file.delete_row_count != 0 for file in section.files)
        rows = _batch_rows(merging, section.files, min(len(inputs), merging.threshold))
        return _Reader(merging, inputs, ages, rows, need_sequence, need_kind)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of all inputs and of what is merged from them: keys that are among the columns are not there twice."""
        merging = self.merging
        full = kv_read_schema(
            merging.store,
            merging.columns,
            need_sequence=self.need_sequence,
            need_kind=self.need_kind,
            dictionaries=self.dictionaries,
        )
        return pa.schema([field for field in full if field.name not in merging.twins])

    def place(self, one: Input) -> tuple[int, int]:
        """Level and age of the newest rows of an input."""
        if isinstance(one, Parked):
            return one.level, one.age
        return self.ages[(one.files if isinstance(one, HighLevels) else one)[-1].file_name]

    def sizes(self, inputs: Sequence[Input]) -> list[float]:
        """Decoded bytes of each input, about; those in memory already cost nothing more."""
        sizes = []
        for one in inputs:
            files = () if isinstance(one, Parked) else one.files if isinstance(one, HighLevels) else one
            rows = one.run.rows if isinstance(one, Parked) else sum(file.row_count for file in files)
            sizes.append(0.0 if isinstance(one, Parked) and one.held else rows * self.merging.row_bytes)
        return sizes

    def stream(self, one: Input, *, whole: bool) -> RunInput:
        """The rows of an input with their levels and ages; files open when they are reached.

        ``whole``: an input is read to its end, and closed, when its first rows are wanted.
        """
        if isinstance(one, Parked):
            batches = one.run.batches()
            return RunInput(
                _read_ahead(batches) if whole else batches, one.level, one.age, one.run.path, at_hand=self._at_hand
            )
        if isinstance(one, HighLevels):
            lowest = self._lowest(one)
            return RunInput(
                _read_ahead(lowest) if whole else lowest,
                *self.place(one),
                "the levels above 0",
                at_hand=self._at_hand,
            )
        parts = []
        for file in one:
            path = self.merging.store.data_path(self.merging.partition, self.merging.bucket, file)
            rows = self._open(file)
            ahead = _read_ahead(rows) if whole else rows
            parts.append(RunInput(ahead, *self.ages[file.file_name], path, at_hand=self._at_hand))
        return parts[0] if len(parts) == 1 else RunInput.chain(parts, _either(parts), self._at_hand)

    @property
    def _at_hand(self) -> int:
        """Of the rows that the budget allows to each open input as many as make a window worth its while."""
        return min(self.batch_rows, _AT_HAND)

    def _lowest(self, high: HighLevels) -> Batches:
        """Of each key the version of the lowest level."""
        streams = [self.stream(group, whole=False) for group in high.groups]
        counters = MergeCounters()
        try:
            yield from merge_streams(streams, self.merging.by_level, counters=counters)
        finally:
            self.merging.count_dropped(counters)
            for stream in streams:
                for part in stream.parts or (stream,):
                    part.batches.close()  # type: ignore[attr-defined]

    def _open(self, file: DataFileMeta) -> Batches:
        merging = self.merging
        gone = merging.deletions.get(file.file_name)
        opened = merging.opener or open_kv
        coded: dict[str, Any] = {"dictionaries": self.dictionaries} if self.dictionaries else {}
        batches = opened(
            merging.store,
            merging.partition,
            merging.bucket,
            file,
            columns=merging.columns,
            need_sequence=self.need_sequence,
            need_kind=self.need_kind,
            batch_rows=self.batch_rows,
            deleted=None if gone is None else read_vector(merging.store, gone, file.row_count),
            **coded,
        )
        schema = self.schema
        # Readers look every value up once, for texts: that is cheaper than one dictionary of all files, which a writer needs.
        shared = merging.shared.reader() if merging.exact and self.dictionaries else None
        with closing(batches):  # type: ignore[type-var]
            for batch in batches:
                merging.row_bytes = max(merging.row_bytes, rows_bytes(batch) / max(1, batch.num_rows))
                if merging.seen is not None:
                    merging.seen(file, batch)
                if merging.living is not None:
                    left = merging.living(batch)
                    if over := batch.num_rows - left.num_rows:
                        merging.dropped[EXPIRED] = merging.dropped.get(EXPIRED, 0) + over
                    batch = left
                chosen = batch.select(schema.names)
                yield chosen if shared is None else shared(chosen)


def _either(parts: Sequence[RunInput]) -> str:
    """What errors call a chain of files: all of them, or of many the first few."""
    names = [part.name for part in parts[:_NAMED]]
    more = [f"one of {len(parts) - _NAMED} more files"] if len(parts) > _NAMED else []
    return " or ".join([*names, *more])


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Batches:
    """All batches, read before the first one goes out."""
    with closing(batches):  # type: ignore[type-var]
        held = list(batches)
    while held:
        yield held.pop(0)


def _park(merged: Batches, schema: pa.Schema, space: SpillSpace, limit: int) -> SpilledRun | _InMemory:
    """Keep up to ``limit`` decoded bytes in memory, else write everything to ``space``."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in merged:
        kept.append(batch)
        size += batch.nbytes
        if size > limit:
            return space.spill(chain(_InMemory(kept, size).batches(), merged), schema)
    return _InMemory(kept, size)


def _batch_rows(merging: Merging, files: Files, open_inputs: int) -> int:
    """Rows per input batch: the budget holds two batches of every open input (kernels.md note 1)."""
    if not merging.row_bytes:
        merging.row_bytes = max(
            _SMALLEST_ROW_BYTES,
            decoded_row_bytes(merging.store, merging.partition, merging.bucket, files, merging.columns),
        )
    fair = merging.memory / (2 * max(1, open_inputs) * merging.row_bytes)
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
    """The merged rows of ``files`` of one bucket, in key order, each key once.

    Yields ``columns`` (None: all) in that order, or with ``keep_system`` whole KV batches (`_KEY_*`, `_SEQUENCE_NUMBER`,
    `_VALUE_KIND`, then at least ``columns``) with true sequence numbers. ``keep_deletes`` lets deleted rows through.
    ``deletions``: by file name, the vectors of rows that are gone whatever the merge says. ``living``: rows that it leaves
    out are not there at all, as a compaction at its clock would see it (never set by reads). ``within``: of these keys alone.
    ``budget``, ``dictionaries``, ``seen``: see :class:`Merging`.
    Raises :class:`CorruptFile` naming the file that is damaged or not in key order.
    """
    names = tuple(store.schema.field_names if columns is None else columns)
    keep_small_arrays()
    merging = Merging(
        store,
        partition,
        bucket,
        names,
        drop_delete=not keep_deletes,
        exact=keep_system,
        deletions=deletions or {},
        living=living,
        budget=budget,
        dictionaries=dictionaries,
        opener=None if within is None else within.open,
        seen=seen,
    )
    if within is not None:
        files = [file for file, shape in zip(files, as_tree(store, files), strict=True) if within.meets(shape)]
    for section in sections_of(store, files) if sections is None else sections:
        with closing(merging.section(section)) as merged:
            for batch in merged:
                yield batch if keep_system else batch.select(list(names))
