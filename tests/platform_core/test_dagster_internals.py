"""What leans on Dagster's inside: it does what it says with the version that is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from dredge.assets import table_assets
from dredge.checks import definition
from dredge.orchestration.definitions import build_definitions
from dredge.orchestration.ops import layout_ops
from tests.docs.pages import ROOT
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
    monkeypatch.setattr(layout_ops, "copy_graph", plain_graph)
    monkeypatch.setattr(table_assets, "TableAssets", dg.AssetsDefinition)
    monkeypatch.setattr(definition, "TableChecks", dg.AssetChecksDefinition)
    assert "apply__shop__orders" in shared
    assert told() == shared


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


def test_nothing_else_leans_on_dagster_s_inside() -> None:
    leaning = {
        path.relative_to(ROOT).as_posix()
        for folder in ("orchestration", "platform_core", "assets", "checks", "lsm_core")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"(from|import) dagster\._", path.read_text())
    }
    configured = {"orchestration/instance.py", "orchestration/launcher.py"}  # classes that `dagster.yaml` may name
    assert leaning == {"platform_core/dagster_internals.py", *configured}
