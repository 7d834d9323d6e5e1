"""Running totals per carrier, computed by a stream job from the lookup changelog of `carrier_daily` alone.

One file holds the totals and the id of the next snapshot to read, so that each change counts exactly once, even if a
run is killed. The consumer that the job registers in the table only keeps unread snapshots from expiring.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from dredge.assets.demo.tables import CARRIER_DAILY, DATABASE
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import REPLAY_VARIABLE, WarehouseResource
from lsm_core import Catalog, Table
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import consumers, snapshots

NAME: Final = "carrier_totals"
"""Name of the job, its pool and its consumer."""
SENSOR: Final = "carrier_changes"
CHECK: Final = "totals_equal_table"
TABLE: Final = CARRIER_DAILY.identifier
_SUMMED: Final = ("flights", "cancelled", "arrived", "arr_delay_total", "distance_km")
_COLUMNS: Final = ("carrier", *_SUMMED)
SCHEMA: Final = pa.schema(
    [
        pa.field("carrier", pa.string(), nullable=False),
        *[pa.field(name, pa.int64()) for name in ("days", "flights", "cancelled", "arrived", "arr_delay_total")],
        pa.field("distance_km", pa.decimal128(38, 6)),
    ]
)
"""One row per carrier, sorted; ``days``: number of the carrier's rows in the table; delays in minutes."""
_RETRACTIONS: Final = pa.array(["-U", "-D"])
_FOLLOWING: Final = b"following"


@dataclass(frozen=True)
class Progress:
    """Running totals over all snapshots before the next snapshot to read.

    Attributes:
        totals: totals by carrier, SCHEMA.
        following: id of the next snapshot to read, or None before the first read.
    """

    totals: pa.Table = field(default_factory=SCHEMA.empty_table)
    following: int | None = None


def add_changes(totals: pa.Table, rows: pa.Table, kinds: pa.Array) -> pa.Table:
    """Return the totals (SCHEMA) after changed rows: `+I` and `+U` add their figures, `-U` and `-D` subtract them.

    Args:
        totals: totals before, SCHEMA.
        rows: changed rows of the table.
        kinds: kind of each row.
    """
    retracted = pc.is_in(kinds, _RETRACTIONS)
    figures = [pc.fill_null(rows[name].combine_chunks(), pa.scalar(0, SCHEMA.field(name).type)) for name in _SUMMED]
    days = pa.array([1], pa.int64()).take(pa.nulls(rows.num_rows, pa.int64()).fill_null(0))
    signed = [pc.if_else(retracted, pc.negate(column), column) for column in (days, *figures)]
    changes = pa.table([rows["carrier"], *signed], SCHEMA)
    sums = (
        pa.concat_tables([totals, changes]).group_by("carrier").aggregate([(name, "sum") for name in SCHEMA.names[1:]])
    )
    sums = sums.select(["carrier", *[f"{name}_sum" for name in SCHEMA.names[1:]]]).rename_columns(SCHEMA.names)
    return sums.filter(pc.not_equal(sums["days"], 0)).sort_by("carrier").cast(SCHEMA).combine_chunks()


def totals_of(rows: pa.Table) -> pa.Table:
    """Return the totals by carrier (SCHEMA) of rows of `carrier_daily`, each counted once."""
    return add_changes(SCHEMA.empty_table(), rows, pa.array(["+I"]).take(pa.nulls(len(rows), pa.int64()).fill_null(0)))


def progress_path(warehouse: WarehouseResource) -> Path:
    """Return the file of the totals, next to the replay's state, in the folder that every demo empties.

    Raises:
        InvalidOption: the warehouse has no replay state.
    """
    if not warehouse.replay_state:
        raise InvalidOption(REPLAY_VARIABLE, "", "a file: the demo's running totals are kept beside it")
    return Path(warehouse.replay_state).parent / f"{NAME}.arrow"


def read_progress(path: Path) -> Progress:
    """Return the progress of the last run.

    Returns:
        The totals and the next snapshot; without a file, nothing was read yet.

    Raises:
        CorruptFile: the file is damaged.
    """
    try:
        stored = pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
        totals = stored.replace_schema_metadata(None)
        following = int((stored.schema.metadata or {})[_FOLLOWING])
    except FileNotFoundError:
        return Progress()
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CorruptFile(str(path), f"the running totals cannot be read: {error}") from error
    if totals.schema != SCHEMA:
        raise CorruptFile(str(path), f"running totals with other columns: {totals.schema.names}")
    return Progress(totals, following)


def write_progress(path: Path, progress: Progress) -> None:
    """Replace the file atomically, so that the totals always match the next snapshot to read."""
    table = progress.totals.replace_schema_metadata({_FOLLOWING: str(progress.following)})
    draft = path.with_suffix(f".{os.getpid()}")
    with pa.ipc.new_file(str(draft), table.schema) as sink:
        sink.write_table(table)
    draft.replace(path)


def follow(table: Table, path: Path) -> tuple[Progress, Mapping[str, int]]:
    """Read the changes that compactions wrote since the last run, and add them to the stored totals.

    Without a file, reading begins at the table's first snapshot or, if that expired, with the newest compacted
    version.

    Args:
        table: table whose changes are read.
        path: file of the progress.

    Returns:
        The new progress, and the number of changes by row kind.

    Raises:
        SnapshotNotFound: the next snapshot has expired.
        CorruptFile: a file is damaged.
    """
    progress, store = read_progress(path), table.store
    if progress.following is None:
        table.forget_consumer(NAME)  # its position belongs to other totals
        first = snapshots.earliest_id(store)
        scan = table.new_stream_scan(NAME, 1 if first == 1 else None, columns=_COLUMNS)
    else:
        scan = table.new_stream_scan(NAME, columns=_COLUMNS)
        # The consumer is written last: if it is ahead of the file, the snapshots between them have no changes.
        scan.restore(max(progress.following, consumers.read_consumer(store, NAME) or 0))
    totals, change_counts = progress.totals, Counter[str]()
    with closing(scan):
        while (batch := scan.next()) is not None:
            totals = add_changes(totals, batch.table, batch.row_kinds)
            change_counts.update(
                {item["values"]: item["counts"] for item in batch.row_kinds.value_counts().to_pylist()}
            )
            if batch.last:
                write_progress(path, Progress(totals, batch.snapshot_id + 1))
        reached = Progress(totals, scan.checkpoint())
    if reached.following is not None:
        write_progress(path, reached)
    return reached, change_counts


def newest_change(table: Table, following: int | None) -> int | None:
    """Return the id of the newest snapshot in which a compaction wrote changes.

    Args:
        table: table to search.
        following: id of the first snapshot to search, or None for the earliest.

    Returns:
        The id, or None without such a snapshot.
    """
    store = table.store
    latest, first = snapshots.latest_id(store) or 0, snapshots.earliest_id(store) or 1
    for snapshot_id in range(latest, max(following or 1, first) - 1, -1):
        snapshot = snapshots.try_read(store, snapshot_id)
        if snapshot is not None and snapshot.commit_kind is CommitKind.COMPACT and snapshot.changelog_manifest_list:
            return snapshot_id
    return None


def compacted_totals(catalog: Catalog, following: int | None) -> pa.Table:
    """Return the totals (SCHEMA) that the stream must have reached, computed from the rows of `carrier_daily`.

    Only the top level is read: the changelog contains only compacted rows, and each compaction of this table is full.

    Args:
        catalog: catalog of the warehouse.
        following: id of the next snapshot that the stream reads, or None if it has read nothing yet.
    """
    if following is None:
        return SCHEMA.empty_table()
    latest = snapshots.latest_id(catalog.table(TABLE).store) or 0
    has_unread = newest_change(catalog.table(TABLE), following) is not None
    compacted = catalog.table(f"{TABLE}$ro")
    return totals_of(compacted.to_arrow(columns=_COLUMNS, snapshot_id=following - 1 if has_unread else latest))


def totals_key(warehouse_path: str) -> dg.AssetKey:
    """Return the key of the stream's asset, which is the key of the data asset of `carrier_daily` with ``_totals``."""
    *parents, table_name = names.WarehouseNames.of(warehouse_path).data_key(TABLE).path
    return dg.AssetKey([*parents, f"{table_name}_totals"])


def stream_definitions(warehouse_path: str, settings: Settings) -> dg.Definitions:
    """Return the asset, check, job and sensor of the stream that adds up the changes of `carrier_daily`."""
    key = totals_key(warehouse_path)

    @dg.asset(
        key=key,
        deps=[names.WarehouseNames.of(warehouse_path).layout_key(TABLE)],
        description=f"Running totals per carrier: the sum of the changes that compactions of {TABLE} write "
        "(`changelog-producer = lookup`); the table itself is never read.",
        group_name=DATABASE,
        owners=[names.OWNER],
        kinds={"dredge", "arrow"},
        pool=NAME,
    )
    @resolve_annotations
    def totals(
        context: dg.AssetExecutionContext,
        warehouse: WarehouseResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        progress, change_counts = follow(warehouse.table(TABLE), progress_path(warehouse))
        changes = ", ".join(f"{change_counts[kind]:,} {kind}" for kind in sorted(change_counts)) or "no change"
        context.log.info("read %s; snapshot %s comes next", changes, progress.following)
        return dg.MaterializeResult(
            metadata={
                "totals": dg.MetadataValue.md(_markdown(progress.totals)),
                "flights": dg.MetadataValue.int(_flights(progress.totals)),
                "carriers": dg.MetadataValue.int(progress.totals.num_rows),
                "next snapshot": dg.MetadataValue.int(progress.following or 0),
                **{
                    f"changes {kind}": dg.MetadataValue.int(change_counts.get(kind, 0))
                    for kind in ("+I", "-U", "+U", "-D")
                },
            }
        )

    @dg.asset_check(
        asset=key,
        name=CHECK,
        description="The totals of the stream equal those of the compacted table; files of level 0 are added after "
        "their compaction.",
    )
    @resolve_annotations
    def check(warehouse: WarehouseResource) -> dg.AssetCheckResult:
        progress, table = read_progress(progress_path(warehouse)), warehouse.table(TABLE)
        reference = compacted_totals(warehouse.catalog(), progress.following)
        waiting = sum(bucket.level0_files for bucket in table.health())
        equal = progress.totals.equals(reference)
        verdict = "equal to" if equal else f"NOT those of ({_flights(reference):,} flights)"
        summary = f"{progress.totals.num_rows} carriers, {_flights(progress.totals):,} flights"
        return dg.AssetCheckResult(
            passed=equal,
            description=f"{summary}: {verdict} the compacted table; {waiting} level-0 files wait",
            metadata={
                "totals of the stream": dg.MetadataValue.md(_markdown(progress.totals)),
                "totals of the table": dg.MetadataValue.md(_markdown(reference)),
                "flights": dg.MetadataValue.int(_flights(progress.totals)),
                "level-0 files that wait": dg.MetadataValue.int(waiting),
            },
        )

    job = dg.define_asset_job(
        NAME,
        selection=dg.AssetSelection.assets(key),
        description=f"Read the changes of {TABLE} since the last run, add them up, and verify the totals.",
        tags={names.TAG_ACTION: "stream"},
        executor_def=dg.in_process_executor,
    )

    @dg.sensor(
        name=SENSOR,
        job=job,
        minimum_interval_seconds=settings.sensor_seconds,
        description=f"Starts the stream job when a compaction of {TABLE} has written changes that it has not read.",
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def detect_changes(warehouse: WarehouseResource) -> dg.RunRequest | dg.SkipReason:
        replay = warehouse.replay_text()
        if replay is not None:
            return dg.SkipReason(replay)
        following = read_progress(progress_path(warehouse)).following
        newest = newest_change(warehouse.table(TABLE), following)
        if newest is None:
            return dg.SkipReason(f"{TABLE}: no compaction wrote changes since snapshot {(following or 1) - 1}")
        return dg.RunRequest(run_key=f"{NAME}@{newest}")

    return dg.Definitions(assets=[totals], asset_checks=[check], jobs=[job], sensors=[detect_changes])


def _flights(totals: pa.Table) -> int:
    return pc.sum(totals["flights"]).as_py() or 0


def _markdown(totals: pa.Table) -> str:
    """Return a Markdown table with a row for each of the 16 carriers."""
    lines = [f"| {' | '.join(SCHEMA.names)} |", f"|---|{'--:|' * (len(SCHEMA.names) - 1)}"]
    return "\n".join(lines + [f"| {' | '.join(map(str, row.values()))} |" for row in totals.to_pylist()])
