"""What the sensors report without a run when a table changed: new data, health that plots, layouts that need nothing, the level-0 alert.

Data assets are materialised here, once per commit of a writer, with its snapshot as the data version, and never by a compaction: so
automation conditions and freshness policies of what hangs on them work, and maintenance triggers nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import dagster as dg
import pyarrow.compute as pc
from dagster._core.definitions.data_version import DATA_VERSION_TAG, extract_data_version_from_entry

from checks.backlog import backlog_evaluation, hides_level0
from checks.tree_invariants import inspect_tree
from lsm_core.format.partition_path import partition_names
from lsm_core.metadata import manifests, snapshots
from orchestration import names
from orchestration.blocked import blocking_failure, latest_evaluation
from orchestration.health import PartitionHealth, changes_data, version_text
from orchestration.metadata import data_metadata, health_metadata
from orchestration.sensors.table_sweep import AssetEvent, OpenTable

HEALTHY: Final = "healthy, nothing to do"
_EVENTS_A_TABLE: Final = 100
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

    def events(self, table: OpenTable, instance: dg.DagsterInstance) -> Iterator[AssetEvent]:
        """Yield materialisations of changed data, health of every changed layout, and an evaluation of the alert; at most 100 partitions a look."""
        health, known = table.health, self._seen.get(table.name)
        version = (health.snapshot, health.commit)
        if known is not None and known[0] == version and not self._unfilled.get(table.name):
            return
        before = known[1] if known is not None else {}
        shapes = {item.text: hash(item.shape) for item in health.partitions}
        self._seen[table.name] = (version, shapes)
        changed = {text for text, shape in shapes.items() if before.get(text) != shape}
        data, layout = names.data_key(self._path, table.name), names.layout_key(self._path, table.name)
        reported = self._written(table, instance, data, set(shapes)) if shapes else set()
        # The newest first: they are what people look for, and an unbounded first tick would be too much for the daemon.
        told = sorted(
            (item for item in health.partitions if item.text in changed | reported),
            key=lambda item: -item.newest_file_ms,
        )
        self._unfilled[table.name] = {item.text for item in told[_EVENTS_A_TABLE:]} & reported
        if health.partitions and not table.card.partitioned:
            yield from self._whole_table(table, instance, data, layout, new_data="" in reported)
        else:
            filled = instance.get_materialized_partitions(layout) if reported else set()
            for state in told[:_EVENTS_A_TABLE]:
                numbers = health_metadata(health.of_partition(state.text))
                if state.text in reported:
                    yield self._materialised(table, data, state.text)
                if state.text in reported - filled and table.refusal is None and needs_nothing(table, state):
                    yield dg.AssetMaterialization(layout, HEALTHY, metadata=numbers, partition=state.text)
                else:
                    yield dg.AssetObservation(layout, partition=state.text, metadata=numbers)
        if table.refusal is None:
            yield alert(table, layout)

    def _written(
        self, table: OpenTable, instance: dg.DagsterInstance, data: dg.AssetKey, partitions: set[str]
    ) -> set[str]:
        """The partitions ("" for a whole table) whose data are to be materialised: those that writers touched since Dagster was told last."""
        missing = set(self._unfilled.get(table.name, ()))
        last = instance.get_latest_materialization_event(data)
        version = extract_data_version_from_entry(last) if last is not None else None
        if table.card.partitioned and table.name not in self._unfilled:  # the first look of this process
            missing |= partitions - instance.get_materialized_partitions(data)
        told = version.value if version is not None else None
        if last is not None and (told == table.health.data_commit or not table.health.data_commit):
            return missing & partitions
        return (missing | touched_since(table, told, partitions)) & partitions

    def _materialised(self, table: OpenTable, data: dg.AssetKey, partition: str | None) -> dg.AssetMaterialization:
        health = table.health
        tags = {DATA_VERSION_TAG: health.data_commit} if health.data_commit else {}
        said = f"snapshot {health.data_version}" if health.data_version is not None else None
        return dg.AssetMaterialization(
            data, said, metadata=data_metadata(health.of_partition(partition)), partition=partition, tags=tags
        )

    def _whole_table(
        self, table: OpenTable, instance: dg.DagsterInstance, data: dg.AssetKey, layout: dg.AssetKey, *, new_data: bool
    ) -> Iterator[AssetEvent]:
        """A table without partitions: its layout is shown as current as long as it needs nothing.

        Once a run materialised it, new data make Dagster call it out of date; one materialisation without a run says that all is well, and the
        blocking checks, whose results Dagster would call those of an older layout, stay in sight: the tree is looked at again, and the
        comparison is the last one that was made.
        """
        if new_data:
            yield self._materialised(table, data, None)
        metadata = health_metadata(table.health)
        (state,) = table.health.partitions
        last = instance.get_latest_materialization_event(layout)
        current = last is not None and (not last.run_id or not new_data)
        if current or table.refusal is not None or not needs_nothing(table, state):
            yield dg.AssetObservation(layout, metadata=metadata)
            return
        buckets, files, broken = inspect_tree(table.store, None)
        if broken or blocking_failure(instance, layout) is not None:  # for the checks themselves to tell, with a run
            yield dg.AssetObservation(layout, metadata=metadata)
            return
        yield dg.AssetMaterialization(layout, HEALTHY, metadata=metadata)
        lie = f"{files} files in {buckets} buckets lie as they should"
        yield dg.AssetCheckEvaluation(asset_key=layout, check_name=names.TREE_CHECK, passed=True, description=lie)
        compared = latest_evaluation(instance, layout, names.MERGED_VIEW_CHECK)
        if compared is not None:
            yield dg.AssetCheckEvaluation(
                asset_key=layout,
                check_name=names.MERGED_VIEW_CHECK,
                passed=compared.passed,
                severity=compared.severity,
                description=compared.description,
                metadata=compared.metadata,
            )


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


def alert(table: OpenTable, layout: dg.AssetKey) -> dg.AssetCheckEvaluation:
    """Return the evaluation of level0_backlog for the table as it was found."""
    hidden = hides_level0(table.store.options)
    return backlog_evaluation(layout, table.health.partitions, table.policy, hidden=hidden)


def alert_lines(table: OpenTable) -> list[str]:
    """Say on every tick what the level-0 alert says, as long as it is not OK."""
    if table.refusal is not None:
        return []
    found = alert(table, dg.AssetKey(table.name))
    return [] if found.passed else [f"{table.name}: {names.BACKLOG_CHECK}: {found.description}"]


__all__ = ["HEALTHY", "HealthReporter", "alert_lines", "needs_nothing", "touched_since"]
