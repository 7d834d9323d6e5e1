"""Merge-on-read: the files of one bucket as one stream of merged rows; reads and compactions share these very streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.files import SpilledRun, SpillSpace, kv_read_schema, open_kv
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge import KeySpec, MergeCounters, MergeFunction, RunInput, merge_function, merge_streams
from lsm_core.merge import UnsortedInput
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import InputFiles, Section, sections_of, sequences_can_be_skipped

_MOST_ROWS: Final = 65_536
_FEWEST_ROWS: Final = 16
_PROBE_ROWS: Final = 256
_PROBES: Final = 8
_ROWS_AT_ONCE: Final = 1 << 20
"""Rows of all inputs of a merge together: more only costs memory, windows are long enough."""


@dataclass
class Merging:
    """What merging one bucket needs, made once; ``counters`` add up over its sections.

    ``exact``: real sequence numbers come out (compaction). Otherwise they are left undecoded where file metadata alone
    orders the rows. ``drop_delete``: deleted rows do not come out.
    """

    store: TableStore
    partition: bytes
    bucket: int
    columns: tuple[str, ...]
    drop_delete: bool
    exact: bool
    counters: MergeCounters = field(default_factory=MergeCounters)
    threshold: int = 0

    def __post_init__(self) -> None:
        options, schema = self.store.options, self.store.schema
        self.function: MergeFunction = merge_function(schema, options.raw)
        self.key_spec: KeySpec = KeySpec.of(schema, options.sequence_field, options.sequence_descending)
        extra = [name for name in options.sequence_field if name not in self.columns]
        self.columns = (*self.columns, *extra)
        self.threshold = self.threshold or max(2, options.sort_spill_threshold)

    def section(self, section: Section) -> Iterator[pa.RecordBatch]:
        """Merged KV batches of one section (`kv_read_schema` of :attr:`columns`), ascending by key, each key once."""
        with SpillSpace() as space:
            inputs: list[InputFiles | _Spilled] = list(section)
            rows = self._batch_rows(section)
            need_sequence = self.exact or bool(self.key_spec.sequence_columns) or not sequences_can_be_skipped(section)
            need_kind = self.exact or any(f.delete_row_count != 0 for one in section for f in one.files)
            reader = _Reader(self, rows, need_sequence, need_kind)
            while len(inputs) > self.threshold:
                inputs = self._one_pass(inputs, reader, space)
            with closing(self._merge(inputs, reader, self.drop_delete)) as merged:
                yield from merged

    def _one_pass(
        self, inputs: list[InputFiles | _Spilled], reader: _Reader, space: SpillSpace
    ) -> list[InputFiles | _Spilled]:
        """Merge the cheapest neighbours (in age order) into one spilled run, deletes kept."""
        width = min(self.threshold, len(inputs) - self.threshold + 1)
        sizes = [one.size for one in inputs]
        start = min(range(len(inputs) - width + 1), key=lambda at: sum(sizes[at : at + width]))
        chosen = inputs[start : start + width]
        with closing(self._merge(chosen, reader, drop_delete=False)) as merged:
            run = space.spill(merged, reader.schema)
        for one in chosen:
            if isinstance(one, _Spilled):
                one.run.delete()
        newest = chosen[-1]
        return [*inputs[:start], _Spilled(run, newest.level, newest.age), *inputs[start + width :]]

    def _merge(
        self, inputs: Sequence[InputFiles | _Spilled], reader: _Reader, drop_delete: bool
    ) -> Iterator[pa.RecordBatch]:
        streams = [RunInput(reader.stream(one), one.level, one.age) for one in inputs]
        counters = MergeCounters()
        try:
            yield from merge_streams(
                streams, self.function, key_spec=self.key_spec, drop_delete=drop_delete, counters=counters
            )
        except UnsortedInput as error:
            raise CorruptFile(self._name_of(inputs[error.index]), "its rows are not in key order") from error
        finally:
            for stream in streams:
                stream.batches.close()  # type: ignore[attr-defined]
            for reason, rows in counters.dropped.items():
                self.counters.dropped[reason] = self.counters.dropped.get(reason, 0) + rows

    def _name_of(self, one: InputFiles | _Spilled) -> str:
        if isinstance(one, _Spilled):
            return one.run.path
        return ", ".join(self.store.data_path(self.partition, self.bucket, file) for file in one.files)

    def _batch_rows(self, section: Section) -> int:
        """Rows per input batch: the budget holds two batches of every input (kernels.md note 1)."""
        open_inputs = min(len(section), self.threshold)
        fair = self.store.options.merge_budget / (2 * max(1, open_inputs) * self._row_bytes(section))
        return int(max(_FEWEST_ROWS, min(fair, _MOST_ROWS, _ROWS_AT_ONCE / max(1, open_inputs))))

    def _row_bytes(self, section: Section) -> float:
        """Decoded bytes of a row, from the first rows of a few files: sizes on disk say nothing about compressed text."""
        largest = 32.0
        files = [file for one in section for file in one.files]
        for file in files[:: max(1, len(files) // _PROBES)]:
            with closing(
                open_kv(self.store, self.partition, self.bucket, file, columns=self.columns, batch_rows=_PROBE_ROWS)
            ) as rows:
                batch = next(rows, None)
            if batch is not None:
                largest = max(largest, batch.nbytes / max(1, batch.num_rows))
        return largest


@dataclass(frozen=True)
class _Spilled:
    """A run parked on disk, in the place and age of the inputs that it holds."""

    run: SpilledRun
    level: int
    age: int

    @property
    def size(self) -> int:
        return self.run.size


@dataclass(frozen=True)
class _Reader:
    """Opens inputs, filling in system columns that were not decoded because they cannot matter."""

    merging: Merging
    batch_rows: int
    need_sequence: bool
    need_kind: bool

    @property
    def schema(self) -> pa.Schema:
        return kv_read_schema(self.merging.store, self.merging.columns)

    def stream(self, one: InputFiles | _Spilled) -> Iterator[pa.RecordBatch]:
        if isinstance(one, _Spilled):
            yield from one.run.batches()
            return
        for file in one.files:
            yield from self._file(file, one.rank)

    def _file(self, file: DataFileMeta, rank: int) -> Iterator[pa.RecordBatch]:
        merging = self.merging
        batches = open_kv(
            merging.store,
            merging.partition,
            merging.bucket,
            file,
            columns=merging.columns,
            need_sequence=self.need_sequence,
            need_kind=self.need_kind,
            batch_rows=self.batch_rows,
        )
        with closing(batches):
            for batch in batches:
                yield batch if self.need_sequence and self.need_kind else self._filled(batch, rank)

    def _filled(self, batch: pa.RecordBatch, rank: int) -> pa.RecordBatch:
        """Constant stand-ins: the input's rank for its sequence numbers, +I for its kinds."""
        rows, schema = batch.num_rows, self.schema
        stand_in = {
            SEQUENCE_NUMBER: lambda: pa.repeat(pa.scalar(rank, pa.int64()), rows),
            VALUE_KIND: lambda: pa.repeat(pa.scalar(0, pa.int8()), rows),
        }
        held = set(batch.schema.names)
        columns = [batch.column(name) if name in held else stand_in[name]() for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


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
) -> Iterator[pa.RecordBatch]:
    """The merged rows of ``files`` of one bucket, in key order, each key once.

    Yields ``columns`` (None: all) in that order, or with ``keep_system`` whole KV batches (`_KEY_*`, `_SEQUENCE_NUMBER`,
    `_VALUE_KIND`, then at least ``columns``) with true sequence numbers. ``keep_deletes`` lets deleted rows through.
    Raises :class:`CorruptFile` naming the file that is damaged or not in key order.
    """
    names = tuple(store.schema.field_names if columns is None else columns)
    merging = Merging(store, partition, bucket, names, drop_delete=not keep_deletes, exact=keep_system)
    for section in sections_of(store, files) if sections is None else sections:
        with closing(merging.section(section)) as merged:
            for batch in merged:
                yield batch if keep_system else batch.select(list(names))
