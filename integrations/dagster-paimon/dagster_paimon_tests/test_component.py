"""The resource and the component."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from dagster_paimon import PaimonResource, PaimonTables
from lsm_core import Catalog
from lsm_core.errors import InvalidOption

pytestmark = [  # warnings of Dagster's sandbox
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*CodeReference.*in beta"),
]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    catalog = Catalog(str(tmp_path / "lake"))
    for name in ("shop.orders", "shop.tmp_1", "crm.people"):
        catalog.create_table(
            name, pa.schema([("id", pa.int64()), ("x", pa.string())]), primary_keys=["id"], create_database=True
        )
    return tmp_path / "lake"


def specs(attributes: dict[str, Any]) -> dict[str, dg.AssetSpec]:
    """Return the assets of a component that is declared in a `defs.yaml`."""
    with create_defs_folder_sandbox() as sandbox:
        contents = {"type": "dagster_paimon.PaimonTables", "attributes": attributes}
        path = sandbox.scaffold_component(component_cls=PaimonTables, defs_yaml_contents=contents)
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_tables_are_external_assets(warehouse: Path, caplog: pytest.LogCaptureFixture) -> None:
    (warehouse / "crm.db" / "people" / "schema" / "schema-0").write_text("{")
    found = specs({"warehouse": str(warehouse), "exclude": ["*.tmp_*"]})
    assert list(found) == ["shop/orders"]
    assert "crm.people is left out" in caplog.text
    spec = found["shop/orders"]
    assert spec.group_name == "shop" and "paimon" in spec.kinds
    assert spec.metadata["dagster/table_name"] == "shop.orders"
    columns = spec.metadata["dagster/column_schema"].columns
    assert [(column.name, column.type, column.constraints.nullable) for column in columns] == [
        ("id", "BIGINT NOT NULL", False),
        ("x", "STRING", True),
    ]


def test_translation_from_yaml(warehouse: Path) -> None:
    translation = {
        "key": "lake/{{ props.database }}/{{ props.name }}",
        "owners": ["ann@example.com"],
        "tags": {"layer": "raw"},
    }
    (spec,) = specs({"warehouse": str(warehouse), "include": ["shop.orders"], "translation": translation}).values()
    assert spec.key == dg.AssetKey(["lake", "shop", "orders"])
    assert spec.owners == ["ann@example.com"] and spec.tags["layer"] == "raw"
    assert spec.metadata["dagster/table_name"] == "shop.orders", "the translation keeps the other metadata"


def test_the_resource_opens_tables(warehouse: Path) -> None:
    seen = []

    @dg.asset
    def orders(paimon: PaimonResource) -> None:
        seen.append(paimon.table("shop.orders").primary_keys)

    dg.materialize([orders], resources={"paimon": PaimonResource(warehouse=str(warehouse))})
    assert seen == [("id",)]


def test_an_empty_location_is_refused() -> None:
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        specs({"warehouse": ""})
    assert isinstance(caught.value.__cause__, InvalidOption)
    with pytest.raises(InvalidOption, match="'warehouse' cannot be ' '"):
        PaimonResource(warehouse=" ").catalog()
