"""What leans on Dagster's inside: it does what it says with the version that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.storage import tags
from dagster._serdes import serialize_value

from dredge.assets import table_assets
from dredge.orchestration.definitions import build_definitions
from dredge.orchestration.ops import layout_ops
from dredge.platform_core import dagster_internals
from dredge.platform_core.dagster_internals import (
    ASSET_JOB,
    DATA_VERSION_TAG,
    RUN_KEY_TAG,
    WHOLE_LOCATION,
    FailureHistory,
    report_evaluation_of_run,
)
from dredge.platform_core.names import WarehouseNames
from dredge.platform_core.op_templates import OpTemplate
from tests.support.platform import House, commit, keyed_table, open_house

DAGSTER = ("1.12.22", "1.13.0", "1.13.27")
"""Versions that tests/orchestration, platform_core, checks and assets ran with."""
ORDERS, PLAIN = "shop.orders", "shop.plain"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, ORDERS), 1)
    commit(keyed_table(root, PLAIN, partitioned=False), 1)
    with open_house(root) as found:
        yield found


def decorated_op(template: OpTemplate, name: str, pool: str | None = None) -> dg.OpDefinition:
    """What `OpTemplate.make_op` stands for: the decorated function, which Dagster inspects for each op."""
    op = template.op
    return dg.OpDefinition(
        op.compute_fn,
        name,
        ins=op.ins,
        outs=op.outs,
        description=op.description,
        config_schema=op.config_schema,
        required_resource_keys=op.required_resource_keys,
        tags=op.tags,
        retry_policy=op.retry_policy,
        pool=pool or op.pool,
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Dagster's, of its own schedules
@pytest.mark.parametrize("name", [None, "lake"])
def test_what_tables_share_is_told_to_dagster_as_if_each_had_its_own(
    house: House, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    def told() -> str:
        variables = {"DREDGE_WAREHOUSE": str(house.root), **({"DREDGE_WAREHOUSE_NAME": name} if name else {})}
        found = build_definitions({}, variables=variables)
        return serialize_value(RepositorySnap.from_def(found.get_repository_def()))

    shared = told()
    monkeypatch.setattr(OpTemplate, "make_op", decorated_op)
    assert "apply__shop__orders" in shared
    assert told() == shared


def test_a_layout_has_the_graph_that_dagster_composes() -> None:
    warehouse_names = WarehouseNames("/wh")
    graph = layout_ops.layout_graph(ORDERS, warehouse_names)
    observe, plan, verify, record = (
        op.alias(op.name)
        for op in (layout_ops.observe_op, layout_ops.plan_op, layout_ops.verify_op, layout_ops.record_op)
    )
    apply = layout_ops.apply_op(ORDERS, warehouse_names).alias("apply")

    @dg.graph(name=graph.name, ins={"data": dg.GraphIn()})
    def composed(data: object) -> object:
        report = apply(plan(observe(data)))
        return record(report, verify(report))

    assert {key.alias: dict(value) for key, value in graph.dependencies.items()} == {
        key.alias: dict(value) for key, value in composed.dependencies.items()
    }
    for found in (graph, composed):
        (data,), (result,) = found.input_mappings, found.output_mappings
        assert (data.graph_input_name, data.mapped_node_name, data.mapped_node_input_name) == (
            "data",
            "observe",
            "data",
        )
        assert (result.mapped_node_name, result.mapped_node_output_name) == ("record", "result")
    assert {node.name for node in graph.nodes} == {"observe", "plan", "apply", "verify", "record"}


def test_a_resource_that_is_missing_is_named_for_shared_definitions(house: House) -> None:
    layout = table_assets.layout_asset(
        house.warehouse.card(ORDERS), house.warehouse.names, layout_ops.layout_graph(ORDERS, house.warehouse.names)
    )
    given = dg.Definitions(assets=[layout], resources={"warehouse": house.warehouse})
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'spark'"):
        given.get_repository_def().get_all_jobs()


def test_these_tests_are_of_the_version_that_is_installed() -> None:
    assert dg.__version__ in DAGSTER, (
        "look at platform_core/dagster_internals.py and orchestration/launcher.py again, then add the number"
    )


def test_the_names_that_dagster_shows_are_those_of_the_constants() -> None:
    @dg.asset
    def one() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion("7"))

    defs = dg.Definitions(assets=[one])
    assert defs.get_repository_def().name == WHOLE_LOCATION
    assert defs.resolve_implicit_global_asset_job_def().name == ASSET_JOB
    (made,) = dg.materialize([one]).asset_materializations_for_node("one")
    assert (made.tags or {})[DATA_VERSION_TAG] == "7"
    assert RUN_KEY_TAG == tags.RUN_KEY_TAG


def test_dagster_asks_for_each_asset_whether_check_results_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, Dagster remembers the answer itself, and `FleetInstance` is not needed any more."""
    asked = []
    with dg.DagsterInstance.ephemeral() as instance:
        kind = type(instance.event_log_storage)
        monkeypatch.setattr(kind, "supports_asset_checks", property(lambda _: asked.append(1) or True))
        for _ in range(3):
            instance.get_asset_check_support()
    assert len(asked) == 3


def test_failures_are_read_again_only_after_a_newer_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    history, layout = FailureHistory(), dg.AssetKey(["wh", "shop", "orders_layout"])
    check, other = dg.AssetCheckKey(layout, "tree_is_valid"), dg.AssetCheckKey(layout, "never_evaluated")

    def report(partition: str | None, *, passed: bool) -> None:
        evaluation = dg.AssetCheckEvaluation(
            asset_key=layout, check_name=check.name, passed=passed, metadata={}, partition=partition
        )
        run = dg.DagsterRun(job_name="any")
        instance.add_run(run)
        report_evaluation_of_run(instance, run, evaluation)

    with dg.DagsterInstance.ephemeral() as instance:
        read: list[dg.AssetCheckKey] = []
        kind = type(instance.event_log_storage)
        original = kind.get_asset_check_execution_history

        def count(storage: object, key: dg.AssetCheckKey, **settings: object) -> object:
            read.append(key)
            return original(storage, key, **settings)

        monkeypatch.setattr(kind, "get_asset_check_execution_history", count)
        report("dt=a", passed=True)
        assert history.find_failed_places(instance, [check, other]) == []
        report("dt=a", passed=False)
        report(None, passed=False)
        report("dt=b", passed=True)
        places = [(check, None), (check, "dt=a")]
        assert [history.find_failed_places(instance, [check, other]) for _ in range(3)] == [places] * 3
        assert read == [check, check]
        monkeypatch.setattr(dagster_internals.time, "monotonic", lambda: float("inf"))
        assert history.find_failed_places(instance, [check]) == places
        assert len(read) == 3
    with dg.DagsterInstance.ephemeral() as instance:
        report("dt=a", passed=True)
        assert history.find_failed_places(instance, [check]) == []
