"""Loading the code location: a stored listing spares opening tables that did not change, and a run's process describes its own tables alone."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from unittest import mock

import dagster as dg
import pytest

from dredge.orchestration.definitions import build_definitions, defs, find_required_assets
from dredge.orchestration.jobs import jobs_without_assets
from dredge.orchestration.launcher import _run_variables
from dredge.orchestration.sensors import catalog_sensor
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.policies import Policies, policy_source
from dredge.platform_core.resources import WarehouseResource, describe_warehouse
from dredge.platform_core.resources.listing import describe_with_listing, listing_file, remove_from_listing
from dredge.platform_core.resources.settings import Settings, run_assets
from lsm_core import Catalog, SchemaChange
from lsm_core.table import catalog as catalogs
from tests.support.platform import append_table, commit, keyed_table
from tests.support.samples import one_in

ORDERS, PLAIN, LOG = "shop.orders", "shop.plain", "shop.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "wh"
    for table in (keyed_table(root, ORDERS), keyed_table(root, PLAIN, partitioned=False), append_table(root, LOG)):
        commit(table)
    return root


@pytest.fixture
def warehouse(root: Path) -> WarehouseResource:
    return WarehouseResource(path=str(root))


@pytest.fixture
def file(tmp_path: Path, warehouse: WarehouseResource) -> Path:
    found = listing_file({"DAGSTER_HOME": str(tmp_path / "home")}, warehouse)
    assert found is not None
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each table is opened, by name."""
    calls: Counter[str] = Counter()
    real = catalogs.Catalog.table

    def table(catalog: Catalog, name: str) -> object:
        calls[name] += 1
        return real(catalog, name)

    monkeypatch.setattr(catalogs.Catalog, "table", table)
    return calls


def test_what_did_not_change_is_opened_once_and_described_alike_ever_after(
    warehouse: WarehouseResource, file: Path, opened: Counter[str]
) -> None:
    first = describe_with_listing(warehouse, file)
    assert opened == {LOG: 1, ORDERS: 1, PLAIN: 1}
    assert describe_with_listing(warehouse, file) == first == describe_warehouse(warehouse)
    assert opened == {LOG: 2, ORDERS: 2, PLAIN: 2}, "by describe_warehouse alone"


def test_a_table_that_is_altered_new_or_another_under_its_name_is_opened(
    root: Path, warehouse: WarehouseResource, file: Path, opened: Counter[str]
) -> None:
    describe_with_listing(warehouse, file)
    catalog = Catalog(str(root))
    catalog.alter_table(ORDERS, [SchemaChange.set_comment("all of them")])
    catalog.drop_table(PLAIN)
    keyed_table(root, "shop.new")
    opened.clear()
    cards = {card.name: card for card in describe_with_listing(warehouse, file)}
    assert opened == {ORDERS: 1, "shop.new": 1}
    assert cards.keys() == {LOG, ORDERS, "shop.new"}
    assert cards[ORDERS].comment == "all of them"

    catalog.drop_table(ORDERS)
    keyed_table(root, ORDERS, partitioned=False)
    found = describe_with_listing(warehouse, file)
    assert not next(card for card in found if card.name == ORDERS).partitioned
    assert found == describe_warehouse(warehouse)


def test_tables_that_are_left_alone_are_looked_at_every_time(
    root: Path, warehouse: WarehouseResource, file: Path, opened: Counter[str]
) -> None:
    schema = root / "shop.db" / "orders" / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"bucket"', '"commit.callbacks" : "a.B", "bucket"'))
    (root / "shop.db" / "plain" / "schema" / "schema-0").write_text("{")
    describe_with_listing(warehouse, file)
    opened.clear()
    cards = {card.name: card for card in describe_with_listing(warehouse, file)}
    assert opened == {ORDERS: 1, PLAIN: 1}
    assert "commit callbacks" in str(cards[ORDERS].refusal)
    assert cards[PLAIN].unreadable


@pytest.mark.parametrize(
    "content", one_in(2, ["", "{", "[]", '{"form": [], "tables": {}}', '{"form": null}', "\x00"], 1)
)
def test_a_spoilt_listing_costs_opening_the_tables_and_nothing_else(
    warehouse: WarehouseResource, file: Path, opened: Counter[str], content: str
) -> None:
    first = describe_with_listing(warehouse, file)
    good = file.read_text()
    file.write_text(content)
    assert describe_with_listing(warehouse, file) == first
    assert file.read_text() == good
    file.write_text(json.dumps({**json.loads(good), "tables": {ORDERS: [[], {"columns": 1}]}}))
    assert describe_with_listing(warehouse, file) == first


def test_where_it_cannot_be_kept_the_warehouse_loads_all_the_same(warehouse: WarehouseResource, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, not a folder")
    file = listing_file({"DAGSTER_HOME": str(tmp_path / "home")}, warehouse)
    assert len(describe_with_listing(warehouse, file)) == 3
    assert listing_file({}, warehouse) is None
    assert listing_file({"DAGSTER_HOME": "/h"}, warehouse) != listing_file(
        {"DAGSTER_HOME": "/h"}, WarehouseResource(path=warehouse.path, catalog_options={"cache": "x"})
    )


def test_the_catalog_sensor_takes_what_changed_out_of_the_listing(
    root: Path, warehouse: WarehouseResource, file: Path, opened: Counter[str]
) -> None:
    cards = describe_with_listing(warehouse, file)
    stale = [card if card.name != ORDERS else type(card)(ORDERS) for card in cards]
    sensor = catalog_sensor(stale, warehouse.names, policy_source(""), Settings(), Policies(), file)
    with dg.build_sensor_context(resources={"warehouse": warehouse}) as context:
        message = sensor(context)
    assert isinstance(message, dg.SkipReason)
    assert f"{ORDERS}: its schema or options changed" in str(message.skip_message)
    opened.clear()
    describe_with_listing(warehouse, file)
    assert opened == {ORDERS: 1}
    remove_from_listing(file, ["shop.unheard_of"])
    remove_from_listing(None, [ORDERS])


def test_a_run_s_process_describes_the_tables_of_the_run_alone(root: Path, opened: Counter[str]) -> None:
    layout, data = (
        names.WarehouseNames.of(str(root)).layout_key(ORDERS),
        names.WarehouseNames.of(str(root)).data_key(ORDERS),
    )
    run = dg.DagsterRun("job", asset_selection={layout})
    environment = {"DREDGE_WAREHOUSE": str(root), "DREDGE_RUNNER": "local", **_run_variables(run)}
    assert run_assets(environment) == {layout}
    with mock.patch.dict(os.environ, environment):
        repository = defs().get_repository_def()
    assert opened == {ORDERS: 1}
    assert {key for key in repository.asset_graph.get_all_asset_keys() if len(key.path) == 3} == {layout, data}
    assert repository.get_job("retention")

    checks = dg.DagsterRun("job", asset_check_selection={dg.AssetCheckKey(data, names.SUITE_CHECK)})
    assert run_assets(_run_variables(checks)) == {data}
    assert run_assets(_run_variables(dg.DagsterRun("job"))) is None


def test_a_run_of_a_job_without_assets_describes_no_table_and_does_its_work(root: Path, opened: Counter[str]) -> None:
    place = {"DREDGE_WAREHOUSE": str(root), "DREDGE_RUNNER": "local"}
    commit(Catalog(str(root)).table(ORDERS), 2)
    whole = build_definitions(place).get_repository_def()
    own = {job.name for job in whole.get_all_jobs()} - {names.WAREHOUSE_HEALTH, ASSET_JOB}
    assert jobs_without_assets() == own
    opened.clear()
    with mock.patch.dict(os.environ, {**place, **_run_variables(dg.DagsterRun("compact"))}):
        repository = defs().get_repository_def()
    assert not opened
    assert not repository.asset_graph.get_all_asset_keys()
    with dg.DagsterInstance.ephemeral() as instance:
        done = repository.get_job("compact").execute_in_process(
            instance=instance, run_config={"table": ORDERS, "full": True}, raise_on_error=False
        )
        assert done.success
        result = instance.get_latest_materialization_event(names.WarehouseNames.of(str(root)).layout_key(ORDERS))
        assert result is not None and result.asset_materialization is not None
    assert find_required_assets({**place, **_run_variables(dg.DagsterRun(ASSET_JOB))}) is None, "it may be any asset"

    ranking = names.WarehouseNames.of(str(root)).warehouse_health_key()
    with mock.patch.dict(os.environ, {**place, **_run_variables(dg.DagsterRun(names.WAREHOUSE_HEALTH))}):
        repository = defs().get_repository_def()
    assert repository.asset_graph.get_all_asset_keys() == {ranking}
    with dg.DagsterInstance.ephemeral() as instance:
        assert repository.get_job(names.WAREHOUSE_HEALTH).execute_in_process(instance=instance).success
        newest = instance.get_latest_materialization_event(ranking)
        assert newest is not None and newest.asset_materialization is not None
        assert ORDERS in str(newest.asset_materialization.metadata["tables"].value)


def test_a_run_of_a_table_that_is_gone_says_so(root: Path) -> None:
    """The web server and the daemon know the table until they load again."""
    catalog = Catalog(str(root))
    for table in (ORDERS, PLAIN):
        catalog.drop_table(table)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(names.WarehouseNames.of("").partitions_name(ORDERS), ["dt=a"])
        for table, partition in ((ORDERS, "dt=a"), (PLAIN, None)):
            layout = names.WarehouseNames.of(str(root)).layout_key(table)
            tags = {names.PARTITION_TAG: partition} if partition else {}
            result = _run_variables(dg.DagsterRun("job", asset_selection={layout}, tags=tags))
            with mock.patch.dict(os.environ, {"DREDGE_WAREHOUSE": str(root), "DREDGE_RUNNER": "local", **result}):
                repository = defs().get_repository_def()
            with dg.partition_loading_context(dynamic_partitions_store=instance):
                done = repository.get_job(ASSET_JOB).execute_in_process(
                    instance=instance, asset_selection=[layout], partition_key=partition, raise_on_error=False
                )
            assert done.success
            stored = instance.get_run_by_id(done.run_id)
            assert stored is not None
            assert stored.tags[names.TAG_REASON].startswith(f"nothing to do: table {table} is not in {root}")


def test_a_run_that_makes_anything_else_finds_all_tables(root: Path) -> None:
    environment = {"DREDGE_WAREHOUSE": str(root), "DREDGE_RUNNER": "local"}
    layout = names.WarehouseNames.of(str(root)).layout_key(ORDERS)
    for other in (names.WarehouseNames.of(str(root)).warehouse_health_key(), dg.AssetKey(["reports", "revenue"])):
        found = build_definitions(environment, only=[layout, other]).resolve_asset_graph().get_all_asset_keys()
        assert {names.WarehouseNames.of(str(root)).layout_key(name) for name in (ORDERS, PLAIN, LOG)} <= found


def test_nobody_else_on_the_machine_reads_the_listing(warehouse: WarehouseResource, file: Path) -> None:
    describe_with_listing(warehouse, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
