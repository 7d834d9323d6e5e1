"""Blocking check `merged_view_unchanged`: a published snapshot has the same rows as the previous one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

from dredge.checks.definition import failed_result
from dredge.checks.undo_protection import UndoProtection, keep_for_undo
from dredge.platform_core import names
from dredge.platform_core.metadata import Launchpad, plain_cell
from dredge.platform_core.obstacles import read_newest_comparison
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import count_text
from lsm_core.errors import CorruptFile, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import (
    Proof,
    VerifyReport,
    changed_places,
    count_assigned_rows,
    find_restored_snapshot,
    find_rewrite,
    find_undone_compaction,
    proof_of,
    verify_snapshots,
)
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore

_LOOK_BACK: Final = 50
"""Number of newest materialisations of a layout that are searched for one that a run made."""
_RECORDED: Final = (
    (
        names.ACCEPTED,
        names.ACCEPTED_COMMIT,
        "snapshot {} differed from the previous one, and the difference was accepted",
    ),
    (
        names.PROVEN,
        names.PROVEN_COMMIT,
        "snapshot {} was compared with the rows from before an earlier compaction that differed: they are the same",
    ),
)
"""Metadata keys of snapshots that need no further comparison, with the text of the result."""


@dataclass(frozen=True)
class VerifyVerdict:
    """Result of the op that compares the rows of a table before and after a maintenance run.

    Attributes:
        ok: whether the rows are the same.
        level: how the rows were compared: "V0" for no comparison, "V1" by digests, "V3" by Spark.
        text: explanation in one sentence.
    """

    ok: bool
    level: str
    text: str


def merged_view_result(
    instance: dg.DagsterInstance,
    warehouse: WarehouseResource,
    spark: SparkResource,
    table: str,
    partition: str | None,
    others: Sequence[str] = (),
    launchpad: Launchpad | None = None,
) -> dg.AssetCheckResult:
    """Compare the last published snapshot of a partition with the previous one.

    Earlier differences that are unresolved are checked first; if one persists, its result is returned. After a failure
    a tag keeps the old files. A difference stays resolved once its snapshot was undone or rolled back, or once a
    person accepted it.

    Args:
        instance: Dagster instance.
        warehouse: the warehouse.
        spark: Spark resource for the comparison.
        table: full name of the table.
        partition: partition of the run, or None.
        others: partitions of a run over several partitions, which has no ``partition``; the result applies to each.
        launchpad: maker of links to the warehouse's jobs; None for no links.
    """
    layout, store = warehouse.names.layout_key(table), warehouse.store(table)
    try:
        published = published_snapshot(instance, layout, table, partition)
    except LookupError as error:
        return failed_result(f"the published snapshot is unknown: {error}", warn=True)
    evaluations = [read_newest_comparison(instance, layout, candidate) for candidate in (partition, *others)]
    suspects = {
        number: candidate
        for candidate in evaluations
        if candidate is not None and (number := _differing_snapshot(candidate)) is not None
    }
    result = None
    settled: list[int] = []
    for suspect, evaluation in sorted(suspects.items(), key=lambda item: item[0]):
        # A difference persists through later snapshots until the snapshot is undone or the difference is accepted.
        result = _find_resolution(store, suspect, evaluation) or _check_snapshot(
            warehouse, spark, store, table, suspect, launchpad
        )
        if not result.passed:
            result = _prove_by_later_compaction(warehouse, spark, store, table, suspect) or result
        if not result.passed:
            return result
        proof_id = result.metadata.get(names.PROVEN)
        if isinstance(proof_id, dg.IntMetadataValue):
            settled.append(proof_id.value or suspect)
    for key, commit_key, text in _RECORDED:
        recorded = {
            number: _record(store, number, key, commit_key)
            for candidate in evaluations
            if candidate is not None and (number := _recorded_snapshot(store, candidate, key, commit_key)) is not None
        }
        if result is None and recorded and (published is None or published <= max(recorded)):
            metadata = recorded[max(recorded)]
            return dg.AssetCheckResult(passed=True, description=text.format(max(recorded)), metadata=metadata)
    if result is not None and (published is None or published <= max([*suspects, *settled])):
        return result
    if published is None:
        return dg.AssetCheckResult(
            passed=True, description="the last run published no snapshot, so no row could change"
        )
    return _check_snapshot(warehouse, spark, store, table, published, launchpad)


def _differing_snapshot(evaluation: dg.AssetCheckEvaluation) -> int | None:
    """Return the snapshot that differs from the previous one; None if the evaluation passes, warns or names none."""
    if evaluation.passed or evaluation.severity != dg.AssetCheckSeverity.ERROR:
        return None
    value = evaluation.metadata.get(names.COMPARED)
    return value.value if isinstance(value, dg.IntMetadataValue) else None


def _record(store: TableStore, number: int, key: str, commit_key: str) -> dict[str, dg.MetadataValue]:
    """Return the metadata that record a snapshot for later evaluations.

    Args:
        store: the table.
        number: id of the snapshot.
        key: label of the id.
        commit_key: label of the commit time.

    Returns:
        The id and, if the snapshot exists, its commit time (epoch ms), by label.
    """
    metadata: dict[str, dg.MetadataValue] = {key: dg.MetadataValue.int(number)}
    snapshot = snapshots.try_read(store, number)
    if snapshot is not None:
        metadata[commit_key] = dg.MetadataValue.int(snapshot.time_millis)
    return metadata


def _recorded_snapshot(store: TableStore, evaluation: dg.AssetCheckEvaluation, key: str, commit_key: str) -> int | None:
    """Return the snapshot that an evaluation records, or None.

    None also if a snapshot with this id was committed again after a rollback.

    Args:
        store: the table.
        evaluation: evaluation of a check, as Dagster stored it.
        key: label of the id.
        commit_key: label of the commit time.
    """
    number, time_ms = (evaluation.metadata.get(label) for label in (key, commit_key))
    if not isinstance(number, dg.IntMetadataValue) or number.value is None:
        return None
    snapshot = snapshots.try_read(store, number.value)
    is_same = snapshot is None or (isinstance(time_ms, dg.IntMetadataValue) and snapshot.time_millis == time_ms.value)
    return number.value if is_same else None


def _prove_by_later_compaction(
    warehouse: WarehouseResource, spark: SparkResource, store: TableStore, table: str, suspect: int
) -> dg.AssetCheckResult | None:
    """Compare the rows before a differing compaction with those of a later compaction that replaced all its outputs.

    Args:
        warehouse: warehouse of the table.
        spark: Spark resource for the comparison.
        store: the table.
        table: full name of the table.
        suspect: id of the snapshot that differed, or that cannot be read.

    Returns:
        A passing result that records the later compaction. None if there is no such compaction, if the rows differ, or
        if they cannot be compared.
    """
    try:
        proof = find_rewrite(store, suspect)
        if proof is None or proof.after is None:
            return None
        try:
            report = compare_with_previous(warehouse, spark, table, proof.after, proof)
        except UnsupportedFeature:  # the independent reader does not support the table: compare digests
            report = _compare_digests(store, proof.after, proof)
    except (SnapshotNotFound, CorruptFile):  # nothing is proven
        return None
    if not report.ok:
        return None
    text = (
        f"snapshot {proof.after} replaced all files of snapshot {suspect}, which differed, and has the rows of "
        f"snapshot {proof.before}{' and those appended since' if proof.appended else ''} ({report.level})"
    )
    metadata = _record(store, proof.after, names.PROVEN, names.PROVEN_COMMIT)
    return dg.AssetCheckResult(passed=True, description=text, metadata=metadata)


def _find_reversal(store: TableStore, suspect: int) -> str | None:
    """Return a sentence about how a snapshot was undone or rolled back, or None if neither is known.

    Args:
        store: the table.
        suspect: id of the snapshot, whose rows differed from those of the previous snapshot.
    """
    try:
        latest, current = snapshots.latest(store), snapshots.try_read(store, suspect)
        was_compaction = current is None or current.commit_kind is CommitKind.COMPACT
        if latest is None or latest.id < suspect or not was_compaction:
            return f"snapshot {suspect}, which differed, no longer exists: the table was rolled back"
        for later in snapshots.iterate(store, [number for number in snapshots.list_ids(store) if number > suspect]):
            undo = find_undone_compaction(store, later)
            if undo is not None and undo.snapshot_id == suspect and undo.whole:
                return f"snapshot {later.id} undid snapshot {suspect}, which differed"
            target = find_restored_snapshot(later)
            if target is None or target >= suspect or current is None:
                continue
            if changed_places(store, current) <= changed_places(store, later):
                return (
                    f"snapshot {later.id} restored snapshot {target}, which is older than snapshot {suspect}, "
                    "which differed"
                )
    except CorruptFile:  # nothing proves a reversal
        return None
    return None


def _find_resolution(
    store: TableStore, suspect: int, evaluation: dg.AssetCheckEvaluation
) -> dg.AssetCheckResult | None:
    """Return the resolution of an earlier difference.

    Args:
        store: the table.
        suspect: id of the snapshot that differed.
        evaluation: evaluation that recorded the difference.

    Returns:
        A passing result if the snapshot was undone or rolled back, a warning if the difference was accepted, or None
        while it is unresolved.
    """
    tag_value, resolution = evaluation.metadata.get(names.KEPT_TAG), _find_reversal(store, suspect)
    tag = tag_value.value if isinstance(tag_value, dg.TextMetadataValue) else None
    tag_exists = tag is not None and tag in tags.list_names(store)
    if resolution:
        advice = f"; its tag can be deleted: dredge tag delete {shlex.quote(store.name)} {tag}" if tag_exists else ""
        return dg.AssetCheckResult(passed=True, description=f"{resolution}{advice}")
    if tag is None or tag_exists:
        return None
    text = (
        f"snapshot {suspect} differs from the previous one, and the difference was accepted: "
        f"the tag '{tag}', which kept the old files, was deleted"
    )
    return failed_result(text, warn=True, **_record(store, suspect, names.ACCEPTED, names.ACCEPTED_COMMIT))


def _check_snapshot(
    warehouse: WarehouseResource,
    spark: SparkResource,
    store: TableStore,
    table: str,
    published: int,
    launchpad: Launchpad | None,
) -> dg.AssetCheckResult:
    """Compare the rows of a snapshot with an earlier one; if they differ, a tag keeps the earlier snapshot's files.

    A snapshot that was undone or rolled back passes.

    Args:
        warehouse: warehouse of the table.
        spark: Spark resource for the comparison.
        store: the table.
        table: full name of the table.
        published: id of the snapshot.
        launchpad: maker of links to the warehouse's jobs; None for no links.
    """
    proof, note = Proof(published - 1), ""
    try:
        proof = proof_of(store, published)
        note = f"; {proof.text()}" if proof.text() else ""
        if rows := count_assigned_rows(store, published):
            return dg.AssetCheckResult(passed=True, description=bucket_text(published, rows))
        if (undo := judge_undo(store, published)) is not None and undo.ok:
            return dg.AssetCheckResult(passed=True, description=f"{undo.text} ({undo.level})")
        report = compare_with_previous(warehouse, spark, table, published, proof)
    except UnsupportedFeature as error:  # the independent reader does not support the table: compare digests
        report = _compare_digests(store, published, proof)
        note = f"{note}; compared by digests only: {error}"
    except SnapshotNotFound as error:
        if reversal := _find_reversal(store, published):
            return dg.AssetCheckResult(passed=True, description=reversal)
        return failed_result(f"snapshots {proof.before} and {published} can no longer be compared: {error}", warn=True)
    except CorruptFile as error:
        if reversal := _find_reversal(store, published):
            return dg.AssetCheckResult(passed=True, description=reversal)
        kept_files = keep_for_undo(store, published, launchpad, error)
        text = f"snapshot {published} cannot be trusted: {error}; {kept_files.text}"
        return dg.AssetCheckResult(passed=False, description=text, metadata=kept_files.metadata)
    if report.ok:
        return to_check_result(report, note)
    if reversal := _find_reversal(store, published):
        return dg.AssetCheckResult(passed=True, description=reversal)
    return to_check_result(report, kept=keep_for_undo(store, published, launchpad))


def compare_with_previous(
    warehouse: WarehouseResource, spark: SparkResource, table: str, published: int, proof: Proof | None = None
) -> VerifyReport:
    """Compare the rows of a published snapshot with the rows of an earlier snapshot.

    If a very large level 0 is compacted in several passes, only the rows of the files that the pass replaced are
    compared. They are compared by digests, which include sequence numbers.

    Args:
        warehouse: the warehouse.
        spark: Spark resource for the comparison; without Spark, digests are compared.
        table: full name of the table.
        published: the published snapshot.
        proof: the snapshots and buckets to compare (`Proof`); None to compare the whole snapshot with the previous one.

    Raises:
        SnapshotNotFound: one of the snapshots has expired.
        CorruptFile: a file is damaged.
        SparkFailed: Spark does not start or a task failed.
        UnsupportedFeature: Spark SQL cannot merge the rows of this table.
    """
    proof = proof or Proof(published - 1)
    if proof.replaced_only or not spark.uses_spark:
        return _compare_digests(warehouse.store(table), published, proof)
    from lsm_core.spark import verify_table

    report: VerifyReport = verify_table(
        spark.session(), warehouse.table(table), proof.before, published, places=proof.places, appended=proof.appended
    )
    return report


def _compare_digests(store: TableStore, published: int, proof: Proof) -> VerifyReport:
    return verify_snapshots(
        store, proof.before, published, replaced_only=proof.replaced_only, places=proof.places, appended=proof.appended
    )


def to_check_result(report: VerifyReport, note: str = "", kept: UndoProtection | None = None) -> dg.AssetCheckResult:
    """Convert a comparison to a check result.

    Args:
        report: the comparison.
        note: end of the description of a passing result.
        kept: kept files and the undo command for a failing result, or None.
    """
    pair = f"snapshots {report.snapshot_a} and {report.snapshot_b}"
    metadata: dict[str, dg.MetadataValue] = {
        names.COMPARED: dg.MetadataValue.int(report.snapshot_b),
        "level": dg.MetadataValue.text(report.level),
        "buckets": dg.MetadataValue.int(report.buckets),
        "buckets with the same files": dg.MetadataValue.int(report.by_reference),
        "buckets compared row by row": dg.MetadataValue.int(report.by_digest),
        "rows before": dg.MetadataValue.int(report.rows_a),
        "rows after": dg.MetadataValue.int(report.rows_b),
        "seconds": dg.MetadataValue.float(round(report.seconds, 3)),
    }
    if report.ok:
        return dg.AssetCheckResult(
            passed=True, description=f"{pair} have the same rows ({report.level}){note}", metadata=metadata
        )
    lines = ["| bucket | rows before | rows after | digest before | digest after |", "|---|--:|--:|---|---|"]
    lines += [
        f"| {plain_cell(item.bucket)} | {item.rows_a:,} | {item.rows_b:,} | `{item.digest_a}` | `{item.digest_b}` |"
        for item in report.differences[:20]
    ]
    buckets = ", ".join(item.bucket for item in report.differences[:5])
    examples: Sequence[str] = getattr(report, "examples", ())  # only the independent reader names rows
    if examples:
        metadata["rows that differ"] = dg.MetadataValue.md("\n".join(f"- {plain_cell(line)}" for line in examples[:20]))
    return dg.AssetCheckResult(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{pair} differ in {buckets}: {kept.text if kept else 'restore the replaced files first'}",
        metadata={**metadata, "differences": dg.MetadataValue.md("\n".join(lines)), **(kept.metadata if kept else {})},
    )


def published_snapshot(
    instance: dg.DagsterInstance, layout: dg.AssetKey, table: str, partition: str | None
) -> int | None:
    """Return the id of the snapshot that the newest maintenance run of a layout asset published.

    The op that applies the plan stored it as a tag of the run.

    Args:
        instance: Dagster instance.
        layout: key of the layout asset.
        table: full name of the table.
        partition: path of the partition, or None for the whole table.

    Returns:
        The id, or None if no materialization names a run, or if the run published no snapshot.

    Raises:
        LookupError: the run that the newest materialization names was deleted from Dagster.
    """
    records: Sequence[dg.EventLogRecord] = ()
    for key in (layout, names.former_layout_key(layout)):
        record_filter = dg.AssetRecordsFilter(
            asset_key=key, asset_partitions=[partition] if partition is not None else None
        )
        candidates = records or instance.fetch_materializations(record_filter, limit=_LOOK_BACK).records
        records = [record for record in candidates if record.run_id]  # materialisations without a run report no change
    if not records:
        return None
    run = instance.get_run_by_id(records[0].run_id)
    if run is None:
        raise LookupError(f"run {records[0].run_id[:8]}, which maintained {table} last, was deleted from Dagster")
    snapshot_id = run.tags.get(names.published_tag(table))
    return None if snapshot_id is None else int(snapshot_id)


def judge_undo(store: TableStore, snapshot: int) -> VerifyVerdict | None:
    """Compare a snapshot that undid a compaction with the snapshot before the compaction.

    A snapshot that undid a compaction need not have the rows of the previous snapshot. If it undid the whole compaction
    and directly follows it, it must have the rows from before the compaction. Otherwise there is nothing to compare.

    Args:
        store: the table.
        snapshot: id of the snapshot.

    Returns:
        The result of the comparison, which passes if there is nothing to compare. None if the snapshot did not undo a
        compaction.

    Raises:
        CorruptFile: the snapshot or its maintenance record is damaged.
        SnapshotNotFound: `snapshot` does not exist.
    """
    undone = find_undone_compaction(store, snapshots.read(store, snapshot))
    if undone is None:
        return None
    compaction_id = undone.snapshot_id
    undone_text = "a compaction" if compaction_id is None else f"snapshot {compaction_id}"
    subject = f"snapshot {snapshot} undid {undone_text}"
    if compaction_id is None or not undone.whole or compaction_id != snapshot - 1:
        text = (
            f"{subject}, in whole or in part, and other commits may have followed: "
            "there is nothing to compare it with; the undo verified the restored files itself"
        )
        return VerifyVerdict(ok=True, level="V0", text=text)
    try:
        comparison = verify_snapshots(store, compaction_id - 1, snapshot)
    except SnapshotNotFound as error:
        return VerifyVerdict(ok=True, level="V0", text=f"{subject}: there is nothing left to compare it with ({error})")
    differing_buckets = ", ".join(difference.bucket for difference in comparison.differences)
    outcome = "have the same rows" if comparison.ok else f"are DIFFERENT in {differing_buckets}"
    text = f"{subject}: snapshots {compaction_id - 1} and {snapshot} {outcome}"
    return VerifyVerdict(comparison.ok, comparison.level, text)


def bucket_text(snapshot: int, rows: int) -> str:
    """Return why the snapshot that assigns buckets to postponed rows is not compared with the previous one.

    Args:
        snapshot: id of the snapshot.
        rows: number of postponed rows that got a bucket.
    """
    rows_text = count_text(rows, "postponed row")
    return f"snapshot {snapshot}: {rows_text} got a bucket and became visible: there is nothing to compare with"
