"""Metrics of tables for monitoring, from their health, history and ledger, and their Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.freshness import IcebergCondition
from lsm_core.maintenance.history_health import GRACE_MS, HistoryHealth, read_history_health
from lsm_core.maintenance.holder_sizes import holds
from lsm_core.maintenance.iceberg_lag import read_iceberg_lag
from lsm_core.maintenance.ledger import (
    DONE,
    FAILED,
    REFUSED,
    UNKNOWN,
    UNREADABLE,
    WRITE_STALL,
    LedgerEntry,
    iterate_ledger,
)
from lsm_core.maintenance.observe import health
from lsm_core.maintenance.score import history_parts
from lsm_core.maintenance.table_ranking import TableNeed, need_of, small_files_of_partitions
from lsm_core.maintenance.trash import read_trash
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

METRICS: Final[Mapping[str, str]] = {
    "dredge_scrape_timestamp_seconds": "When these numbers were read.",
    "dredge_tables": "Tables of the warehouse.",
    "dredge_table_readable": "1 if the table can be read, 0 if it cannot: it then has no other metric.",
    "dredge_table_score": "How much the table needs maintenance: 0 (healthy) to 100 (act).",
    "dredge_table_files": "Live data files.",
    "dredge_table_bytes": "Bytes of live data files.",
    "dredge_table_rows": "Stored rows, unmerged.",
    "dredge_table_sorted_runs": "Sorted runs of the bucket that has most.",
    "dredge_table_level0_files": "Level-0 files of the bucket that has most.",
    "dredge_table_small_files": "Small files of the partition of an append table that has most.",
    "dredge_table_due_compaction_bytes": "Bytes read by the compactions that the table's own rules ask for now.",
    "dredge_table_oldest_level0_timestamp_seconds": "Since when the oldest data wait on level 0.",
    "dredge_table_last_compaction_timestamp_seconds": "When the newest compaction was that left files.",
    "dredge_table_last_commit_timestamp_seconds": "When the newest snapshot was committed.",
    "dredge_table_snapshots": "Snapshots that can be read.",
    "dredge_table_overdue_snapshots": "Snapshots that retention released a day ago or longer and that still exist.",
    "dredge_table_snapshot_gaps": "Runs of missing ids between the oldest and the newest snapshot.",
    "dredge_table_tags": "Tags.",
    "dredge_table_overdue_tags": "Tags whose time was over a day ago or longer and that still exist.",
    "dredge_table_consumers": "Consumers that hold snapshots.",
    "dredge_table_consumer_lag_snapshots": "Snapshots that the slowest consumer has yet to read.",
    "dredge_table_manifests": "Manifests of the newest snapshot.",
    "dredge_table_small_manifests": "Those of them that are small or hold deletions.",
    "dredge_table_manifest_bytes": "Bytes of the newest snapshot's manifests.",
    "dredge_table_iceberg_current": "1 if Iceberg metadata names the newest snapshot, 0 if it does not.",
    "dredge_table_iceberg_since_timestamp_seconds": "Since when committed rows may be invisible to Iceberg readers.",
    "dredge_table_trash_records": "Deletions that wait for the end of their grace, or to be restored.",
    "dredge_table_held_bytes": "Bytes of data and changelog files that only holders of this kind keep (--holds).",
    "dredge_write_stalls": "Waits of writers for a compaction (num-sorted-run.stop-trigger) within the window.",
    "dredge_write_stall_seconds": "Seconds of these waits.",
    "dredge_maintenance_runs": "Runs in the ledger that began within the window, by action and outcome.",
    "dredge_maintenance_run_seconds": "Seconds that they took together.",
    "dredge_maintenance_last_run_timestamp_seconds": "When the newest of them ended.",
    "dredge_maintenance_read_bytes": "Bytes of data files and manifests that they read.",
    "dredge_maintenance_written_bytes": "Bytes of data files and manifests that they wrote.",
    "dredge_maintenance_freed_bytes": "Bytes of files that they deleted.",
    "dredge_maintenance_predicted_seconds": "Seconds that plans predicted, for the runs that are done.",
    "dredge_maintenance_predicted_run_seconds": "Seconds that these runs with a prediction took.",
    "dredge_states_timestamp_seconds": "When the platform judged the states of the tables.",
    "dredge_tables_in_state": "Tables in this state.",
    "dredge_table_state": "1 for the current state of the table.",
    "dredge_alerts_timestamp_seconds": "When the sensor watch last looked at all tables.",
    "dredge_alerts": "Alerts of the sensor watch by condition and severity.",
    "dredge_alert": "1 for each alert of a table, sensor or file (1,000 at most).",
    "dredge_platform_readable": "1 if the Dagster instance of DAGSTER_HOME could be read, 0 if it could not.",
    "dredge_policy_file_valid": "1 if the policy file is valid, 0 if it is not: then an earlier state applies.",
    "dredge_promise_met": "1 if the table keeps its promise (slo) now, 0 if it does not.",
    "dredge_promise_within_ratio": "Share of the known time of the week in which the promise was kept, 0 to 1.",
    "dredge_promise_known_ratio": "Share of the week for which snapshots still exist, 0 to 1.",
    "dredge_promise_target_ratio": "Promised share of the week, 0 to 1.",
    "dredge_cost_runs": "Price of the maintenance runs within the window, in the policy's currency.",
    "dredge_cost_saved_reads": "Price of the reads that the compactions of the window saved until now.",
    "dredge_storage_price": "Price of storing a gigabyte (1e9 bytes) for 30 days.",
}
"""Metrics with their help; all are gauges: each scrape reads them again, and nothing is counted in between."""
_MOST_ACTIONS: Final = 40
"""Most actions of a table with samples of their own; anyone can write ledgers, and each label value is a series."""
_OTHER: Final = "other"
OUTCOMES: Final = frozenset({DONE, REFUSED, FAILED, UNKNOWN, UNREADABLE})
_LONGEST_ACTION: Final = 200


@dataclass(frozen=True)
class Sample:
    """One value of a metric.

    Attributes:
        metric: name in `METRICS`.
        value: the value.
        labels: Prometheus labels of the sample, by name.
    """

    metric: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def table_samples(store: TableStore, since_ms: int, *, with_holders: bool = False) -> list[Sample]:
    """Return the metrics of one table from metadata only.

    Args:
        store: the table.
        since_ms: start of the window of ledger runs (epoch ms).
        with_holders: also report the bytes that each kind of holder keeps; this reads the manifests of all snapshots.

    Raises:
        CorruptFile: metadata cannot be read.
    """
    newest = snapshots.latest(store)
    debt = read_history_health(store, newest, GRACE_MS)
    waiting = len(read_trash(store).records)
    buckets = health(store)
    numbers = _numbers(need_of("", buckets, history_parts(debt, store.options)), newest, debt, waiting)
    if not store.has_primary_key:
        numbers |= {"dredge_table_small_files": max(small_files_of_partitions(buckets).values(), default=0)}
    lag = None if newest is None else read_iceberg_lag(store, buckets, newest)
    if lag is not None:
        numbers |= {
            "dredge_table_iceberg_current": float(lag.view.condition is IcebergCondition.CURRENT),
            "dredge_table_iceberg_since_timestamp_seconds": _seconds(lag.since_ms),
        }
    labels = {"table": store.name}
    runs: dict[str, dict[str, RunTotals]] = {}
    stalls, stalled = 0, 0.0
    for entry in iterate_ledger(store, heads=True, since_ms=since_ms, stalls=True):
        if entry.action == WRITE_STALL:
            count = entry.report.get("stalls")
            stalls, stalled = stalls + (count if isinstance(count, int) else 1), stalled + (entry.seconds or 0.0)
            continue
        action = entry.action[:_LONGEST_ACTION]
        action = action if action in runs or len(runs) < _MOST_ACTIONS else _OTHER
        outcome = entry.outcome if entry.outcome in OUTCOMES else _OTHER
        runs.setdefault(action, {}).setdefault(outcome, RunTotals()).add(entry)
    return [
        Sample("dredge_table_readable", 1, labels),
        *(Sample(metric, value, labels) for metric, value in numbers.items() if value is not None),
        *(_holder_samples(store) if with_holders else ()),
        Sample("dredge_write_stalls", stalls, labels),
        Sample("dredge_write_stall_seconds", round(stalled, 3), labels),
        *(
            Sample(f"dredge_maintenance_{metric}", value, {**labels, "action": action, "outcome": outcome})
            for action, outcomes in sorted(runs.items())
            for outcome, totals in sorted(outcomes.items())
            for metric, value in totals.numbers().items()
        ),
    ]


@dataclass
class RunTotals:
    """Totals of the ledger's runs of one action and outcome.

    Attributes:
        runs: number of runs.
        seconds: wall-clock seconds of the runs.
        last_ms: end of the newest run (epoch ms).
        bytes_read: bytes of files that the runs read.
        bytes_written: bytes of files that the runs wrote.
        bytes_freed: bytes of files that the runs deleted.
        predicted: seconds that plans predicted, for runs that are done and have a prediction.
        predicted_runs: seconds that the runs counted in ``predicted`` took.
    """

    runs: int = 0
    seconds: float = 0.0
    last_ms: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_freed: int = 0
    predicted: float = 0.0
    predicted_runs: float = 0.0

    def add(self, entry: LedgerEntry) -> None:
        """Add one run of the ledger to the totals."""
        self.runs += 1
        self.seconds += entry.seconds or 0.0
        self.last_ms = max(self.last_ms, entry.time_ms)
        self.bytes_read += reported_bytes(entry, "bytes_in")
        self.bytes_written += reported_bytes(entry, "bytes_out")
        self.bytes_freed += reported_bytes(entry, "bytes_freed")
        if entry.outcome == DONE and entry.predicted_seconds and entry.seconds is not None:
            self.predicted += entry.predicted_seconds
            self.predicted_runs += entry.seconds

    def numbers(self) -> dict[str, float]:
        """Return the totals by metric name without ``dredge_maintenance_``; bytes and predictions of 0 are left out."""
        numbers = {
            "runs": self.runs,
            "run_seconds": round(self.seconds, 3),
            "last_run_timestamp_seconds": self.last_ms / 1000,
        }
        optional = {
            "read_bytes": self.bytes_read,
            "written_bytes": self.bytes_written,
            "freed_bytes": self.bytes_freed,
            "predicted_seconds": round(self.predicted, 3),
            "predicted_run_seconds": round(self.predicted_runs, 3) if self.predicted else 0.0,
        }
        return numbers | {name: value for name, value in optional.items() if value}


def reported_bytes(entry: LedgerEntry, name: str) -> int:
    """Return a number of bytes from a run's report; 0 if the report has none, as anyone can write ledgers.

    Args:
        entry: the run.
        name: name of the field, such as "bytes_in".
    """
    value = entry.report.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0


def _holder_samples(store: TableStore) -> list[Sample]:
    """Return one sample per kind of holder (snapshot, tag, ...): bytes of the files that exactly one holder keeps."""
    held = holds(store).group_by("kind").aggregate([("bytes", "sum")]).to_pylist()  # one row per kind of holder
    return [
        Sample("dredge_table_held_bytes", row["bytes_sum"], {"table": store.name, "kind": row["kind"]})
        for row in sorted(held, key=lambda row: str(row["kind"]))
    ]


def _numbers(need: TableNeed, newest: Snapshot | None, debt: HistoryHealth, trash: int) -> dict[str, float | None]:
    """Return values by metric name; None if a value does not exist (for example, before the first compaction).

    Args:
        need: score and figures of the table's files and due compactions.
        newest: newest snapshot, None for an empty table.
        debt: numbers of overdue snapshots and tags, of consumers and of manifests.
        trash: number of deletion records.
    """
    committed = None if newest is None else newest.time_millis
    return {
        "dredge_table_score": need.score,
        "dredge_table_files": need.files,
        "dredge_table_bytes": need.total_bytes,
        "dredge_table_rows": need.rows,
        "dredge_table_sorted_runs": need.sorted_runs,
        "dredge_table_level0_files": need.level0_files,
        "dredge_table_due_compaction_bytes": need.due_bytes,
        "dredge_table_oldest_level0_timestamp_seconds": _seconds(need.oldest_level0_ms),
        "dredge_table_last_compaction_timestamp_seconds": _seconds(need.last_compaction_ms),
        "dredge_table_last_commit_timestamp_seconds": _seconds(committed),
        "dredge_table_snapshots": debt.snapshots,
        "dredge_table_overdue_snapshots": debt.overdue + debt.held,
        "dredge_table_snapshot_gaps": len(debt.gaps),
        "dredge_table_tags": debt.tags,
        "dredge_table_overdue_tags": len(debt.overdue_tags),
        "dredge_table_consumers": debt.consumers,
        "dredge_table_consumer_lag_snapshots": debt.consumer_behind,
        "dredge_table_manifests": debt.manifests,
        "dredge_table_small_manifests": debt.small_manifests,
        "dredge_table_manifest_bytes": debt.manifest_bytes,
        "dredge_table_trash_records": trash,
    }


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def format_metrics(samples: Iterable[Sample]) -> str:
    """Return samples in Prometheus's text format 0.0.4, in the order of `METRICS`, each metric with its help.

    Args:
        samples: samples in any order.
    """
    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    return "".join(
        f"{line}\n" for metric, text in METRICS.items() for line in _lines(metric, text, by_metric.get(metric, ()))
    )


def _lines(metric: str, text: str, samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    yield f"# HELP {metric} {text}"
    yield f"# TYPE {metric} gauge"
    for sample in samples:
        labels = ",".join(f'{name}="{_escape_label(value)}"' for name, value in sample.labels.items())
        yield f"{metric}{{{labels}}} {sample.value!r}" if labels else f"{metric} {sample.value!r}"


def _escape_label(value: str) -> str:
    """Escape a label value: names of tables, and of actions in ledgers that anyone can write, can hold any text."""
    plain = value.encode("utf-8", "backslashreplace").decode()
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
