"""Verification V3: comparison of two snapshots by Spark SQL over the raw Parquet files, independent of Dredge's merge.

`merged_view` merges all rows of a bucket's files by key in SQL. `verify_table` compares row counts and
order-independent digests per bucket between the two snapshots, and lists differing rows.

`deep_read` lets tasks read the pages of data files for the deep check. `SparkRows` compares the rows of a DataFrame
with the expected rows, without collecting the rows on the driver.
"""

from __future__ import annotations

import io
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.format.manifest import ManifestEntry, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.actions.compact.compaction import expiry_clock
from lsm_core.maintenance.actions.undo.replaced_files import UNDO_PROPERTY
from lsm_core.maintenance.checks.outcome import DeepRead, PageProblem
from lsm_core.maintenance.checks.row_comparison import COUNT_COLUMN, require_columns
from lsm_core.maintenance.checks.stored_pages import read_pages
from lsm_core.maintenance.verification_scope import entries_to_compare
from lsm_core.maintenance.verify import BucketDifference, VerifyReport
from lsm_core.metadata import tags
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_plain_files, require_readable
from lsm_core.spark.merged_view import VERSIONS, exact_parts, merged_view
from lsm_core.spark.spark_columns import expressions, quoted, with_keys
from lsm_core.spark.spark_tasks import raise_first, run_tasks, shipped_store, slots_of, store_of, translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place: TypeAlias = tuple[bytes, int]
Facts: TypeAlias = tuple[int, ...]
"""Figures of one bucket: number of stored rows, number of merged rows, and two sums of 64-bit hashes of the rows."""

_NOTHING: Final[Facts] = (0, 0, 0, 0)
_EXAMPLES: Final = 20
_PLACE: Final = ("partition", "bucket")
_VERSIONS: Final = f"CAST(sum({VERSIONS}) AS BIGINT)"


@dataclass(frozen=True)
class SparkVerifyReport(VerifyReport):
    """Report of a comparison on Spark; ``examples`` are differing rows as text, at most 20 per snapshot."""

    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Side:
    """Files of the changed buckets in one of the two compared snapshots.

    Attributes:
        snapshot_id: Id of the snapshot.
        files: Manifest entries of the files by (partition, bucket).
    """

    snapshot_id: int
    files: dict[Place, list[ManifestEntry]]

    def stored_rows(self, places: Iterable[Place]) -> int:
        return sum(entry.file.row_count for place in places for entry in self.files.get(place, ()))


@dataclass(frozen=True)
class _Compared:
    """Unit of comparison: one bucket, or all buckets of a partition or table between which rows may have moved.

    Attributes:
        name: Name of the unit in the report.
        numbers: Indexes of the unit's buckets among all changed buckets.
        places: (partition, bucket) of each bucket of the unit.
    """

    name: str
    numbers: tuple[int, ...]
    places: tuple[Place, ...]

    def total(self, facts: Mapping[int, Facts]) -> Facts:
        """Return the sums of row counts and hashes of one snapshot over all buckets of the compared unit.

        Args:
            facts: row counts and hashes (`Facts`) of the snapshot, by index of the bucket.
        """
        known = [facts[number] for number in self.numbers if number in facts]
        return tuple(map(sum, zip(*known, strict=True))) if known else _NOTHING

    def same(self, sides: tuple[_Side, _Side], facts: Sequence[Mapping[int, Facts]]) -> bool:
        """Return whether both snapshots have equal rows, and as many stored rows as the metadata records.

        Args:
            sides: Files of the two snapshots.
            facts: For each snapshot, row counts and hashes (`Facts`) by index of the bucket.
        """
        first, second = (self.total(side) for side in facts)
        complete = all(f[0] == side.stored_rows(self.places) for f, side in zip((first, second), sides, strict=True))
        return complete and first[1:] == second[1:]

    def difference(self, facts: Sequence[Mapping[int, Facts]]) -> BucketDifference:
        """Return the difference between the two snapshots for the report.

        Args:
            facts: For each snapshot, row counts and hashes (`Facts`) by index of the bucket.
        """
        first, second = (self.total(side) for side in facts)
        return BucketDifference(
            self.name, first[1], second[1], f"{first[2]:x}/{first[3]:x}", f"{second[2]:x}/{second[3]:x}"
        )


def verify_table(
    spark: SparkSession,
    table: Any,
    a: int,
    b: int,
    *,
    places: Collection[Place] | None = None,
    appended: bool = False,
) -> SparkVerifyReport:
    """Compare the rows of a table at two snapshots; only buckets whose files differ are read.

    The comparison is for a compaction or a rescale, which must not change rows: ``b`` is its snapshot, and ``a`` the
    previous snapshot. The report's ``ok`` is False if a bucket differs.

    A bucket differs if the snapshots differ in the number or the digest (two sums of 64-bit hashes) of its merged rows.
    A bucket also differs if the number of rows in its files is not the number in the metadata. A partition whose number
    of buckets changed is compared as a whole.

    Only `Table.verify` checks that the rows are in the buckets of their keys, because the bucket function is Dredge's.
    Only counts and examples reach the driver.

    In a first-row table the rows on level 0 are compared too, although readers see these rows only after compaction.
    Rows whose record-level lifetime was over at the time of the compaction are not compared.

    Args:
        spark: The session that compares.
        table: A `Table`, or the name of a table ("db.t").
        a: The earlier snapshot.
        b: The later snapshot.
        places: Partitions and buckets to compare; None for all.
        appended: Whether rows appended between the two snapshots are added to the rows of ``a``, because ``b`` has
            them.

    Raises:
        SnapshotNotFound: A snapshot does not exist or has expired.
        UnsupportedFeature: Spark SQL cannot compute the merged value of a column.
        CorruptFile: A file is missing.
        SparkFailed: A file cannot be read.
    """
    began = time.monotonic()
    store = store_of(table, spark)
    require_readable(store)
    pair = [tags.find_snapshot(store, number) for number in (a, b)]
    live_a, live_b = entries_to_compare(store, a, b, places, appended=appended)
    for snapshot, live in zip(pair, (live_a, live_b), strict=True):
        require_plain_files(store, snapshot, live)
    values = _value_parts(store)
    total = _places(pa.concat_tables([live_a.select(list(_PLACE)), live_b.select(list(_PLACE))])).num_rows
    touched = _touched(live_a, live_b)
    sides = (_Side(a, _files_of(live_a, touched)), _Side(b, _files_of(live_b, touched)))
    changed = sorted({*sides[0].files, *sides[1].files})
    differences: list[BucketDifference] = []
    examples: tuple[str, ...] = ()
    rows = [0, 0]
    if changed:
        with translate_errors(f"verifying table {store.name}"):
            clock = expiry_clock(pair[1])
            files = [
                [(at, file) for at, place in enumerate(changed) for file in _by_age(side.files.get(place, []))]
                for side in sides
            ]
            # merged rows of each side; None without files
            frames = [merged_view(spark, store, side, clock) if side else None for side in files]
            facts = _facts(frames, values)
            rows = [sum(int(fact[1]) for fact in side_facts.values()) for side_facts in facts]
            wrong = [place for place in _compared(store, changed, live_a, live_b) if not place.same(sides, facts)]
            is_undo = UNDO_PROPERTY in (pair[1].properties or {})
            for side, names in _merged_alone(store, sides, is_undo) if wrong else ():
                others = list(facts)
                (others[side],) = _facts([merged_view(spark, store, files[side], clock, names)], values)
                wrong = [place for place in wrong if not place.same(sides, others)]
            differences = [place.difference(facts) for place in wrong]
            examples = _examples(store, sides, frames, [number for place in wrong for number in place.numbers])
    return SparkVerifyReport(
        table=store.name,
        snapshot_a=a,
        snapshot_b=b,
        ok=not differences,
        buckets=total,
        by_reference=total - len(changed),
        by_digest=len(changed),
        rows_a=rows[0],
        rows_b=rows[1],
        differences=tuple(differences),
        level="V3",
        seconds=time.monotonic() - began,
        examples=examples,
    )


def _merged_alone(store: TableStore, sides: tuple[_Side, _Side], is_undo: bool) -> Iterator[tuple[int, set[str]]]:
    """Yield the choices of files whose rows a compaction with lookups merged even as the only version of their key.

    Readers return such a version as it is stored. Rewrites with a file of level 0 merge the only versions of all their
    keys, other rewrites merge none; the metadata does not show which files were rewritten together.

    Args:
        store: The table.
        sides: Files of the two snapshots.
        is_undo: Whether the second snapshot undoes the compaction of the first one.

    Yields:
        Number of the snapshot without the compaction (0, or 1 for an undo), and names of files that only this one has.
    """
    if not store.options.needs_lookup or store.options.merge_engine not in {"partial-update", "aggregation"}:
        return
    levels = [{e.file.file_name: e.file.level for some in side.files.values() for e in some} for side in sides]
    side = int(is_undo)
    replaced = set(levels[side].keys() - levels[1 - side].keys())
    newest = {name for name in replaced if levels[side][name] == 0}
    yield from ((side, names) for names in (replaced, newest) if newest)


def _places(entries: pa.Table) -> pa.Table:
    return entries.group_by(list(_PLACE)).aggregate([])


def _touched(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the (partition, bucket) pairs whose files or levels differ.

    Arrow column operations find the pairs, because a table may have very many files.
    """
    names = [
        pc.binary_join_element_wise(side.column("file_name"), side.column("level").cast(pa.string()), "/")
        for side in (first, second)
    ]
    only_one = first.filter(pc.invert(pc.is_in(names[0], names[1])))
    only_two = second.filter(pc.invert(pc.is_in(names[1], names[0])))
    return _places(pa.concat_tables([only_one.select(list(_PLACE)), only_two.select(list(_PLACE))]))


def _files_of(entries: pa.Table, touched: pa.Table) -> dict[Place, list[ManifestEntry]]:
    """Return the manifest entries of the touched buckets, by partition and bucket."""
    numbered = entries.select(list(_PLACE)).append_column("row", pa.array(range(entries.num_rows), pa.int64()))
    rows = numbered.join(touched, list(_PLACE), join_type="left semi").column("row")
    files: dict[Place, list[ManifestEntry]] = {}
    for entry in table_to_entries(entries.take(rows)):
        files.setdefault((entry.partition, entry.bucket), []).append(entry)
    return files


def _value_parts(store: TableStore) -> list[str]:
    """Return the SQL expressions over a row's columns that are hashed together as the digest of the row.

    Raises UnsupportedFeature if Spark cannot compare a column.
    """
    raw, parts = store.options.raw, []
    for field in store.schema.fields:
        collects = "collect" in {
            raw.get(f"fields.{field.name}.aggregate-function"),
            raw.get("fields.default-aggregate-function"),
        }
        # the order of a set is not defined
        unordered = collects and raw.get(f"fields.{field.name}.distinct", "").strip().lower() == "true"
        parts += exact_parts(field, unordered, store.name)
    return parts


def _by_age(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Return files of level 0, oldest first: by max sequence number, descending min, descending creation time, name."""
    return sorted(
        entries,
        key=lambda e: (
            e.file.max_sequence_number,
            -e.file.min_sequence_number,
            -(e.file.creation_time_ms or 0),
            e.file.file_name,
        ),
    )


def _facts(frames: Sequence[DataFrame | None], parts: Sequence[str]) -> list[dict[int, Facts]]:
    """Return row counts and hashes (`Facts`) by index of the bucket, for each of the two snapshots.

    One query computes both sides, because planning and starting a job costs more than reading most buckets.

    Args:
        frames: Merged rows of each snapshot; None without files.
        parts: SQL expressions that are hashed together as the digest of a row.
    """
    hashes = [f"xxhash64({seed}, {', '.join(parts)})" for seed in (1, 2)]
    union: DataFrame | None = None
    for side, frame in enumerate(frames):
        if frame is not None:
            columns = [f"{side} AS side", "__dredge_bucket AS bucket", VERSIONS, "__dredge_row AS present"]
            columns_of_side = frame.selectExpr(
                *columns, *(f"{value} AS h{number}" for number, value in enumerate(hashes))
            )
            union = columns_of_side if union is None else union.unionAll(columns_of_side)
    if union is None:
        return [{} for _ in frames]
    # halves, whose sums no bucket overflows
    halves = [half.format(name) for name in ("h0", "h1") for half in ("shiftright({}, 32)", "{} & 4294967295")]
    sums = [f"sum(IF(present, {half}, 0))" for half in halves]
    rows = (
        union.groupBy("side", "bucket")
        .agg(*expressions([_VERSIONS, "count_if(present)", *sums]))
        .toDF("side", "bucket", "raw", "rows", "high one", "low one", "high two", "low two")
        .toArrow()
    )
    values = [column.to_numpy(zero_copy_only=False) for column in rows.columns]
    facts: list[dict[int, Facts]] = [{} for _ in frames]
    for i in range(rows.num_rows):  # one per side and bucket
        numbers = [int(value[i]) for value in values]
        columns_of_side, two = ((numbers[at] << 32) + numbers[at + 1] for at in (4, 6))
        facts[numbers[0]][numbers[1]] = (numbers[2], numbers[3], columns_of_side, two)
    return facts


def _compared(store: TableStore, changed: Sequence[Place], first: pa.Table, second: pa.Table) -> list[_Compared]:
    """Return the units of comparison for the changed buckets: each bucket alone, unless rows may move between buckets.

    All buckets of a partition are compared together if the number of buckets changed or the buckets are dynamic. All
    buckets of a table are compared together if its keys may move between partitions.
    """
    moving = {BucketMode.DYNAMIC: "buckets", BucketMode.CROSS_PARTITION: "partitions"}.get(store.bucket_mode, "")
    counts = [_bucket_counts(side) for side in (first, second)]
    rescaled = {p for p in counts[0].keys() & counts[1].keys() if counts[0][p] != counts[1][p]}
    together: dict[tuple[bytes, int | None], list[int]] = {}
    for number, (partition, bucket) in enumerate(changed):
        scope = b"" if moving == "partitions" else partition
        together.setdefault((scope, None if moving or partition in rescaled else bucket), []).append(number)
    compared = []
    for (partition, single), numbers in together.items():
        if moving and len(numbers) == 1:
            partition, single = changed[numbers[0]]
        folder = (
            "" if moving == "partitions" and single is None else partition_text(store.schema, partition, store.options)
        )
        if single is None and moving:
            name = f"{folder}, {len(numbers)} {moving}".removeprefix(", ")
        elif single is None:
            buckets = " and ".join("/".join(map(str, side[partition])) for side in counts)
            name = f"{folder}, {buckets} buckets".removeprefix(", ")
        else:
            name = f"{folder}/bucket-{single}".removeprefix("/")
        compared.append(_Compared(name, tuple(numbers), tuple(changed[number] for number in numbers)))
    return compared


def _bucket_counts(entries: pa.Table) -> dict[bytes, list[int]]:
    """Return the recorded bucket counts by partition (several after an unfinished rescale)."""
    pairs = entries.group_by(["partition", "total_buckets"]).aggregate([]).sort_by("total_buckets")
    totals: dict[bytes, list[int]] = {}
    for partition, total in zip(*(pairs.column(name).to_pylist() for name in pairs.column_names), strict=True):
        totals.setdefault(partition, []).append(total)
    return totals


def _examples(
    store: TableStore, sides: tuple[_Side, _Side], frames: Sequence[DataFrame | None], wrong: Sequence[int]
) -> tuple[str, ...]:
    """Return some of the rows that only one of the two snapshots has, as text with the snapshot id.

    Args:
        store: The table.
        sides: Files of the two snapshots.
        frames: Merged rows of each snapshot; None without files.
        wrong: Indexes of the buckets that differ.
    """
    if not wrong:
        return ()
    chosen = ", ".join(str(number) for number in wrong)
    columns = [quoted(name) for name in store.schema.field_names]
    shown = [
        None if frame is None else frame.where(f"__dredge_row AND __dredge_bucket IN ({chosen})").select(*columns)
        for frame in frames
    ]
    examples: list[str] = []
    for here, other_side, side in ((shown[0], shown[1], sides[0]), (shown[1], shown[0], sides[1])):
        if here is None:
            continue
        only = here if other_side is None else here.exceptAll(other_side)
        examples += [f"only in snapshot {side.snapshot_id}: {row}" for row in only.limit(_EXAMPLES).collect()]
    return tuple(examples)


# -- deep check --------------------------------------------------------------------------------------------------------


_TASKS_PER_SLOT: Final = 4
_PROBLEMS: Final = pa.schema([("file_name", pa.string()), ("reason", pa.string()), ("damaged", pa.bool_())])


def deep_read(spark: SparkSession, limit: int | None = None) -> DeepRead:
    """Return the settings of a deep check whose data files are read by tasks of Spark.

    Args:
        spark: the session.
        limit: stored bytes after which the check stops; the next check continues. None for all bytes.

    Returns:
        The settings, which the caller passes to the check as `CheckLimits.deep`.
    """
    return DeepRead.distributed(partial(_read_on_spark, spark), limit)


def _read_on_spark(spark: SparkSession, store: TableStore, files: pa.Table) -> list[PageProblem]:
    """Read all pages of data files in Spark tasks, the largest files first, and return the problems found.

    Raises SparkFailed and the errors of tasks.
    """
    count = min(files.num_rows, _TASKS_PER_SLOT * slots_of(spark))
    ordered = files.sort_by([("file_size", "descending")])
    payloads = [_packed(ordered.take(arrow_array(np.arange(task, files.num_rows, count)))) for task in range(count)]
    outcomes = run_tasks(spark, f"reading pages of table {store.name}", payloads, partial(_read_task, store.to_json()))
    raise_first(outcomes)
    return [PageProblem(**value) for outcome in outcomes for value in _unpacked(outcome.answer).to_pylist()]


def _packed(files: pa.Table) -> bytes:
    output = io.BytesIO()
    with pa.ipc.new_stream(output, files.schema) as writer:
        writer.write_table(files)
    return output.getvalue()


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _read_task(store_text: str, payload: bytes) -> bytes:
    problems = read_pages(shipped_store(store_text), _unpacked(payload))
    return _packed(pa.Table.from_pylist([asdict(problem) for problem in problems], schema=_PROBLEMS))


# -- rows of a table in a frame ----------------------------------------------------------------------------------------


_TITLE: Final = "comparing rows of table {}"


class SparkRows:
    """Rows in a DataFrame (implements `ReadRows`); only rows of sampled keys and repeated keys reach the driver.

    Args:
        store: the table from which the rows were read.
        frame: the DataFrame with the rows.
    """

    nan_is_null: Collection[str] = ()

    def __init__(self, store: TableStore, frame: DataFrame) -> None:
        self._store, self._frame = store, frame

    def with_keys(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return ``columns`` of the frame's rows whose primary key is in ``keys``, in the types of the table.

        Raises InvalidData for a column that the frame lacks, SparkFailed.
        """
        require_columns(self._store, self._frame.columns, columns)
        names = list(self._store.schema.primary_keys)
        with translate_errors(_TITLE.format(self._store.name)):
            session: Any = self._frame.sparkSession
            key_frame = session.createDataFrame(keys).hint("broadcast")
            rows = with_keys(self._frame, key_frame, names).select(*map(quoted, columns)).toArrow()
            return self._as_table_types(rows)

    def repeated_keys(self, limit: int) -> tuple[int, int, pa.Table]:
        """Find the primary keys that several rows of the frame have.

        Args:
            limit: Number of keys to return.

        Returns:
            Number of rows, number of keys that several rows have, and a table of up to ``limit`` such keys. The table's
                column `(rows)` is the number of rows per key.

        Raises:
            InvalidData: The frame lacks a key column.
            SparkFailed: The query failed.
        """
        names = list(self._store.schema.primary_keys)
        require_columns(self._store, self._frame.columns, names)
        with translate_errors(_TITLE.format(self._store.name)):
            counted = self._frame.groupBy(*map(quoted, names)).count().withColumnRenamed("count", COUNT_COLUMN)
            column = quoted(COUNT_COLUMN)
            sums = counted.selectExpr(f"coalesce(sum({column}), 0)", f"count_if({column} > 1)").toArrow()
            rows, repeated = (int(value[0].as_py()) for value in sums.columns)
            shown = counted.where(f"{column} > 1").limit(limit if repeated else 0)
            return rows, repeated, self._as_table_types(shown.toArrow())

    def _as_table_types(self, rows: pa.Table) -> pa.Table:
        """Return rows with the Arrow types of the table's columns."""
        own = self._store.schema.arrow_schema
        fields = [own.field(name) if name in own.names else rows.schema.field(name) for name in rows.column_names]
        return rows.cast(pa.schema([field.with_nullable(nullable=True) for field in fields]))
