"""merged_view_unchanged: V3, blocking: the snapshot that maintenance published says what the one before it said."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

import dagster as dg

from checks.definition import failed
from lsm_core.errors import CorruptFile, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import Proof, VerifyReport, proof_of, rows_given_buckets, undone_by, verify_snapshots
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import newest_comparison
from orchestration.metadata import plain_cell
from orchestration.ops.kept_for_undo import KeptFiles, kept_for_undo
from orchestration.ops.layout_ops import bucket_text, judge_undo
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource

_LOOK_BACK: Final = 50
"""Among how many of a layout's newest materialisations a run's is looked for."""


def merged_view_result(
    instance: dg.DagsterInstance,
    warehouse: WarehouseResource,
    spark: SparkResource,
    table: str,
    partition: str | None,
    others: Sequence[str] = (),
) -> dg.AssetCheckResult:
    """Return what comparing the last published snapshot of the partition with the one before found; a failure keeps the old files tagged.

    ``others``: the partitions of a run over several, which has no ``partition`` and whose result is told of each of them.
    """
    layout, store = names.layout_key(warehouse.path, table), warehouse.store(table)
    try:
        published = published_snapshot(instance, layout, table, partition)
    except LookupError as error:
        return failed(f"what was published cannot be told: {error}", warn=True)
    evaluated = [newest_comparison(instance, layout, one) for one in (partition, *others)]
    suspects = {number: one for one in evaluated if one is not None and (number := _suspect(one)) is not None}
    result = None
    for suspect, before in sorted(suspects.items(), key=lambda item: item[0]):
        # What differed goes on to differ, whatever was published since, until somebody took it back or accepts it.
        result = _settled(store, suspect, before) or _judge(warehouse, spark, store, table, suspect)
        if not result.passed:
            return result
    if result is not None and (published is None or published <= max(suspects)):
        return result
    if published is None:
        return dg.AssetCheckResult(passed=True, description="the last run published nothing, so nothing could change")
    return _judge(warehouse, spark, store, table, published)


def _suspect(evaluation: dg.AssetCheckEvaluation) -> int | None:
    """The snapshot that was found to differ from the one before it, None where the evaluation blocks nothing or does not say which."""
    if evaluation.passed or evaluation.severity != dg.AssetCheckSeverity.ERROR:
        return None
    told = evaluation.metadata.get(names.COMPARED)
    return told.value if isinstance(told, dg.IntMetadataValue) else None


def _settled(store: TableStore, suspect: int, before: dg.AssetCheckEvaluation) -> dg.AssetCheckResult | None:
    """Return how the matter of a snapshot that differed was settled: undone, rolled back, or (a warning) accepted; None: it was not."""
    kept, said = before.metadata.get(names.KEPT_TAG), ""
    tag = kept.value if isinstance(kept, dg.TextMetadataValue) else None
    latest, now = snapshots.latest(store), snapshots.try_read(store, suspect)
    if latest is None or latest.id < suspect or (now is not None and now.commit_kind is not CommitKind.COMPACT):
        said = f"snapshot {suspect}, which differed, is gone: the table was rolled back"
    for later in snapshots.iterate(store, [number for number in snapshots.list_ids(store) if number > suspect]):
        undone = undone_by(store, later)
        if undone is not None and undone.snapshot_id == suspect and undone.whole:
            said = f"snapshot {later.id} undid snapshot {suspect}, which differed"
    here = tag is not None and tag in tags.list_names(store)
    if said:
        rest = f"; nobody needs the tag any more: dredge tag delete {shlex.quote(store.name)} {tag}" if here else ""
        return dg.AssetCheckResult(passed=True, description=f"{said}{rest}")
    if tag is None or here:
        return None
    text = f"snapshot {suspect} differs from the one before it, and somebody accepts that: the tag '{tag}', which kept the old files, was deleted"
    return failed(text, warn=True)


def _judge(
    warehouse: WarehouseResource, spark: SparkResource, store: TableStore, table: str, published: int
) -> dg.AssetCheckResult:
    """Compare a snapshot with the one before it, as its `Proof` says; where they differ a tag keeps the files of that."""
    proof = Proof(published - 1)
    try:
        proof = proof_of(store, published)
        note = f"; {proof.text()}" if proof.text() else ""
        if rows := rows_given_buckets(store, published):
            return dg.AssetCheckResult(passed=True, description=bucket_text(published, rows))
        if (undo := judge_undo(store, published)) is not None and undo.ok:
            return dg.AssetCheckResult(passed=True, description=f"{undo.text} ({undo.level})")
        found = compare(warehouse, spark, table, published, proof)
    except UnsupportedFeature as error:  # the second path cannot say it: the first one looks again, and says so
        found = _first_path(store, published, proof)
        note = f"{note}; no second path: {error}"
    except SnapshotNotFound as error:
        return failed(f"snapshots {proof.before} and {published} can no longer be compared: {error}", warn=True)
    except CorruptFile as error:
        kept = kept_for_undo(store, published)
        text = f"snapshot {published} cannot be trusted: {error}; {kept.text}"
        return dg.AssetCheckResult(passed=False, description=text, metadata=kept.metadata)
    return judge(found, note) if found.ok else judge(found, kept=kept_for_undo(store, published))


def compare(
    warehouse: WarehouseResource, spark: SparkResource, table: str, published: int, proof: Proof | None = None
) -> VerifyReport:
    """Compare the published snapshot as ``proof`` says (None: whole, with the one before it).

    A pass of a recovery with others to come is compared by what it replaced, which the first path alone can do: it tells sequence numbers.

    Raises ``SnapshotNotFound``, ``CorruptFile``, ``SparkFailed``, ``UnsupportedFeature`` (Spark SQL cannot say what the table says).
    """
    proof = proof or Proof(published - 1)
    if proof.replaced_only or not spark.uses_spark:
        return _first_path(warehouse.store(table), published, proof)
    from lsm_core.spark import verify_table

    found: VerifyReport = verify_table(
        spark.session(),
        warehouse.table(table),
        proof.before,
        published,
        places=proof.places,
        appended=proof.appended,
    )
    return found


def _first_path(store: TableStore, published: int, proof: Proof) -> VerifyReport:
    return verify_snapshots(
        store,
        proof.before,
        published,
        replaced_only=proof.replaced_only,
        places=proof.places,
        appended=proof.appended,
    )


def judge(found: VerifyReport, note: str = "", kept: KeptFiles | None = None) -> dg.AssetCheckResult:
    """Turn the comparison into a check result; ``note`` ends a passing one's description, ``kept`` says how a failure is undone."""
    pair = f"snapshots {found.snapshot_a} and {found.snapshot_b}"
    metadata: dict[str, dg.MetadataValue] = {
        names.COMPARED: dg.MetadataValue.int(found.snapshot_b),
        "level": dg.MetadataValue.text(found.level),
        "buckets": dg.MetadataValue.int(found.buckets),
        "buckets with the same files": dg.MetadataValue.int(found.by_reference),
        "buckets compared row by row": dg.MetadataValue.int(found.by_digest),
        "rows before": dg.MetadataValue.int(found.rows_a),
        "rows after": dg.MetadataValue.int(found.rows_b),
        "seconds": dg.MetadataValue.float(round(found.seconds, 3)),
    }
    if found.ok:
        return dg.AssetCheckResult(
            passed=True, description=f"{pair} say the same ({found.level}){note}", metadata=metadata
        )
    lines = ["| bucket | rows before | rows after | digest before | digest after |", "|---|--:|--:|---|---|"]
    lines += [
        f"| {plain_cell(item.bucket)} | {item.rows_a:,} | {item.rows_b:,} | `{item.digest_a}` | `{item.digest_b}` |"
        for item in found.differences[:20]
    ]
    buckets = ", ".join(item.bucket for item in found.differences[:5])
    examples: Sequence[str] = getattr(found, "examples", ())  # only the second path names rows
    if examples:
        metadata["rows that differ"] = dg.MetadataValue.md("\n".join(f"- {plain_cell(line)}" for line in examples[:20]))
    return dg.AssetCheckResult(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{pair} differ in {buckets}: {kept.text if kept else 'restore the replaced files before anything else is done'}",
        metadata={
            **metadata,
            "differences": dg.MetadataValue.md("\n".join(lines)),
            **(kept.metadata if kept else {}),
        },
    )


def published_snapshot(
    instance: dg.DagsterInstance, layout: dg.AssetKey, table: str, partition: str | None
) -> int | None:
    """Return the snapshot that the run behind the layout's newest materialisation published, None when it published none.

    The apply op wrote it down with the run. Raises ``LookupError`` when Dagster no longer holds that run.
    """
    records: Sequence[dg.EventLogRecord] = ()
    for key in (layout, names.former_layout_key(layout)):
        wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition is not None else None)
        found = records or instance.fetch_materializations(wanted, limit=_LOOK_BACK).records
        records = [record for record in found if record.run_id]  # those without a run only say that nothing was to do
    if not records:
        return None
    run = instance.get_run_by_id(records[0].run_id)
    if run is None:
        raise LookupError(f"run {records[0].run_id[:8]}, which maintained {table} last, was deleted from Dagster")
    number = run.tags.get(names.published_tag(table))
    return None if number is None else int(number)
