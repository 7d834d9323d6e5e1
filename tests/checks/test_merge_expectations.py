"""Expectations over merged rows: what a wrong merge, a lost change or a lying compaction leaves is named by key and values, engine by engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from dredge.checks.expectations import SuiteCrashed, merged_batches, run_batches, suite_result
from dredge.orchestration.verbs.expectations import expectations
from dredge.platform_core.resources import WarehouseResource
from lsm_core import Schema
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.metadata import snapshots
from tests.maintenance.tables import catalog, compact_wrongly, keyed, rows
from tests.maintenance.test_checks import ENGINES, KINDS, lived


def checked(tmp_path: Path, name: str = "db.t", **more: Any) -> tuple[dg.AssetCheckResult, dict[str, str]]:
    """The result of the platform's check, and its metadata as text."""
    warehouse = WarehouseResource(path=str(tmp_path / "wh"))
    result = suite_result(warehouse, warehouse.card(name), **more)
    return result, {key: str(value.value) for key, value in (result.metadata or {}).items()}


EXPECTED = {"deduplicate": "3003", "first-row": "3", "partial-update": "3003", "aggregation": "6012"}
"""What key 3 is after four commits, each of which added 1000 to its value."""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_compaction_that_merged_a_row_wrongly_fails_with_its_key_and_values(tmp_path: Path, engine: str) -> None:
    options = {name: value for name, value in KINDS[engine].items() if name != "changelog_producer"}
    table = keyed(tmp_path, bucket="1", write_only="true", **options)
    for step in range(4):
        table.write(rows(range(4), v=1000 * step))
    result, output = checked(tmp_path)
    assert (result.passed, output["rows merged again"]) == (True, "4" if engine != "first-row" else "0"), output
    number = compact_wrongly(table, key=3, value=-1)
    result, output = checked(tmp_path)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "its merge engine makes of the written versions: 1 of 4 keys differ" in str(result.description)
    assert f"k=3: v is -1, expected {EXPECTED[engine]}" in str(result.description)
    assert output["keys that break an expectation"].count(f"k=3: v is -1, expected {EXPECTED[engine]}") == 2
    assert f"| k=3 | another value | v | -1 | {EXPECTED[engine]} |" in output["observed and expected values"]
    assert (
        f"the same before and after the compaction | 1 | 1 of 4 keys differ (snapshot {number - 1})"
        in output["expectations"]
    )


def test_a_group_of_fields_that_took_the_newest_row_s_values_is_named_field_by_field(tmp_path: Path) -> None:
    names = ["k", "g", "a", "b"]
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), *((name, pa.int64()) for name in names[1:])])
    options = {"merge-engine": "partial-update", "fields.g.sequence-group": "a", "bucket": "1", "write-only": "true"}
    table = catalog(tmp_path).create_table("db.t", Schema(schema, primary_keys=["k"], options=options))
    for g, b in ((5, 1), (2, 7)):
        table.write(pa.table({"k": [1, 2], "g": [g] * 2, "a": [10 * g] * 2, "b": [b, None]}, schema=schema))
    assert table.to_arrow().to_pylist()[0] == {"k": 1, "g": 5, "a": 50, "b": 7}
    compact_wrongly(table, key=1, value=20, column="a")
    result, output = checked(tmp_path)
    assert not result.passed
    assert "k=1: a is 20, expected 50" in output["keys that break an expectation"]


def test_a_changelog_that_lost_a_commit_does_not_lead_to_the_rows(tmp_path: Path) -> None:
    table = lived(tmp_path, "input", bucket="1")
    assert checked(tmp_path)[0].passed
    newest = snapshots.latest(table.store)
    assert newest is not None
    silent = replace(
        snapshots.read(table.store, newest.id - 1), changelog_manifest_list=None, changelog_manifest_list_size=None
    )
    Path(table.store.snapshot_path(silent.id)).write_bytes(silent.to_json())
    result, output = checked(tmp_path)
    assert not result.passed
    assert "The changelog of db.t must lead from an older snapshot to its rows" in str(result.description)
    assert "10 of 90 keys differ" in str(result.description)
    assert "k=50: v is 5050, expected 4050" in output["keys that break an expectation"]


def test_a_key_that_is_there_twice_is_named(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    table.write(rows(range(4)))
    warehouse = WarehouseResource(path=str(tmp_path / "wh"))
    card = warehouse.card("db.t")
    ((batch,), _) = merged_batches(warehouse, card)
    twice = replace(batch, frame=pd.concat([batch.frame, batch.frame.iloc[[2]]]))
    outcomes = {outcome.text: outcome for outcome in run_batches(card, [twice])}
    unique = outcomes["Rows of db.t must have unique primary keys after merging"]
    assert (unique.passed, unique.unexpected, unique.rows) == (False, 1, ("k=2: there are 2 rows with this key",))


def test_one_command_writes_a_page_of_data_docs_and_fails_naming_what_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    for step in range(2):
        table.write(rows(range(4), v=1000 * step))
    warehouse, docs = str(tmp_path / "wh"), tmp_path / "docs"
    expectations(warehouse=warehouse, table="db.t", as_json=True)
    outcomes = json.loads(capsys.readouterr().out)
    assert {outcome["outcome"] for outcome in outcomes} == {"passed"}
    assert outcomes[-1]["observed"] == "4 rows, all as expected (snapshot 1 and what 1 commits wrote since)"
    compact_wrongly(table, key=3, value=-1)
    with pytest.raises(DredgeError, match=r"db\.t: 2 of 5 expectations failed: Rows of db\.t must be what its merge"):
        expectations(warehouse=warehouse, table="db.t", docs=docs)
    printed = capsys.readouterr().out
    assert "k=3: v is -1, expected 1003" in printed
    assert f"page: {docs / 'index.html'}" in printed
    pages = list((docs / "validations").rglob("*.html"))
    text = "\n".join(page.read_text() for page in pages)
    assert (docs / "index.html").is_file()
    assert len(pages) == 3
    assert "must be what its merge engine makes of the written versions" in text
    for cell in ("k=3", "another value", "-1", "1003"):
        assert f">{cell}<" in text
    (tmp_path / "file").touch()
    with pytest.raises(InvalidOption, match="'--docs' cannot be"):
        expectations(warehouse=warehouse, table="db.t", docs=tmp_path / "file")


def test_a_batch_that_is_not_the_table_s_is_an_error_of_one_line_and_no_verdict(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    table.write(rows(range(4)))
    warehouse = WarehouseResource(path=str(tmp_path / "wh"))
    card = warehouse.card("db.t")
    for change, message in (
        (lambda frame: frame.assign(v="x"), "column 'v': the frame's values are no int64"),
        (lambda frame: frame.drop(columns="v"), "column 'v': the rows to compare lack this column"),
    ):
        ((batch,), _) = merged_batches(warehouse, card)
        with pytest.raises(SuiteCrashed, match=f"crashed: .*{message}") as raised:
            run_batches(card, [replace(batch, frame=change(batch.frame))])
        assert "\n" not in str(raised.value)
