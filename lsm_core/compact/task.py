"""What a compaction worker is told and what it answers: plain frozen values that cross processes as bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import DataFileMeta, ManifestEntry, entries_to_table, table_to_entries
from lsm_core.format.manifest import IndexFileMeta
from lsm_core.json_reader import parse_json
from lsm_core.metadata.indexes import DeletionFile, deletion_files
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds, KeyRange

FULL: Final = "full"
SAMPLED: Final = "sampled"
COUNTS: Final = "counts"
V0: Final = "V0"
V1: Final = "V1"
V2: Final = "V2"
_VERSION: Final = 4


@dataclass(frozen=True)
class BucketTask:
    """One bucket's share of a compaction plan (Java `CompactTask`).

    ``files`` are all live files of the bucket at snapshot ``base_snapshot``; ``unit_names`` those that the strategy
    picked for ``output_level``. Append tables leave ``unit_names`` empty and name their ``bins`` instead: every bin
    becomes one rolling output. ``drop_delete``: nothing older than the unit's output remains below it, so deletes go.
    ``by_file``: every file of the unit is rewritten on its own (`CompactUnit.by_file`).
    ``now_ms``: the plan's clock (epoch ms); rows whose record-level lifetime is over by then are left out, None: none are.
    ``verification``: option `dredge.verification`. "full": counters and metadata (V0), all of the output re-read (V1), and the judge
    (V2); "sampled": of the output's Parquet row groups one in eight is re-read, and all footers; "counts": V0 only.
    ``index_files``: the index files of the bucket that hold deletion vectors at ``base_snapshot``.
    ``piece``: only these keys of what is rewritten; the piece without a lower bound also does the upgrades (`compact.pieces` cuts and joins).
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
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

    def deletions(self, store: TableStore) -> dict[str, DeletionFile]:
        """Where the vectors of the bucket's files lie, by data file. Raises :class:`CorruptFile`."""
        return deletion_files(store, self.partition, self.bucket, self.index_files)

    @property
    def is_append(self) -> bool:
        """Whether this task concatenates small files of an append table."""
        return bool(self.bins)

    def to_bytes(self) -> bytes:
        """Bytes for a worker: an Arrow stream of the files, the rest as JSON in its schema metadata."""
        rest = {
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
            "piece": None
            if self.piece is None
            else [None if side is None else side.hex() for side in (self.piece.low, self.piece.high)],
        }
        return files_to_bytes(self.files, {b"dredge.task": json.dumps(rest).encode()})

    @staticmethod
    def from_bytes(data: bytes) -> BucketTask:
        """Inverse of :meth:`to_bytes`; raises :class:`CorruptFile` on anything else."""
        files, metadata = files_from_bytes(data)
        try:
            rest = parse_json(metadata[b"dredge.task"])
            if rest.pop("version") != _VERSION:
                raise CorruptFile("<compaction task>", "made by another version of Dredge")
            rest["partition"] = bytes.fromhex(rest["partition"])
            rest["unit_names"] = tuple(rest["unit_names"])
            rest["bins"] = tuple(tuple(names) for names in rest["bins"])
            rest["index_files"] = tuple(IndexFileMeta.of_list(one) for one in rest["index_files"])
            if rest["piece"] is not None:
                low, high = (None if side is None else bytes.fromhex(side) for side in rest["piece"])
                rest["piece"] = KeyRange(low, high)
            return BucketTask(files=files, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<compaction task>", f"unreadable: {error!r}") from error


@dataclass(frozen=True)
class BucketReport:
    """Numbers of one executed task: rows, bytes (file sizes), files, seconds of wall clock.

    ``digest`` is the hex digest of the rows handed to the writers (the content of ``files_out``; of rewrites compared to the bit it
    also depends on their order and row groups), summed over rewrites and pieces, "" where not all rows were digested; ``verification``
    the highest level passed ("V0", "V1", "V2") and ``setting`` what was asked for (`BucketTask.verification`); ``rows_read_again`` the
    rows of the output that V1 read again; ``keys_checked`` what the judge compared; ``rows_dropped`` counts per named reason.
    ``keys_folded``: keys of which several versions became a new row; ``keys_one_by_one``: those of them that a function folded key by key.
    ``changes_told``: rows of changelog files. ``written_by``: on Spark, the executor that wrote each new file ("executor 2 on host-7"), by name.
    """

    rows_in: int = 0
    rows_out: int = 0
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    files_in: int = 0
    files_out: int = 0
    files_upgraded: int = 0
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
    """The commit message of an executed task and its report.

    ``marks``: of a piece, by data file above its output the rows that it supersedes (deletion vectors of the wide layout); the
    index files of the whole bucket are written when its pieces are joined.
    ``error``: the task failed, and left nothing; ``declined``: why it was not begun ("": it was). Both stay where they arose: they cross no process.
    """

    message: CommitMessage
    report: BucketReport
    marks: Mapping[str, bytes] = field(default_factory=dict)
    error: DredgeError | None = None
    declined: str = ""

    @staticmethod
    def without(task: BucketTask, error: DredgeError | None = None, declined: str = "") -> BucketResult:
        """The result of a task that failed, or was not begun: its message is empty."""
        message = CommitMessage(task.partition, task.bucket, task.total_buckets)
        return BucketResult(message, BucketReport(), error=error, declined=declined)

    def written_by(self, executor: str) -> BucketResult:
        """The same, whose report says that ``executor`` wrote all new files."""
        names = [file.file_name for file in self.message.written()]
        return replace(self, report=replace(self.report, written_by=dict.fromkeys(names, executor)))

    def to_bytes(self) -> bytes:
        """Bytes for the driver: report and marks as JSON line, then the message."""
        marks = {name: base64.b64encode(vector).decode("ascii") for name, vector in self.marks.items()}
        return json.dumps([asdict(self.report), marks]).encode() + b"\n" + self.message.to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> BucketResult:
        """Inverse of :meth:`to_bytes`; raises :class:`CorruptFile` on anything else."""
        head, found, rest = data.partition(b"\n")
        try:
            if not found:
                raise ValueError("no report line")
            report, marks = parse_json(head)
            vectors = {str(name): base64.b64decode(text, validate=True) for name, text in marks.items()}
            return BucketResult(CommitMessage.from_bytes(rest), BucketReport(**report), vectors)
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptFile("<compaction result>", f"unreadable: {error!r}") from error


class Witness(Protocol):
    """Sees the rows of one task's rewrites as they pass, and then says whether they are right (verification V2)."""

    def input(self, file: DataFileMeta, batch: pa.RecordBatch) -> None:
        """Rows read from an input file: `_KEY_*`, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and all value columns."""

    def looked_up(self, batch: pa.RecordBatch) -> None:
        """Rows of the levels above the output, found for keys of the input; as :meth:`input` gets them."""

    def changed(self, batch: pa.RecordBatch) -> None:
        """Rows handed to the writer of changelog files: as :meth:`input` gets them, the kinds being those of the changelog."""

    def wanted(self, file: DataFileMeta, keys: pa.RecordBatch) -> pa.Array:
        """Positions of the rows of an output file, as it is read back, that :meth:`output` shall be shown; ``keys``: their key columns.

        Each row passes once; a thin file has no `_KEY_*`.
        """

    def output(self, file: DataFileMeta, rows: pa.RecordBatch) -> None:
        """The wanted rows: keys, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and all value columns."""

    def handed(self, batch: pa.RecordBatch) -> None:
        """Rows handed to a writer, instead of :meth:`wanted` and :meth:`output` where not all of the output is read back."""

    def check_lookups(
        self,
        above: Sequence[DataFileMeta],
        searched: Collection[str],
        marked: Mapping[str, DeletionVector] | None,
        gone: Callable[[DataFileMeta], DeletionVector | None],
        *,
        alone: bool,
    ) -> None:
        """Compare what was looked up for seen keys with a plain reading of a stretch of a file ``above`` the output; after :meth:`verdict`.

        ``searched``: the names of files whose rows were :meth:`looked_up`. ``marked``: by file, the rows that the task supersedes (None:
        the table keeps no vectors); ``gone``: a file's rows that are not there. ``alone``: what came up from level 0 passed here, all of it.
        Raises :class:`VerificationFailed` ("V2") naming keys and rows.
        """

    def verdict(
        self, outputs: Sequence[DataFileMeta], drop_delete: bool, rows_read: Mapping[str, int] | None = None
    ) -> int:
        """Compare what was seen and return how many keys; raises :class:`VerificationFailed` ("V2") naming keys that differ.

        ``rows_read``: rows of each input file that lie in the rewritten key range; None: all of every file.
        """


class Judge(Protocol):
    """An independent opinion on the rewrites of a bucket, heard before anything is published (verification V2)."""

    def watch(
        self, store: TableStore, task: BucketTask, inputs: Sequence[DataFileMeta], within: KeyBounds | None, pieces: int
    ) -> Witness:
        """A witness for the task's rewriting of ``inputs`` (of their keys ``within``); each input and output file is read once while it watches.

        ``pieces``: into so many tasks the bucket was cut, each of which gets a witness of its own.
        """


def files_to_bytes(files: Sequence[DataFileMeta], metadata: Mapping[bytes, bytes]) -> bytes:
    """An Arrow stream of file metadata (`ENTRY_SCHEMA`) carrying ``metadata``."""
    table = entries_to_table([ManifestEntry(0, b"", 0, 0, file) for file in files]).replace_schema_metadata(
        dict(metadata)
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def files_from_bytes(data: bytes) -> tuple[tuple[DataFileMeta, ...], Mapping[bytes, bytes]]:
    """Inverse of :func:`files_to_bytes`; raises :class:`CorruptFile` on other bytes."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        return tuple(entry.file for entry in table_to_entries(table)), table.schema.metadata or {}
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptFile("<files in transit>", f"unreadable: {error}") from error
