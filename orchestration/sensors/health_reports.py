"""What the sensors report without a run when a table changed: new data, health that plots, layouts that need nothing, the level-0 alert.

Data assets are materialised here, once per commit of a writer, with its snapshot as the data version, and never by a compaction: so
automation conditions and freshness policies of what hangs on them work, and maintenance triggers nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import dagster as dg
import pyarrow.compute as pc

from checks.backlog import LEVEL0_FILES, SMALL_FILES, THRESHOLD
from checks.definition import evaluation_of, is_off
from checks.layout_checks import condition_checks, condition_result
from checks.tree_invariants import inspect_tree
from lsm_core.clock import SystemClock
from lsm_core.format.partition_path import partition_names
from lsm_core.metadata import manifests, snapshots
from orchestration import names
from orchestration.blocked import blocking_failure, ever_evaluated, latest_evaluation, other_in
from orchestration.health import PartitionHealth, changes_data, version_text
from orchestration.metadata import data_metadata, health_metadata, plotted_metadata
from orchestration.quirks import (
    DATA_VERSION_TAG,
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
    extract_data_version_from_entry,
)
from orchestration.sensors.looks import OpenTable

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
HEALTHY: Final = "healthy, nothing to do"
_EVENTS_A_TABLE: Final = 100
_PASSES_AGAIN_SECONDS: Final = 86_400.0
"""An alert that still passes says nothing new: telling it with every commit would be a fifth of all that Dagster stores."""
_FOLLOWED: Final = 200
"""How many snapshots a look follows one by one to find the partitions that writers touched; past that all partitions count."""


class HealthReporter:
    """Reports what changed since this process looked last; of every partition it keeps the hash of its shape alone.

    What Dagster was told before this process began is asked of Dagster, so a restart repeats no data version.
    """

    def __init__(self, warehouse_path: str) -> None:
        self._path = warehouse_path
        self._seen: dict[str, tuple[tuple[int | None, str], dict[str, int]]] = {}
        self._unfilled: dict[str, set[str]] = {}

    def has_news(self, table: OpenTable) -> bool:
        """Whether `events` of the table may be any."""
        known = self._seen.get(table.name)
        version = (table.health.snapshot, table.health.commit)
        return known is None or known[0] != version or bool(self._unfilled.get(table.name))

    def last_reports(self, tables: Sequence[OpenTable], instance: dg.DagsterInstance) -> LastReports:
        """Return what Dagster holds of the tables, for `events`; its storage is asked when the first answer is needed."""
        return LastReports(instance, self._path, tables)

    def events(self, tables: Sequence[OpenTable], reports: LastReports) -> Iterator[AssetEvent]:
        """Yield materialisations of changed data, health of every changed layout, and an evaluation of the alert; at most 100 partitions a table and look.

        An alert that passes is repeated only from half of its limit on, with a materialisation of the layout, or after a day.

        Args:
            tables: tables that changed since this process looked last.
            reports: what `last_reports` returned for these tables.
        """
        for table in tables:
            if self.has_news(table):
                yield from self._events_and_alert(table, reports)

    def _events_and_alert(self, table: OpenTable, reports: LastReports) -> Iterator[AssetEvent]:
        layout, layout_materialised = names.layout_key(self._path, table.name), False
        for event in self._events(table, reports, layout):
            layout_materialised |= isinstance(event, dg.AssetMaterialization) and event.asset_key == layout
            yield event
        if table.refusal is not None or is_off(table.policy, backlog_check(table)):
            return
        found = alert(table, layout)
        counted = SMALL_FILES if table.card.append_only else LEVEL0_FILES
        files, limit = (int(str(found.metadata[name].value)) for name in (counted, THRESHOLD))
        if (
            layout_materialised
            or not found.passed
            or 2 * files >= limit
            or not reports.backlog_passes(found.asset_check_key)
        ):
            yield found

    def _events(self, table: OpenTable, reports: LastReports, layout: dg.AssetKey) -> Iterator[AssetEvent]:
        health, known = table.health, self._seen.get(table.name)
        before = known[1] if known is not None else {}
        shapes = {item.text: hash(item.shape) for item in health.partitions}
        self._seen[table.name] = ((health.snapshot, health.commit), shapes)
        changed = {text for text, shape in shapes.items() if before.get(text) != shape}
        data = names.data_key(self._path, table.name)
        reported = self._written(table, reports, data, set(shapes)) if shapes else set()
        # The newest first: they are what people look for, and an unbounded first tick would be too much for the daemon.
        due = sorted(
            (item for item in health.partitions if item.text in changed | reported),
            key=lambda item: -item.newest_file_ms,
        )
        self._unfilled[table.name] = {item.text for item in due[_EVENTS_A_TABLE:]} & reported
        if health.partitions and not table.card.partitioned:
            yield from self._whole_table(table, reports, data, layout, new_data="" in reported)
        else:
            filled = reports.partitions(layout) if reported else set()
            for state in due[:_EVENTS_A_TABLE]:
                if state.text in reported:
                    yield self._materialised(table, data, state.text)
                if state.text in reported - filled and table.refusal is None and needs_nothing(table, state):
                    numbers = health_metadata(health.of_partition(state.text))
                    yield dg.AssetMaterialization(layout, HEALTHY, metadata=numbers, partition=state.text)
                else:
                    yield observation(table, layout, state)

    def _written(self, table: OpenTable, reports: LastReports, data: dg.AssetKey, partitions: set[str]) -> set[str]:
        """The partitions ("" for a whole table) whose data are to be materialised: those that writers touched since Dagster was told last."""
        missing = set(self._unfilled.get(table.name, ()))
        last = reports.materialised.get(data)
        version = extract_data_version_from_entry(last) if last is not None else None
        if table.card.partitioned and table.name not in self._unfilled:  # the first look of this process
            missing |= partitions - reports.partitions(data)
        said = version.value if version is not None else None
        if last is not None and (said == table.health.data_commit or not table.health.data_commit):
            return missing & partitions
        return (missing | touched_since(table, said, partitions)) & partitions

    def _materialised(self, table: OpenTable, data: dg.AssetKey, partition: str | None) -> dg.AssetMaterialization:
        health = table.health
        tags = {DATA_VERSION_TAG: health.data_commit} if health.data_commit else {}
        said = f"snapshot {health.data_version}" if health.data_version is not None else None
        return dg.AssetMaterialization(
            data, said, metadata=data_metadata(health.of_partition(partition)), partition=partition, tags=tags
        )

    def _whole_table(
        self, table: OpenTable, reports: LastReports, data: dg.AssetKey, layout: dg.AssetKey, *, new_data: bool
    ) -> Iterator[AssetEvent]:
        """A table without partitions: its layout is shown as current as long as it needs nothing.

        Once a run materialised it, new data make Dagster call it out of date; one materialisation without a run says that all is well, and the
        blocking checks, whose results Dagster would call those of an older layout, stay in sight: the tree is looked at again, and the
        comparison is the last one that was made.
        """
        if new_data:
            yield self._materialised(table, data, None)
        (state,) = table.health.partitions
        last = reports.materialised.get(layout)
        current = last is not None and (not last.run_id or not new_data)
        if current or table.refusal is not None or not needs_nothing(table, state):
            yield observation(table, layout, state)
            return
        buckets, files, broken = inspect_tree(table.store, None)
        if broken or blocking_failure(reports.instance, layout, evaluated=reports.evaluated) is not None:
            yield observation(table, layout, state)  # for the checks themselves to tell, with a run
            return
        yield dg.AssetMaterialization(layout, HEALTHY, metadata=health_metadata(table.health))
        lie = f"{files} files in {buckets} buckets lie as they should"
        yield dg.AssetCheckEvaluation(asset_key=layout, check_name=names.TREE_CHECK, passed=True, description=lie)
        for check in condition_checks(table.card, table.policy):
            if check != backlog_check(table):  # told after every look
                yield evaluation_of(layout, condition_result(table.store, table.health, table.policy, check))
        if dg.AssetCheckKey(layout, names.MERGED_VIEW_CHECK) not in reports.evaluated:
            return
        compared = latest_evaluation(reports.instance, layout, names.MERGED_VIEW_CHECK)
        if compared is not None:
            yield dg.AssetCheckEvaluation(
                asset_key=layout,
                check_name=names.MERGED_VIEW_CHECK,
                passed=compared.passed,
                severity=compared.severity,
                description=compared.description,
                metadata=compared.metadata,
            )


class LastReports:
    """Newest reports that Dagster holds of some tables and of the ranking of the warehouse: one query for all of them, made when the first answer is needed.

    Attributes:
        instance: Dagster instance that is asked.
    """

    def __init__(self, instance: dg.DagsterInstance, warehouse_path: str, tables: Sequence[OpenTable]) -> None:
        self.instance = instance
        self._path = warehouse_path
        self._data = [names.data_key(warehouse_path, table.name) for table in tables]
        self._layouts = [names.layout_key(warehouse_path, table.name) for table in tables]
        self._ranking = names.warehouse_health_key(warehouse_path)

    @cached_property
    def materialised(self) -> Mapping[dg.AssetKey, dg.EventLogEntry | None]:
        """The newest materialisation of the data and of the layout of each table, and of the ranking; none of what never was."""
        keys = [*self._data, *self._layouts, self._ranking]
        return self.instance.event_log_storage.get_latest_materialization_events(keys)

    def other_warehouse(self) -> str | None:
        """Return what `orchestration.blocked.other_warehouse` does."""
        return other_in(self.materialised.get(self._ranking), self._path)

    @cached_property
    def evaluated(self) -> frozenset[dg.AssetCheckKey]:
        """See `ever_evaluated`."""
        return ever_evaluated(self.instance, self._layouts)

    @cached_property
    def _backlogs(self) -> Mapping[dg.AssetCheckKey, AssetCheckExecutionRecord]:
        checks = (names.BACKLOG_CHECK, names.SMALL_FILES_CHECK)
        keys = [dg.AssetCheckKey(layout, check) for layout in self._layouts for check in checks]
        return self.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)

    def backlog_passes(self, key: dg.AssetCheckKey) -> bool:
        """Return whether the newest evaluation of that alert passed, within a day and after its layout was materialised last."""
        record, layout = self._backlogs.get(key), key.asset_key
        if record is None or record.event is None or record.status is not AssetCheckExecutionRecordStatus.SUCCEEDED:
            return False
        last = self.materialised.get(layout)
        day_ago = SystemClock().now_ms() / 1000 - _PASSES_AGAIN_SECONDS
        return record.event.timestamp > max(last.timestamp if last is not None else 0.0, day_ago)

    def partitions(self, key: dg.AssetKey) -> set[str]:
        """The partitions of an asset that were ever materialised."""
        return self.instance.get_materialized_partitions(key) if self.materialised.get(key) is not None else set()


def touched_since(table: OpenTable, told: str | None, partitions: set[str]) -> set[str]:
    """Return the partitions ("" for a whole table) that writers touched after the data version ``told``.

    All of them where that cannot be known: nothing was told yet, the version has expired, or the table was rolled back behind it.
    """
    store, newest = table.store, table.health.data_version
    number = int(told.partition("-")[0]) if told and told.partition("-")[0].isdigit() else None
    if number is None or newest is None or not table.card.partitioned or not 0 <= newest - number <= _FOLLOWED:
        return partitions
    last = snapshots.try_read(store, number)
    if last is None or version_text(last) != told:
        return partitions
    found: set[str] = set()
    for identifier in range(number + 1, newest + 1):
        snapshot = snapshots.try_read(store, identifier)
        if snapshot is None:
            return partitions
        if changes_data(store, snapshot):
            touched = pc.unique(manifests.delta_entries(store, snapshot).column("partition")).to_pylist()
            found.update(partition_names(store.schema, touched, store.options))
    return found


def needs_nothing(table: OpenTable, state: PartitionHealth) -> bool:
    """Whether the table's own rules find nothing to do in the partition."""
    if state.text in table.health.waiting or state.cost_minor:
        return False
    return table.card.append_only or state.sorted_runs < table.store.options.compaction_trigger


def observation(table: OpenTable, layout: dg.AssetKey, state: PartitionHealth) -> dg.AssetObservation:
    """Return how a layout, or its partition, was found: everything that is known where something is due, else the numbers by which it is followed."""
    health = table.health.of_partition(state.text) if table.card.partitioned else table.health
    told = plotted_metadata(health) if needs_nothing(table, state) else health_metadata(health)
    return dg.AssetObservation(layout, partition=state.text if table.card.partitioned else None, metadata=told)


def backlog_check(table: OpenTable) -> str:
    """Return the check that tells of the table's pile of files."""
    return names.SMALL_FILES_CHECK if table.card.append_only else names.BACKLOG_CHECK


def alert(table: OpenTable, layout: dg.AssetKey) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the table's pile of files as it was found."""
    return evaluation_of(layout, condition_result(table.store, table.health, table.policy, backlog_check(table)))


def alert_lines(table: OpenTable) -> list[str]:
    """Say on every tick what the alert of the pile of files says, as long as it is not OK."""
    check = backlog_check(table)
    if table.refusal is not None or is_off(table.policy, check):
        return []
    found = alert(table, dg.AssetKey(table.name))
    return [] if found.passed else [f"{table.name}: {check}: {found.description}"]


__all__ = ["HEALTHY", "HealthReporter", "LastReports", "alert_lines", "needs_nothing", "touched_since"]
