"""Running totals of each carrier, kept by a small stream job from the lookup changelog of `carrier_daily` and from nothing else.

The job's one file holds the totals together with the snapshot that comes next, so that no change counts twice or never, whenever
a run is killed. The consumer that it registers in the table only keeps from expiring what it has not read yet.
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

from assets.demo.tables import CARRIER_DAILY, DATABASE
from lsm_core import Catalog, Table
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import consumers, snapshots
from orchestration import names
from orchestration.quirks import typed
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import REPLAY_VARIABLE, WarehouseResource

NAME: Final = "carrier_totals"
"""Of the job, of its pool and of its consumer."""
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
"""A row a carrier, sorted; ``days``: how many rows of the table it has; delays in minutes."""
_TAKEN_BACK: Final = pa.array(["-U", "-D"])
_FOLLOWING: Final = b"following"


@dataclass(frozen=True)
class Progress:
    """The totals after every snapshot before ``following`` (None: nothing was read yet)."""

    totals: pa.Table = field(default_factory=SCHEMA.empty_table)
    following: int | None = None


def with_changes(totals: pa.Table, rows: pa.Table, kinds: pa.Array) -> pa.Table:
    """The totals (SCHEMA) after changed rows of the table: `+I` and `+U` add their figures, `-U` and `-D` take theirs away."""
    taken_back = pc.is_in(kinds, _TAKEN_BACK)
    figures = [pc.fill_null(rows[name].combine_chunks(), pa.scalar(0, SCHEMA.field(name).type)) for name in _SUMMED]
    days = pa.array([1], pa.int64()).take(pa.nulls(rows.num_rows, pa.int64()).fill_null(0))
    signed = [pc.if_else(taken_back, pc.negate(column), column) for column in (days, *figures)]
    changed = pa.table([rows["carrier"], *signed], SCHEMA)
    found = (
        pa.concat_tables([totals, changed]).group_by("carrier").aggregate([(name, "sum") for name in SCHEMA.names[1:]])
    )
    found = found.select(["carrier", *[f"{name}_sum" for name in SCHEMA.names[1:]]]).rename_columns(SCHEMA.names)
    return found.filter(pc.not_equal(found["days"], 0)).sort_by("carrier").cast(SCHEMA).combine_chunks()


def totals_of(rows: pa.Table) -> pa.Table:
    """The totals (SCHEMA) of rows of the table itself."""
    return with_changes(SCHEMA.empty_table(), rows, pa.array(["+I"]).take(pa.nulls(len(rows), pa.int64()).fill_null(0)))


def progress_path(warehouse: WarehouseResource) -> Path:
    """The file of the totals, beside the replay's state: in the folder that every demo empties. Raises InvalidOption."""
    if not warehouse.replay_state:
        raise InvalidOption(REPLAY_VARIABLE, "", "a file: the demo's running totals are kept beside it")
    return Path(warehouse.replay_state).parent / f"{NAME}.arrow"


def read_progress(path: Path) -> Progress:
    """What the last run kept; a file that is not there says that nothing was read. Raises CorruptFile."""
    try:
        kept = pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
        totals = kept.replace_schema_metadata(None)
        following = int((kept.schema.metadata or {})[_FOLLOWING])
    except FileNotFoundError:
        return Progress()
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CorruptFile(str(path), f"no running totals: {error}") from error
    if totals.schema != SCHEMA:
        raise CorruptFile(str(path), f"running totals with other columns: {totals.schema.names}")
    return Progress(totals, following)


def write_progress(path: Path, progress: Progress) -> None:
    """Replace the file at once: totals and position are never of two moments."""
    kept = progress.totals.replace_schema_metadata({_FOLLOWING: str(progress.following)})
    draft = path.with_suffix(f".{os.getpid()}")
    with pa.ipc.new_file(str(draft), kept.schema) as sink:
        sink.write_table(kept)
    draft.replace(path)


def follow(table: Table, path: Path) -> tuple[Progress, Mapping[str, int]]:
    """Read every change that compactions have told since the last run; returns the totals and the changes of each kind.

    Without a file it begins at the table's first snapshot or, where that expired, with the newest compacted version.
    Raises SnapshotNotFound when the next snapshot is gone, CorruptFile.
    """
    kept, store = read_progress(path), table.store
    if kept.following is None:
        table.forget_consumer(NAME)  # what a stream of that name has read is not in these totals
        first = snapshots.earliest_id(store)
        scan = table.new_stream_scan(NAME, 1 if first == 1 else None, columns=_COLUMNS)
    else:
        scan = table.new_stream_scan(NAME, columns=_COLUMNS)
        # The consumer is written last: where it is ahead of the file, the snapshots between them told no change.
        scan.restore(max(kept.following, consumers.read_consumer(store, NAME) or 0))
    totals, told = kept.totals, Counter[str]()
    with closing(scan):
        while (batch := scan.next()) is not None:
            totals = with_changes(totals, batch.table, batch.row_kinds)
            told.update({item["values"]: item["counts"] for item in batch.row_kinds.value_counts().to_pylist()})
            if batch.last:
                write_progress(path, Progress(totals, batch.snapshot_id + 1))
        reached = Progress(totals, scan.checkpoint())
    if reached.following is not None:
        write_progress(path, reached)
    return reached, told


def told_since(table: Table, following: int | None) -> int | None:
    """The newest snapshot from ``following`` on in which a compaction tells of changes; None: there is nothing to read."""
    store = table.store
    latest, first = snapshots.latest_id(store) or 0, snapshots.earliest_id(store) or 1
    for number in range(latest, max(following or 1, first) - 1, -1):
        snapshot = snapshots.try_read(store, number)
        if snapshot is not None and snapshot.commit_kind is CommitKind.COMPACT and snapshot.changelog_manifest_list:
            return number
    return None


def compacted_totals(catalog: Catalog, following: int | None) -> pa.Table:
    """The totals of what compactions have told before snapshot ``following``, read from the table itself: its top level.

    Every compaction of this table is a full one, so the top level is the compacted table; level 0 is what was not told yet.
    """
    if following is None:
        return SCHEMA.empty_table()
    latest = snapshots.latest_id(catalog.table(TABLE).store) or 0
    waits = told_since(catalog.table(TABLE), following) is not None
    compacted = catalog.table(f"{TABLE}$ro")
    return totals_of(compacted.to_arrow(columns=_COLUMNS, snapshot_id=following - 1 if waits else latest))


def totals_key(warehouse_path: str) -> dg.AssetKey:
    """Key of the asset: beside the table whose changes it reads."""
    *rest, table = names.data_key(warehouse_path, TABLE).path
    return dg.AssetKey([*rest, f"{table}_totals"])


def stream_definitions(warehouse_path: str, settings: Settings) -> dg.Definitions:
    """Return the asset, the check, the job and the sensor of the stream."""
    key = totals_key(warehouse_path)

    @dg.asset(
        key=key,
        deps=[names.layout_key(warehouse_path, TABLE)],
        description=f"Running totals of each carrier: a stream of the changes that compactions of {TABLE} tell "
        "(`changelog-producer = lookup`), added up; the table itself is never read.",
        group_name=DATABASE,
        owners=[names.OWNER],
        kinds={"dredge", "arrow"},
        pool=NAME,
    )
    @typed
    def totals(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        found, told = follow(warehouse.table(TABLE), progress_path(warehouse))
        changes = ", ".join(f"{told[kind]:,} {kind}" for kind in sorted(told)) or "no change"
        context.log.info("read %s; snapshot %s comes next", changes, found.following)
        return dg.MaterializeResult(
            metadata={
                "totals": dg.MetadataValue.md(_markdown(found.totals)),
                "flights": dg.MetadataValue.int(_flights(found.totals)),
                "carriers": dg.MetadataValue.int(found.totals.num_rows),
                "next snapshot": dg.MetadataValue.int(found.following or 0),
                **{f"changes {kind}": dg.MetadataValue.int(told.get(kind, 0)) for kind in ("+I", "-U", "+U", "-D")},
            }
        )

    @dg.asset_check(
        asset=key,
        name=CHECK,
        description="The totals that the stream added up are those of the compacted table, read as a whole; "
        "files of level 0 wait for a compaction to tell of them.",
    )
    @typed
    def check(warehouse: WarehouseResource) -> dg.AssetCheckResult:
        kept, table = read_progress(progress_path(warehouse)), warehouse.table(TABLE)
        right = compacted_totals(warehouse.catalog(), kept.following)
        waiting = sum(bucket.level0_files for bucket in table.health())
        equal = kept.totals.equals(right)
        said = f"{kept.totals.num_rows} carriers, {_flights(kept.totals):,} flights"
        return dg.AssetCheckResult(
            passed=equal,
            description=f"{said}: {'equal to' if equal else f'NOT those of ({_flights(right):,} flights)'} the compacted table; "
            f"{waiting} level-0 files wait",
            metadata={
                "totals of the stream": dg.MetadataValue.md(_markdown(kept.totals)),
                "totals of the table": dg.MetadataValue.md(_markdown(right)),
                "flights": dg.MetadataValue.int(_flights(kept.totals)),
                "level-0 files that wait": dg.MetadataValue.int(waiting),
            },
        )

    job = dg.define_asset_job(
        NAME,
        selection=dg.AssetSelection.assets(key),
        description=f"Read the changes of {TABLE} since the last run, add them up, hold the totals to the table.",
        tags={names.TAG_ACTION: "stream"},
        executor_def=dg.in_process_executor,
    )

    @dg.sensor(
        name=SENSOR,
        job=job,
        minimum_interval_seconds=settings.sensor_seconds,
        description=f"Starts the stream job when a compaction of {TABLE} has told changes that it has not read.",
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def changes_told(warehouse: WarehouseResource) -> dg.RunRequest | dg.SkipReason:
        replaying = warehouse.replaying()
        if replaying is not None:
            return dg.SkipReason(replaying)
        following = read_progress(progress_path(warehouse)).following
        newest = told_since(warehouse.table(TABLE), following)
        if newest is None:
            return dg.SkipReason(f"{TABLE}: no compaction told a change since snapshot {(following or 1) - 1}")
        return dg.RunRequest(run_key=f"{NAME}@{newest}")

    return dg.Definitions(assets=[totals], asset_checks=[check], jobs=[job], sensors=[changes_told])


def _flights(totals: pa.Table) -> int:
    return pc.sum(totals["flights"]).as_py() or 0


def _markdown(totals: pa.Table) -> str:
    """A row a carrier, of which there are 16."""
    lines = [f"| {' | '.join(SCHEMA.names)} |", f"|---|{'--:|' * (len(SCHEMA.names) - 1)}"]
    return "\n".join(lines + [f"| {' | '.join(map(str, row.values()))} |" for row in totals.to_pylist()])
