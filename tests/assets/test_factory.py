"""The factory makes assets of any warehouse: none, ours, or one that Java wrote, with tables that nobody may touch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dredge.platform_core import names
from tests.support.data import golden_dir, unpack_golden
from tests.support.platform import House, append_table, commit, evaluations, keyed_table, open_house

UNSUPPORTED = ("dv_pk", "row_tracking", "postpone")
"""Given commit callbacks, which only Java can call."""
SUPPORTED = ("dedup_levels", "append_unaware", "tags_branches", "dynamic_bucket", "changelog_lookup")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of tables that the real Java Paimon wrote."""
    root = tmp_path_factory.mktemp("java") / "golden"
    (root / "g.db").mkdir(parents=True)
    for name in (*UNSUPPORTED, *SUPPORTED):
        unpack_golden(name, root.parent / "unpacked" / name).rename(root / "g.db" / name)
    for name in UNSUPPORTED:
        for path in (root / "g.db" / name / "schema").glob("schema-*"):
            schema = json.loads(path.read_text())
            schema["options"]["commit.callbacks"] = "org.example.Callback"
            path.write_text(json.dumps(schema))
    return root


@pytest.fixture
def house(java: Path) -> Iterator[House]:
    with open_house(java) as found:
        yield found


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_or_missing_warehouse_loads_and_waits(tmp_path: Path, exists: bool) -> None:
    root = tmp_path / "nothing here"
    if exists:
        root.mkdir()
    with open_house(root) as house:
        dg.Definitions.validate_loadable(house.defs)
        assert not house.defs.resolve_all_asset_specs()
        assert house.tick(names.CATALOG_SENSOR).skip_message == "0 tables, as loaded"
        keyed_table(root)
        assert "shop.orders: new" in (house.tick(names.CATALOG_SENSOR).skip_message or "")


def test_each_table_has_data_and_layout_with_owner_group_and_kinds(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    keyed_table(root)
    append_table(root)
    with open_house(root) as house:
        specs = {spec.key.to_user_string(): spec for spec in house.defs.resolve_all_asset_specs()}
    ranking = specs.pop("wh/warehouse_health")
    assert (ranking.group_name, ranking.owners) == ("warehouse_health", ["team:dredge"])
    assert set(specs) == {"wh/shop/orders", "wh/shop/orders_layout", "wh/shop/log", "wh/shop/log_layout"}
    for key, spec in specs.items():
        assert spec.owners == ["team:dredge"], key
        assert spec.group_name == "shop", key
        assert spec.kinds, key
        assert spec.description, key
        assert spec.partitions_def == dg.DynamicPartitionsDefinition(
            name=key.replace("_layout", "").replace("wh/", "").replace("/", ".")
        )
    columns = specs["wh/shop/orders"].metadata["dagster/column_schema"]
    assert [(c.name, c.constraints.nullable) for c in columns.value.columns] == [
        ("dt", False),
        ("id", False),
        ("v", True),
    ]
    assert [dep.asset_key.to_user_string() for dep in specs["wh/shop/orders_layout"].deps] == ["wh/shop/orders"]


def test_loading_imports_neither_pyspark_nor_great_expectations(java: Path) -> None:
    code = (
        "import sys, dredge.orchestration.definitions as d; d.defs().get_repository_def();"
        "print([m for m in ('pyspark', 'great_expectations', 'dagster_pyspark') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={"DREDGE_WAREHOUSE": str(java), "PATH": "", "HOME": str(java.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_unsupported_tables_are_shown_and_left_alone_with_the_reason(house: House) -> None:
    lines = "\n".join(house.lines(house.tick(names.IDLE_SENSOR)))
    for name in UNSUPPORTED:
        assert f"g.{name}: decline (unsupported): not supported: " in lines
    before = _files(house.root)
    for name in UNSUPPORTED:
        known = house.instance.get_dynamic_partitions(f"g.{name}")
        partition = known[0] if known else None
        result = house.maintain(f"g.{name}", partition)
        assert result.success, name
        metadata = house.materialisation(f"g.{name}", partition)
        assert metadata["action"] == "nothing to do"
        assert metadata["why"].startswith("not supported: ")
        assert all(passed for passed, _ in evaluations(result).values())
    assert house.execute(names.RETENTION_JOB).success
    after = _files(house.root)
    gone, new = set(before) - set(after), set(after) - set(before)
    # Java gave this tag a day; it waits in the trash of its table
    assert {path for path in gone if "dedup_levels" not in path} == {"g.db/tags_branches/tag/tag-t1"}
    assert not [path for path in new if "/dredge/" not in path and "dedup_levels" not in path]


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_table_of_java_is_maintained_and_says_what_it_said(house: House) -> None:
    table = house.warehouse.table("g.dedup_levels")
    expected = json.loads((golden_dir() / "dedup_levels.json").read_text())["snapshots"]
    rows = len(expected[max(expected, key=int)]["rows"])
    assert table.to_arrow().num_rows == rows
    requests = [
        item
        for item in house.tick(names.SORTED_RUN_SENSOR).run_requests
        if item.tags[names.TAG_TABLE] == "g.dedup_levels"
    ]
    (request,) = requests  # neighbouring partitions that are due share a run
    assert json.loads(request.tags[names.TAG_PARTITIONS]) == ["dt=2024-01-01", "dt=2024-01-02"]
    keys = [(name, "ascending") for name in table.primary_keys]
    before = table.to_arrow().sort_by(keys)
    assert house.run(request).success
    assert table.to_arrow().sort_by(keys) == before
    later = house.tick(names.SORTED_RUN_SENSOR)
    assert not [item for item in later.run_requests or () if item.tags[names.TAG_TABLE] == "g.dedup_levels"]


def test_a_table_that_cannot_be_opened_is_shown_with_its_error(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root, "shop.fine", partitioned=False))
    keyed_table(root, "shop.torn", partitioned=False)
    (root / "shop.db" / "torn" / "schema" / "schema-0").write_text("{")
    with open_house(root) as house:
        lines = house.lines(house.tick(names.SORTED_RUN_SENSOR))
        assert any(line.startswith("shop.torn: decline (unreadable): CorruptFile: ") for line in lines)
        assert any(line.startswith("shop.fine: decline (too few runs)") for line in lines)
        result = house.maintain("shop.torn")
        assert result.success
        assert "schema-0" in house.materialisation("shop.torn")["why"]
