"""Tasks and results of compaction workers: plain frozen values that are sent between processes as bytes.

`BucketTask` compacts a bucket; `SortTask` sorts a partition of an append table.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.compact.splice import SplicedGroup
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.entry_files import files_from_bytes, files_to_bytes
from lsm_core.format.manifest import DataFileMeta, IndexFileMeta
from lsm_core.json_text import parse_json
from lsm_core.merge.curves import ORDER, Curve
from lsm_core.metadata.indexes import DeletionFile, deletion_files
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds, KeyRange

FULL: Final = "full"
SAMPLED: Final = "sampled"
COUNTS: Final = "counts"
V0: Final = "V0"
V1: Final = "V1"
V2: Final = "V2"
_VERSION: Final = 8


@dataclass(frozen=True)
class BucketTask:
    """Compaction task of one bucket, a part of a compaction plan.

    Attributes:
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        files: all live files of the bucket at snapshot ``base_snapshot``.
        unit_names: names of the files that the compaction strategy picked to merge into ``output_level``; empty for
            append tables.
        output_level: level of the output.
        drop_delete: whether delete rows are dropped, because no older version of a deleted key would remain.
        base_snapshot: id of the snapshot of the plan, or None if unknown.
        verification: option `dredge.verification`: "full" checks counters and metadata (V0), re-reads all of the output
            (V1) and calls the judge (V2). "sampled" re-reads one in eight of the output's Parquet row groups, and all
            footers. "counts" checks V0 only.
        bins: for append tables, the file names of each bin; every bin becomes one rolling output.
        by_file: whether each picked file is rewritten alone, instead of merging the files.
        now_ms: time of the plan (epoch ms); rows that are expired at this time are left out. None for no expiry.
        piece: range of keys to rewrite, if the bucket's task was cut into pieces (`compact.pieces`); None for all keys.
            The piece without a lower bound also does the upgrades.
        index_files: index files of the bucket with deletion vectors at ``base_snapshot``.
        untouched: names of the files of the unit in whose key range no other file has a key, so that they are kept
            (`compact.exact_keys`); None if they have not been searched.
        spliced: row groups in whose key range no other file has a key, so that they are copied without decoding
            (`compact.splice`), in key order.

    Source: ``CompactTask``.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: Sequence[DataFileMeta]
    unit_names: tuple[str, ...] = ()
    output_level: int = 0
    drop_delete: bool = False
    base_snapshot: int | None = None
    verification: str = FULL
    bins: tuple[tuple[str, ...], ...] = ()
    by_file: bool = False
    now_ms: int | None = None
    piece: KeyRange | None = None
    index_files: tuple[IndexFileMeta, ...] = ()
    untouched: tuple[str, ...] | None = None
    spliced: tuple[SplicedGroup, ...] = ()

    def deletions(self, store: TableStore) -> dict[str, DeletionFile]:
        """Return the location of each data file's deletion vector (index file, offset, length), by file name.

        Raises:
            CorruptFile: a file has two vectors.
        """
        return deletion_files(store, self.partition, self.bucket, self.index_files)

    @property
    def is_append(self) -> bool:
        """Whether this task concatenates small files of an append table."""
        return bool(self.bins)

    def to_bytes(self) -> bytes:
        """Return the task as bytes for a worker (`files_to_bytes`)."""
        return files_to_bytes(self.files, self._settings())

    def _settings(self) -> dict[str, Any]:
        """Return the fields but the files as JSON values."""
        return {
            "version": _VERSION,
            "partition": self.partition.hex(),
            "bucket": self.bucket,
            "total_buckets": self.total_buckets,
            "unit_names": self.unit_names,
            "output_level": self.output_level,
            "drop_delete": self.drop_delete,
            "base_snapshot": self.base_snapshot,
            "verification": self.verification,
            "bins": self.bins,
            "by_file": self.by_file,
            "now_ms": self.now_ms,
            "index_files": [file.to_list() for file in self.index_files],
            "untouched": self.untouched,
            "spliced": [group.to_list() for group in self.spliced],
            "piece": None
            if self.piece is None
            else [None if side is None else side.hex() for side in (self.piece.low, self.piece.high)],
        }

    @staticmethod
    def from_bytes(data: bytes) -> BucketTask:
        """Return the task of :meth:`to_bytes`.

        Raises:
            CorruptFile: the bytes have another form.
        """
        return _task_of(BucketTask, *files_from_bytes(data, _TASK_BYTES))


@dataclass(frozen=True)
class BucketReport:
    """Numbers of one executed task.

    Attributes:
        rows_in: rows read.
        rows_out: rows written.
        rows_dropped: rows left out, by reason.
        bytes_in: file bytes read.
        bytes_out: file bytes written.
        files_in: files read.
        files_out: files written.
        files_upgraded: files that were only moved to another level.
        files_kept: files that were not rewritten because no other file has a key in their key range, including those
            of them that were moved.
        bytes_kept: bytes of the ``files_kept``.
        groups_spliced: row groups that were copied without decoding: with a primary key, because no other file has a
            key in their key range; in append tables, because they are large enough. Their rows and bytes count as read
            and written.
        bytes_spliced: bytes of the ``groups_spliced``.
        seconds: wall clock.
        digest: hex digest of the rows that the writers received (the content of ``files_out``), summed over rewrites
            and key ranges; "" where not all rows were digested. For rewrites compared to the bit it also depends on
            order, row groups, and which texts were decoded as dictionaries.
        verification: highest check passed: "V0" (counters, metadata), "V1" (re-read files) or "V2" (second merge of
            sampled keys).
        setting: level that was requested (`BucketTask.verification`).
        rows_read_again: output rows that the verification re-read from the new files (V1).
        keys_checked: number of sampled keys, or row ids of a data-evolution table, that V2 compared.
        keys_folded: keys of which several versions became a new row.
        keys_one_by_one: number of the ``keys_folded`` whose versions an aggregate function combined one key at a time.
        changes_told: number of rows in the changelog files.
        written_by: on Spark, the executor that wrote each new file ("executor 2 on host-7"), by file name.
    """

    rows_in: int = 0
    rows_out: int = 0
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    files_in: int = 0
    files_out: int = 0
    files_upgraded: int = 0
    files_kept: int = 0
    bytes_kept: int = 0
    groups_spliced: int = 0
    bytes_spliced: int = 0
    seconds: float = 0.0
    digest: str = ""
    verification: str = V0
    setting: str = FULL
    rows_read_again: int = 0
    keys_checked: int = 0
    keys_folded: int = 0
    keys_one_by_one: int = 0
    changes_told: int = 0
    written_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BucketResult:
    """Result of an executed task.

    Attributes:
        message: commit message.
        report: numbers of the task.
        marks: for a task of one key range (piece), the rows on levels above the output that its output supersedes:
            64-bit deletion vectors by data file. The index files of the whole bucket are written when its pieces are
            joined.
        error: error of a failed task, which left no files, or None. :meth:`to_bytes` leaves the error out.
        declined: reason why the task was not started; "" if it was started. :meth:`to_bytes` leaves the reason out.
    """

    message: CommitMessage
    report: BucketReport
    marks: Mapping[str, bytes] = field(default_factory=dict)
    error: DredgeError | None = None
    declined: str = ""

    @staticmethod
    def without(task: BucketTask, error: DredgeError | None = None, declined: str = "") -> BucketResult:
        """Return the result of a task that failed with ``error``, or was not started: its message is empty."""
        message = CommitMessage(task.partition, task.bucket, task.total_buckets)
        return BucketResult(message, BucketReport(), error=error, declined=declined)

    def written_by(self, executor: str) -> BucketResult:
        """Return the same result with ``executor`` as the writer of all new files."""
        names = [file.file_name for file in self.message.written()]
        return replace(self, report=replace(self.report, written_by=dict.fromkeys(names, executor)))

    def to_bytes(self) -> bytes:
        """Return the result as bytes for the driver: report and marks as a JSON line, then the message."""
        marks = {name: base64.b64encode(vector).decode("ascii") for name, vector in self.marks.items()}
        return json.dumps([asdict(self.report), marks]).encode() + b"\n" + self.message.to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> BucketResult:
        """Decode the bytes of :meth:`to_bytes`.

        Raises:
            CorruptFile: the bytes are not a result.
        """
        head, separator, message_bytes = data.partition(b"\n")
        try:
            if not separator:
                raise ValueError("no report line")
            report, marks = parse_json(head)
            vectors = {str(name): base64.b64decode(text, validate=True) for name, text in marks.items()}
            return BucketResult(CommitMessage.from_bytes(message_bytes), BucketReport(**report), vectors)
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptFile("<compaction result>", f"unreadable: {error!r}") from error


class Witness(Protocol):
    """Independent check of one task (V2): receives the rows that a rewrite reads and writes, and compares them."""

    def add_input(self, file: DataFileMeta, batch: pa.RecordBatch) -> None:
        """Receive rows read from an input file: `_KEY_*`, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and all value columns."""

    def add_looked_up(self, batch: pa.RecordBatch) -> None:
        """Receive rows of the levels above the output that were found for input keys.

        The rows have the columns of :meth:`add_input`.
        """

    def add_changes(self, batch: pa.RecordBatch) -> None:
        """Receive rows of the changelog files, with the columns of :meth:`add_input` and the kinds of the changelog."""

    def select_output(self, file: DataFileMeta, keys: pa.RecordBatch) -> pa.Array:
        """Select the rows of an output file that :meth:`add_output` shall receive, while the file is re-read.

        Each row is passed once. A file with `data-file.thin-mode` has no `_KEY_*` columns.

        Args:
            file: the output file.
            keys: key columns of the next rows of the file.

        Returns:
            Positions of the selected rows in ``keys``.
        """

    def add_output(self, file: DataFileMeta, rows: pa.RecordBatch) -> None:
        """Receive rows that :meth:`select_output` chose: keys, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, all value columns."""

    def add_written(self, batch: pa.RecordBatch) -> None:
        """Receive rows as they are passed to the file writer.

        If the verification re-reads only a part of the output, this replaces :meth:`select_output` and
        :meth:`add_output`.
        """

    def check_lookups(
        self,
        above: Sequence[DataFileMeta],
        searched: Collection[str],
        marked: Mapping[str, DeletionVector] | None,
        deleted_rows: Callable[[DataFileMeta], DeletionVector | None],
        *,
        alone: bool,
    ) -> None:
        """Compare looked-up rows with a direct read of some rows of a file above the output level.

        The caller calls this method after :meth:`verify`.

        Args:
            above: files above the output.
            searched: names of files whose rows were added by :meth:`add_looked_up`.
            marked: rows that the task supersedes, by file name; None if the table has no deletion vectors.
            deleted_rows: returns the deletion vector of a file, or None.
            alone: whether this witness received all rows that left level 0.

        Raises:
            VerificationFailed: V2 failed; the error names keys and rows.
        """

    def verify(
        self, outputs: Sequence[DataFileMeta], drop_delete: bool, rows_read: Mapping[str, int] | None = None
    ) -> int:
        """Compare output rows with input rows, and return the number of compared keys.

        Args:
            outputs: files written.
            drop_delete: whether delete rows were dropped.
            rows_read: rows of each input file within the rewritten key range; None for all rows of every file.

        Raises:
            VerificationFailed: V2 failed; the error names keys that differ.
        """


class Judge(Protocol):
    """Independent check of a bucket's compaction before the commit (verification V2)."""

    def watch(
        self, store: TableStore, task: BucketTask, inputs: Sequence[DataFileMeta], within: KeyBounds | None, pieces: int
    ) -> Witness:
        """Return a witness: an object that collects the sampled rows of a task's rewrite of ``inputs``.

        The witness observes one read of each input and output file.

        Args:
            store: the table.
            task: the task.
            inputs: files to rewrite.
            within: range of keys; None for all.
            pieces: number of tasks (key ranges) into which the bucket was cut; each task has its own witness.
        """


@dataclass(frozen=True)
class SortTask(BucketTask):
    """Task that rewrites the files of a partition in sorted order; all of them in one bin (sorted together).

    Attributes:
        order_by: columns to sort by.
        strategy: "order", "zorder" or "hilbert" (`STRATEGIES`).
    """

    order_by: tuple[str, ...] = ()
    strategy: str = ORDER

    def curve(self, store: TableStore) -> Curve:
        """Return the curve that orders the rows; `zorder.var-length-contribution` limits the bytes of a text."""
        return Curve(self.order_by, self.strategy, int(store.options.get("zorder.var-length-contribution")))

    @property
    def files_to_sort(self) -> tuple[DataFileMeta, ...]:
        """The files to sort together, in the order in which they are read."""
        by_name = {file.file_name: file for file in self.files}
        return tuple(by_name[name] for names in self.bins for name in names)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "order_by": self.order_by, "strategy": self.strategy}

    @staticmethod
    def from_bytes(data: bytes) -> SortTask:
        """Return the task of :meth:`to_bytes`.

        Raises:
            CorruptFile: the bytes have another form.
        """
        return _task_of(SortTask, *files_from_bytes(data, _TASK_BYTES))


_Task = TypeVar("_Task", bound=BucketTask)
_TASK_BYTES: Final = "<compaction task>"


def task_from_bytes(data: bytes) -> BucketTask:
    """Decode a `BucketTask` or a `SortTask`.

    Raises:
        CorruptFile: the bytes are not a task.
    """
    files, settings = files_from_bytes(data, _TASK_BYTES)
    return _task_of(SortTask if "order_by" in settings else BucketTask, files, settings)


def _task_of(kind: type[_Task], files: Sequence[DataFileMeta], settings: dict[str, Any]) -> _Task:
    """Return the task of ``kind`` with these files and the other fields from JSON values (`BucketTask._settings`).

    Raises:
        CorruptFile: the settings are not those of such a task.
    """
    try:
        if settings.pop("version") != _VERSION:
            raise CorruptFile(_TASK_BYTES, "made by another version of Dredge")
        settings["partition"] = bytes.fromhex(settings["partition"])
        settings["unit_names"] = tuple(settings["unit_names"])
        settings["bins"] = tuple(tuple(names) for names in settings["bins"])
        settings["index_files"] = tuple(IndexFileMeta.of_list(values) for values in settings["index_files"])
        if settings["untouched"] is not None:
            settings["untouched"] = tuple(map(str, settings["untouched"]))
        settings["spliced"] = tuple(map(SplicedGroup.of_list, settings["spliced"]))
        if settings["piece"] is not None:
            low, high = (None if side is None else bytes.fromhex(side) for side in settings["piece"])
            settings["piece"] = KeyRange(low, high)
        if kind is SortTask:
            settings["order_by"], settings["strategy"] = (
                tuple(map(str, settings["order_by"])),
                str(settings["strategy"]),
            )
        return kind(files=files, **settings)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(_TASK_BYTES, f"unreadable: {error!r}") from error
