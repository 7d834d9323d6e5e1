"""What leans on Dagster's inside: it does what it says with the version that is installed."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._serdes import serialize_value

from assets import table_assets
from checks import definition
from orchestration import names, quirks
from orchestration.definitions import build_definitions
from tests.docs.pages import ROOT
from tests.support.platform import House, commit, keyed_table, open_house

DAGSTER = "1.13.27"
ORDERS, PLAIN = "shop.orders", "shop.plain"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, ORDERS), 1)
    commit(keyed_table(root, PLAIN, partitioned=False), 1)
    with open_house(root) as found:
        yield found


def purge(instance: dg.DagsterInstance, root: Path, **ago: float) -> int:
    return quirks.purge_events(
        instance,
        names.warehouse_name(str(root)),
        datetime.datetime.now(datetime.UTC) - datetime.timedelta(**ago),
    )


def reported(house: House) -> Counter[str]:
    """How many events Dagster holds of the tables' assets and checks, by kind."""
    found: Counter[str] = Counter()
    for table in (ORDERS, PLAIN):
        for key in (house.layout(table), names.data_key(str(house.root), table)):
            found["materialised"] += len(house.instance.fetch_materializations(key, limit=100).records)
            found["observed"] += len(house.instance.fetch_observations(key, limit=100).records)
        check = dg.AssetCheckKey(house.layout(table), names.BACKLOG_CHECK)
        storage = house.instance.event_log_storage
        found["checked"] += len(storage.get_asset_check_execution_history(check, limit=100))
    return found


def events_of_checks(house: House) -> int:
    """How many evaluations the event log holds, which finds them by no asset: what is forgotten there stays for good."""
    storage, events = house.instance.event_log_storage, SqlEventLogStorageTable
    assert isinstance(storage, SqlEventLogStorage)
    wanted = events.c.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
    with storage.index_connection() as connection:
        return len(connection.execute(sa.select(events.c.id).where(wanted)).fetchall())


def purge_keeps_the_newest(house: House) -> None:
    """Reports three commits of two tables; purged, the newest event of each kind is left, and ticks go on as before."""
    tables = [house.warehouse.table(name) for name in (ORDERS, PLAIN)]
    house.tick(names.SORTED_RUN_SENSOR)
    once = events_of_checks(house)
    warned = dg.AssetCheckEvaluation(
        asset_key=house.layout(ORDERS),
        check_name=names.BACKLOG_CHECK,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
    )
    for _ in range(2):
        for table in tables:
            commit(table)
        house.instance.report_runless_asset_event(warned)
        house.tick(names.SORTED_RUN_SENSOR)
    strange = dg.AssetKey(["elsewhere", "shop", "orders"])
    for number in range(3):
        house.instance.report_runless_asset_event(dg.AssetObservation(strange, metadata={"number": number}))
    before = reported(house)
    assert before["checked"] == 2 + 2 * 2, "what passes still is told once"
    assert before["materialised"] == 8
    assert events_of_checks(house) == once + 2 * 2
    assert purge(house.instance, house.root, hours=1) == 0
    assert reported(house) == before

    versions = house.instance.get_latest_data_version_record(names.data_key(str(house.root), ORDERS))
    assert purge(house.instance, house.root, hours=-1) > 0
    left = reported(house)
    assert left["checked"] == 2, "one of each check"
    assert events_of_checks(house) == once
    assert left["materialised"] == 4, "of data and layout"
    assert left["observed"] <= 2
    assert purge(house.instance, house.root, hours=-1) == 0
    assert len(house.instance.fetch_observations(strange, limit=10).records) == 3, "somebody else's"
    assert house.instance.get_latest_data_version_record(names.data_key(str(house.root), ORDERS)) == versions
    assert house.instance.get_materialized_partitions(names.data_key(str(house.root), ORDERS)) == {"dt=a"}
    house.load()
    assert not [event for event in house.tick(names.SORTED_RUN_SENSOR).asset_events if "data" in str(event.asset_key)]


def test_purging_keeps_the_newest_of_each_kind_and_what_is_somebody_else_s(house: House) -> None:
    purge_keeps_the_newest(house)


def test_what_sqlite_keeps_twice_goes_however_new(house: House) -> None:
    strange = dg.AssetObservation(dg.AssetKey(["elsewhere", "shop", "orders"]))
    house.instance.report_runless_asset_event(strange)
    house.tick(names.SORTED_RUN_SENSOR)
    kept, before = house.instance.all_logs(""), reported(house)
    assert len(kept) > sum(before.values()) - 1
    assert purge(house.instance, house.root, hours=1) == 0
    (left,) = house.instance.all_logs("")
    assert left.asset_observation == strange
    assert reported(house) == before


def plain_graph(template: dg.GraphDefinition, name: str, ops: Mapping[str, dg.OpDefinition]) -> dg.GraphDefinition:
    """What `named_graph` stands for, made from the beginning."""
    nodes = {node: ops.get(node, found.definition) for node, found in template.node_dict.items()}
    return dg.GraphDefinition(
        name=name,
        node_defs=list(nodes.values()),
        dependencies={
            dg.NodeInvocation(nodes[str(invocation.alias)].name, alias=invocation.alias): inputs
            for invocation, inputs in template.dependencies.items()
            if isinstance(invocation, dg.NodeInvocation)
        },
        input_mappings=template.input_mappings,
        output_mappings=template.output_mappings,
        config=template.config_mapping,
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Dagster's, of its own schedules
def test_what_tables_share_is_told_to_dagster_as_if_each_had_its_own(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        found = build_definitions({"DREDGE_WAREHOUSE": str(house.root)})
        return serialize_value(RepositorySnap.from_def(found.get_repository_def()))

    shared = told()
    monkeypatch.setattr(table_assets, "named_graph", plain_graph)
    monkeypatch.setattr(table_assets, "TableAssets", dg.AssetsDefinition)
    monkeypatch.setattr(definition, "TableChecks", dg.AssetChecksDefinition)
    assert "apply__shop__orders" in shared
    assert told() == shared


def test_a_resource_that_is_missing_is_named_for_shared_definitions(house: House) -> None:
    layout = table_assets.layout_asset(house.warehouse.card(ORDERS), str(house.root))
    given = dg.Definitions(assets=[layout], resources={"warehouse": house.warehouse})
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'spark'"):
        given.get_repository_def().get_all_jobs()


def test_these_tests_are_of_the_version_that_is_installed() -> None:
    assert dg.__version__ == DAGSTER, (
        "look at orchestration/quirks.py and orchestration/launcher.py again, then change the number"
    )


def test_nothing_else_leans_on_dagster_s_inside() -> None:
    leaning = {
        path.relative_to(ROOT).as_posix()
        for folder in ("orchestration", "assets", "checks", "lsm_core")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"(from|import) dagster\._", path.read_text())
    }
    assert leaning == {"orchestration/quirks.py", "orchestration/launcher.py"}
