"""Events that sensors report without a run when a table changed: new data, health numbers, healthy layouts, alerts.

A data asset is materialised once per commit of a writer, with the snapshot as its data version, and never for a
compaction. So automation conditions and freshness policies of downstream assets react to new data, but not to
maintenance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import dagster as dg
import pyarrow.compute as pc

from dredge.checks.backlog import LEVEL0_FILES, SMALL_FILES, THRESHOLD
from dredge.checks.definition import apply_severity, evaluation_of, is_switched_off
from dredge.checks.layout_checks import VIOLATIONS, tree_result
from dredge.checks.layout_condition import backlog_result, condition_result, conditions_of
from dredge.orchestration.sensors.table_cache import OpenTable
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import (
    DATA_VERSION_TAG,
    AssetCheckExecutionRecordStatus,
    read_newest_records,
)
from dredge.platform_core.health import PartitionHealth, TableHealth, changes_data, version_text
from dredge.platform_core.metadata import data_metadata, health_metadata, plotted_metadata, state_metadata
from dredge.platform_core.obstacles import (
    find_blocking_failure,
    find_evaluated_checks,
    find_other_in_event,
    read_layout_evaluation,
)
from dredge.platform_core.policies.table_state import TableState, TableStatus, combine
from dredge.platform_core.resources.warehouse import card_of
from dredge.platform_core.standard_metadata import (
    COLUMNS,
    columns_observation,
    columns_text,
    lineage_metadata,
    rows_metadata,
)
from lsm_core.clock import SystemClock
from lsm_core.format.partitions import partition_names
from lsm_core.maintenance.writers_compact import WATCHING
from lsm_core.metadata import manifests, snapshots

if TYPE_CHECKING:
    from dredge.platform_core.dagster_internals import AssetCheckExecutionRecord

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
HEALTHY: Final = "healthy, nothing to do"
PARTITIONS_A_TABLE: Final = 100
"""Most partitions of a table that a tick reports; the others follow in the next ticks."""
STATES_A_TICK: Final = 100
"""Most changes of state that a tick reports; the others follow in the next ticks."""
_PASSES_AGAIN_SECONDS: Final = 86_400.0
"""Time after which a passing backlog check is reported again.

A report at each commit would be a fifth of all data that Dagster stores.
"""
_FOLLOWED: Final = 200
"""Most snapshots that are read to find changed partitions; beyond this number, all partitions count as changed."""


class HealthReporter:
    """Reporter of the changes of tables since the previous tick of this process.

    The reporter keeps only a hash of each partition's files and levels in memory. Earlier reports are read from
    Dagster, so that a restart reports no data version twice.
    """

    def __init__(self, warehouse_names: names.WarehouseNames) -> None:
        self._names = warehouse_names
        self._seen: dict[str, tuple[tuple[int | None, str], dict[str, int]]] = {}
        self._unfilled: dict[str, set[str]] = {}
        self._reported: dict[str, TableStatus] = {}
        self._columns: dict[str, str] = {}

    def has_changes(self, table: OpenTable) -> bool:
        """Return whether `events` may return events of the table."""
        known = self._seen.get(table.name)
        version = (table.health.snapshot, table.health.commit)
        return known is None or known[0] != version or bool(self._unfilled.get(table.name))

    def last_reports(self, tables: Sequence[OpenTable], instance: dg.DagsterInstance) -> LastReports:
        """Return the newest reports about the tables in Dagster, for `events`; the storage is queried on first use."""
        return LastReports(instance, self._names, tables)

    def state_events(
        self, tables: Iterable[tuple[OpenTable, TableStatus]], most: int = STATES_A_TICK
    ) -> Iterator[dg.AssetObservation]:
        """Yield an observation of each layout asset whose table changed its state without a commit.

        The observation has the state, the reason and the next step.

        No event is needed for work that starts now, for a running run and for its success: the events of the commit and
        of the run show these states.

        Args:
            tables: tables with their current statuses.
            most: most events of the call; further changes follow in later calls.
        """
        events = 0
        for table, status in tables:
            if self._is_reported(status):
                continue
            known = self._reported.get(table.name)
            if _is_quiet(status) and (known is None or _is_quiet(known)):
                self._reported[table.name] = status
                continue
            if events >= most:
                return
            events += 1
            self._reported[table.name] = status
            yield dg.AssetObservation(
                self._names.layout_key(table.name),
                description=status.line(table.now.table_ms),
                metadata={**_state_entries(table, status), **plotted_metadata(table.health)},
            )

    def undecided_events(
        self, statuses: Sequence[TableStatus], now_ms: int, most: int = STATES_A_TICK
    ) -> Iterator[dg.AssetObservation]:
        """Yield an observation of the layout asset of each table that can no longer be opened.

        The observation has the state and the next step. A status that was reported already is not repeated.

        Args:
            statuses: statuses of tables that could not be opened.
            now_ms: time of the decision (epoch ms).
            most: most events of the call; further changes follow in later calls.
        """
        changed = [status for status in statuses if not self._is_reported(status)]
        for status in changed[:most]:
            self._reported[status.table] = status
            self._seen.pop(status.table, None)  # once it can be opened again, its health is reported in any case
            line = status.line(now_ms)
            yield dg.AssetObservation(
                self._names.layout_key(status.table),
                description=line,
                metadata=state_metadata(line, status.next_step(), now_ms),
            )

    def _is_reported(self, status: TableStatus) -> bool:
        known = self._reported.get(status.table)
        return known is not None and known.key == status.key

    def events(self, tables: Sequence[OpenTable], reports: LastReports) -> Iterator[AssetEvent]:
        """Yield materialisations of changed data, health of changed layouts, and evaluations of backlog checks.

        A call yields at most 100 partitions per table.

        A passing backlog check is reported again only if its files reach half of the limit, with a materialisation of
        the layout asset, or after a day.

        Args:
            tables: tables that changed since the previous tick of this process.
            reports: result of `last_reports` for these tables.
        """
        for table in tables:
            if self.has_changes(table):
                yield from self._events_and_alert(table, reports)

    def _events_and_alert(self, table: OpenTable, reports: LastReports) -> Iterator[AssetEvent]:
        layout, layout_materialised = self._names.layout_key(table.name), False
        for event in self._events(table, reports, layout):
            layout_materialised |= isinstance(event, dg.AssetMaterialization) and event.asset_key == layout
            yield event
        known = self._reported.get(table.name)
        if not table.card.partitioned:  # these events show the state from metadata alone
            self._reported[table.name] = combine(table.name, table.statuses.get("", ()))
        elif known is not None and not _is_quiet(known):
            del self._reported[table.name]  # the newest event is about a partition: report the table's state again
        if table.refusal is not None or is_switched_off(table.policy, backlog_check(table)):
            return
        evaluation = evaluate_backlog(table, layout)
        file_count = SMALL_FILES if table.card.append_only else LEVEL0_FILES
        files, limit = (int(str(evaluation.metadata[name].value)) for name in (file_count, THRESHOLD))
        if (
            layout_materialised
            or not evaluation.passed
            or 2 * files >= limit
            or not reports.backlog_passes(evaluation.asset_check_key)
        ):
            yield evaluation

    def _events(self, table: OpenTable, reports: LastReports, layout: dg.AssetKey) -> Iterator[AssetEvent]:
        health, known = table.health, self._seen.get(table.name)
        before = known[1] if known is not None else {}
        shapes = {item.text: hash(item.shape) for item in health.partitions}
        self._seen[table.name] = ((health.snapshot, health.commit), shapes)
        changed = {text for text, shape in shapes.items() if before.get(text) != shape}
        data = self._names.data_key(table.name)
        reported = self._written_partitions(table, reports, data, set(shapes)) if shapes else set()
        if reported:
            yield from self._column_events(table, reports, data, layout)
        # The newest partitions first: they matter most, and the first tick must not flood the daemon.
        due = sorted(
            (item for item in health.partitions if item.text in changed | reported),
            key=lambda item: -item.newest_file_ms,
        )
        self._unfilled[table.name] = {item.text for item in due[PARTITIONS_A_TABLE:]} & reported
        if health.partitions and not table.card.partitioned:
            yield from self._whole_table_events(table, reports, data, layout, new_data="" in reported)
        else:
            filled = reports.partitions(layout) if reported else set()
            for state in due[:PARTITIONS_A_TABLE]:
                if state.text in reported:
                    yield _materialise_data(table, data, state.text)
                if state.text in reported - filled and table.refusal is None and has_no_due_work(table, state):
                    numbers = {
                        **_partition_entries(table, state.text),
                        **_healthy_metadata(table, health.of_partition(state.text)),
                    }
                    yield dg.AssetMaterialization(layout, HEALTHY, metadata=numbers, partition=state.text)
                else:
                    yield observe_partition(table, layout, state)

    def _column_events(
        self, table: OpenTable, reports: LastReports, data: dg.AssetKey, layout: dg.AssetKey
    ) -> Iterator[dg.AssetObservation]:
        """Yield the location and columns of the data and the lineage of the layout, at first and after a change.

        Materialisations have neither. SQLite stores these three times, and OpenLineage's listener drops those without
        a run.

        Args:
            table: the table.
            reports: earlier reports in Dagster.
            data: key of the data asset.
            layout: key of the layout asset.
        """
        card = card_of(table.name, table.store, table.refusal)  # that of the definitions may have older columns
        columns = columns_text(card)
        known: object = self._columns.get(table.name)
        if known is None and reports.materialised.get(data) is not None:
            known = _last_columns(reports.instance, data)
        self._columns[table.name] = columns
        if known != columns:
            yield columns_observation(card, data, f"schema {table.store.schema.id}")
            yield dg.AssetObservation(layout, "lineage", metadata=lineage_metadata(card, data))

    def _written_partitions(
        self, table: OpenTable, reports: LastReports, data: dg.AssetKey, partitions: set[str]
    ) -> set[str]:
        """Return the partitions whose data changed since the last report, "" for an unpartitioned table.

        Args:
            table: the table.
            reports: earlier reports in Dagster.
            data: key of the data asset.
            partitions: paths of all partitions; the result has no others.
        """
        missing = set(self._unfilled.get(table.name, ()))
        last = reports.materialised.get(data)
        made = None if last is None else last.asset_materialization
        version_value = None if made is None or made.tags is None else made.tags.get(DATA_VERSION_TAG)
        if table.card.partitioned and table.name not in self._unfilled:  # first look of this process
            missing |= partitions - reports.partitions(data)
        if last is not None and (version_value == table.health.data_commit or not table.health.data_commit):
            return missing & partitions
        return (missing | find_changed_partitions(table, version_value, partitions)) & partitions

    def _whole_table_events(
        self, table: OpenTable, reports: LastReports, data: dg.AssetKey, layout: dg.AssetKey, *, new_data: bool
    ) -> Iterator[AssetEvent]:
        """Yield the events of a table without partitions.

        After new data, Dagster shows the layout as out of date, even if no work is due. Then a materialisation without
        a run marks the layout as current. The same happens after the table's writers began to compact. A
        materialisation outdates earlier results of blocking checks in Dagster, so the LSM tree is checked again and the
        newest result of merged_view_unchanged is reported again.

        The materialisation has only the plotted numbers, because SQLite stores it three times.

        Args:
            table: the table.
            reports: earlier reports in Dagster.
            data: key of the data asset.
            layout: key of the layout asset.
            new_data: whether the data changed since the last report.
        """
        if new_data:
            yield _materialise_data(table, data, None)
        (state,) = table.health.partitions
        last = reports.materialised.get(layout)
        current = last is not None and (not last.run_id or not new_data)
        if current and table.health.writers_compact:  # the page shows the newest materialisation alone
            current = last is not None and _reported_upkeep(last) == table.health.upkeep
        if current or table.refusal is not None or not has_no_due_work(table, state):
            yield observe_partition(table, layout, state)
            return
        tree = tree_result(table.store, None)
        if not tree.passed:
            yield observe_partition(table, layout, state)
            yield from _broken_tree_events(table, reports, layout, tree)
            return
        if find_blocking_failure(reports.instance, layout, evaluated=reports.evaluated) is not None:
            yield observe_partition(table, layout, state)  # a run of the checks has to report this
            return
        description = f"{HEALTHY}; {WATCHING}" if table.health.writers_compact else HEALTHY
        metadata = {**_partition_entries(table, state.text), **_healthy_metadata(table, table.health)}
        yield dg.AssetMaterialization(layout, description, metadata=metadata)
        yield dg.AssetCheckEvaluation(
            asset_key=layout, check_name=names.TREE_CHECK, passed=True, description=tree.description
        )
        conditions = conditions_of(table.card, table.policy)
        if conditions:
            yield evaluation_of(layout, condition_result(table.store, table.health, table.policy, conditions))
        if dg.AssetCheckKey(layout, names.MERGED_VIEW_CHECK) not in reports.evaluated:
            return
        comparison = read_layout_evaluation(reports.instance, layout, names.MERGED_VIEW_CHECK)
        if comparison is not None:
            yield dg.AssetCheckEvaluation(
                asset_key=layout,
                check_name=names.MERGED_VIEW_CHECK,
                passed=comparison.passed,
                severity=comparison.severity,
                description=comparison.description,
                metadata=comparison.metadata,
            )


def _materialise_data(table: OpenTable, data: dg.AssetKey, partition: str | None) -> dg.AssetMaterialization:
    """Return the materialisation of a data asset, or of one of its partitions, after a commit.

    Args:
        table: the table.
        data: key of the data asset.
        partition: path of the partition, or None for a table without partitions.
    """
    health = table.health
    tags = {DATA_VERSION_TAG: health.data_commit} if health.data_commit else {}
    description = f"snapshot {health.data_version}" if health.data_version is not None else None
    metadata = {
        **data_metadata(health.of_partition(partition)),
        **rows_metadata(table.store, health, partition),
    }
    return dg.AssetMaterialization(data, description, metadata=metadata, partition=partition, tags=tags)


def _last_columns(instance: dg.DagsterInstance, data: dg.AssetKey) -> object:
    """Return the `columns_text` of the last observation of data, or None without one."""
    for record in instance.fetch_observations(data, limit=1).records:
        observation = record.asset_observation
        value = None if observation is None else observation.metadata.get(COLUMNS)
        return None if value is None else value.value
    return None


def _broken_tree_events(
    table: OpenTable, reports: LastReports, layout: dg.AssetKey, tree: dg.AssetCheckResult
) -> Iterator[AssetEvent]:
    """Yield the failed `tree_is_valid`, which blocks the table, unless it was reported or the policy switches it off.

    Args:
        table: the table.
        reports: earlier reports in Dagster.
        layout: key of the layout asset.
        tree: failed result of the check.
    """
    if is_switched_off(table.policy, names.TREE_CHECK):
        return
    result = apply_severity(tree, table.policy, names.TREE_CHECK)
    last = read_layout_evaluation(reports.instance, layout, names.TREE_CHECK)
    # The description counts the commits that a rollback loses, so it differs after each commit.
    if last is None or last.passed or last.metadata.get(VIOLATIONS) != result.metadata.get(VIOLATIONS):
        yield evaluation_of(layout, result)


class LastReports:
    """Newest reports in Dagster about tables and about `warehouse_health`, read by one query on first use.

    Attributes:
        instance: Dagster instance to query.
    """

    def __init__(
        self, instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, tables: Sequence[OpenTable]
    ) -> None:
        self.instance = instance
        self._names = warehouse_names
        self._data = [warehouse_names.data_key(table.name) for table in tables]
        self._layouts = [warehouse_names.layout_key(table.name) for table in tables]
        self._ranking = warehouse_names.warehouse_health_key()

    @cached_property
    def materialised(self) -> Mapping[dg.AssetKey, dg.EventLogEntry | None]:
        """Newest materialisation of each data asset, layout asset and `warehouse_health`; None if there is none."""
        keys = [*self._data, *self._layouts, self._ranking]
        return self.instance.event_log_storage.get_latest_materialization_events(keys)

    def other_warehouse(self) -> str | None:
        """Return the conflict with an equally named warehouse in the same Dagster instance, or None."""
        return find_other_in_event(self.materialised.get(self._ranking), self._names)

    @cached_property
    def evaluated(self) -> frozenset[dg.AssetCheckKey]:
        """Keys of the blocking checks of the tables, current and former, that were ever evaluated."""
        return find_evaluated_checks(self.instance, self._layouts)

    @cached_property
    def _backlogs(self) -> Mapping[dg.AssetCheckKey, AssetCheckExecutionRecord]:
        checks = (names.BACKLOG_CHECK, names.SMALL_FILES_CHECK)
        keys = [dg.AssetCheckKey(layout, check) for layout in self._layouts for check in checks]
        return read_newest_records(self.instance, keys)

    def backlog_passes(self, key: dg.AssetCheckKey) -> bool:
        """Return whether a backlog check passed within a day and after the newest materialisation of the layout."""
        record, layout = self._backlogs.get(key), key.asset_key
        if record is None or record.event is None or record.status is not AssetCheckExecutionRecordStatus.SUCCEEDED:
            return False
        last = self.materialised.get(layout)
        day_ago = SystemClock().now_ms() / 1000 - _PASSES_AGAIN_SECONDS
        return record.event.timestamp > max(last.timestamp if last is not None else 0.0, day_ago)

    def partitions(self, key: dg.AssetKey) -> set[str]:
        """Return the partitions of an asset that were ever materialised."""
        return self.instance.get_materialized_partitions(key) if self.materialised.get(key) is not None else set()


def _reported_upkeep(event: dg.EventLogEntry) -> object:
    """Return the text about who compacts the table from a layout's materialisation, or None without this text."""
    made = event.asset_materialization
    value = None if made is None else made.metadata.get("upkeep")
    return None if value is None else value.value


def find_changed_partitions(table: OpenTable, reported_version: str | None, partitions: set[str]) -> set[str]:
    """Return the partitions that writers changed after a data version, "" for an unpartitioned table.

    All partitions are returned if the changes are unknown. This is the case if no version was reported yet, if the
    version has expired, after a rollback to an earlier version, or after more than 200 snapshots.

    Args:
        table: the table.
        reported_version: data version that was last reported, or None.
        partitions: all partitions of the table.
    """
    store, newest = table.store, table.health.data_version
    number = (
        int(reported_version.partition("-")[0])
        if reported_version and reported_version.partition("-")[0].isdigit()
        else None
    )
    if number is None or newest is None or not table.card.partitioned or not 0 <= newest - number <= _FOLLOWED:
        return partitions
    last = snapshots.try_read(store, number)
    if last is None or version_text(last) != reported_version:
        return partitions
    changed: set[str] = set()
    for identifier in range(number + 1, newest + 1):
        snapshot = snapshots.try_read(store, identifier)
        if snapshot is None:
            return partitions
        if changes_data(store, snapshot):
            changed_partitions = pc.unique(manifests.delta_entries(store, snapshot).column("partition")).to_pylist()
            changed.update(partition_names(store.schema, changed_partitions, store.options))
    return changed


def has_no_due_work(table: OpenTable, state: PartitionHealth) -> bool:
    """Return whether the table's own compaction rules find no work in the partition of ``state``."""
    if state.text in table.health.waiting or state.cost_minor:
        return False
    return table.card.append_only or state.sorted_runs < table.store.options.compaction_trigger


def observe_partition(table: OpenTable, layout: dg.AssetKey, state: PartitionHealth) -> dg.AssetObservation:
    """Return the observation of a layout asset, or of one of its partitions.

    It has all health numbers if work is due, else only the plotted ones.

    Args:
        table: the table.
        layout: key of the layout asset.
        state: health of the partition, or of the whole table if it has no partitions.
    """
    health = table.health.of_partition(state.text) if table.card.partitioned else table.health
    metadata = plotted_metadata(health) if has_no_due_work(table, state) else health_metadata(health)
    metadata = {**_partition_entries(table, state.text), **metadata}
    return dg.AssetObservation(layout, partition=state.text if table.card.partitioned else None, metadata=metadata)


def _healthy_metadata(table: OpenTable, health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the plotted numbers of a healthy layout, and who compacts the table unless it is `write-only`."""
    upkeep = {"upkeep": dg.MetadataValue.text(health.upkeep)} if health.upkeep else {}
    return {**plotted_metadata(health), **({} if table.store.options.write_only else upkeep)}


def _partition_entries(table: OpenTable, partition: str) -> dict[str, dg.MetadataValue]:
    """Return metadata with state, reason and next step of a partition, from the table's metadata alone.

    Args:
        table: the table.
        partition: path of the partition, or "" for an unpartitioned table.
    """
    statuses = [*table.statuses.get("", ()), *(table.statuses.get(partition, ()) if partition else ())]
    return _state_entries(table, combine(table.name, statuses))


def _state_entries(table: OpenTable, status: TableStatus) -> dict[str, dg.MetadataValue]:
    now_ms = table.now.table_ms
    return state_metadata(status.line(now_ms), status.next_step(), now_ms)


def _is_quiet(status: TableStatus) -> bool:
    """Return whether a status needs no observation, because the table is calm or events of a run or commit show it."""
    starts = status.state is TableState.DUE and status.place is None
    return starts or status.state.is_calm or status.state is TableState.RUNNING


def backlog_check(table: OpenTable) -> str:
    """Return the name of the check about the table's backlog of files."""
    return names.SMALL_FILES_CHECK if table.card.append_only else names.BACKLOG_CHECK


def evaluate_backlog(table: OpenTable, layout: dg.AssetKey) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the table's backlog check."""
    return evaluation_of(layout, backlog_result(table.store, table.health, table.policy, backlog_check(table)))


def alert_lines(table: OpenTable) -> list[str]:
    """Return the line of a failing backlog check for a tick's log, or an empty list if the check passes."""
    check = backlog_check(table)
    if table.refusal is not None or is_switched_off(table.policy, check):
        return []
    evaluation = evaluate_backlog(table, dg.AssetKey(table.name))
    return [] if evaluation.passed else [f"{table.name}: {check}: {evaluation.description}"]
