"""Option names from articles: each is warned about once with the name that has an effect, and right names are left alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.platform_core.metadata import table_metadata
from dredge.platform_core.resources.warehouse import card_of
from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidOption
from lsm_core.options import ALIASES, REGISTRY, CatalogOptions, TableOptions, misnamed
from tests.cli.shell import Shell

RIGHT = {
    "lookup.compact": "'lookup-compact'",
    "lookup.compact-mode": "'lookup-compact'",
    "lookup.compact-max-interval": "'lookup-compact.max-interval'",
    "lookup.compact.max-interval": "'lookup-compact.max-interval'",
    "compaction.sorted-run.num": "'num-sorted-run.compaction-trigger'",
    "compaction.sorted-run.stop-trigger": "'num-sorted-run.stop-trigger'",
    "sort-compaction": "'clustering.columns'",
    "sort-compaction.order-by": "'clustering.columns'",
    "sort-compaction.range_strategy": "'sort-compaction.range-strategy'",
    "scan.remove-normalize": "only Flink uses it",
    "log.scan.remove-normalize": "'scan.remove-normalize'",
    "lock.timeout": "'lock-acquire-timeout'",
    "snapshot.num-retained.minimum": "'snapshot.num-retained.min'",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_name_of_articles_is_warned_about_with_the_right_one(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            TableOptions({name: "5"}, f"db.of_{name}")
    (line,) = caplog.messages
    assert line.startswith(f"table db.of_{name}: unknown option '{name}' ") and RIGHT[name] in line


def test_right_names_and_their_aliases_are_no_misspellings() -> None:
    assert misnamed([*REGISTRY, *ALIASES, "fields.a.aggregate-function", "org.example.mine"]) == {}


def test_the_default_aggregate_function_is_named_where_it_is_misspelt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    key = pa.field("k", pa.int64(), nullable=False)
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.default.aggregate-function": "sum"}
    with pytest.raises(InvalidOption, match=r"right name is 'fields\.default-aggregate-function'"):
        catalog.create_table("db.t", Schema(pa.schema([key, ("v", pa.int64())]), ["k"], [], options))
    with caplog.at_level(logging.WARNING):
        catalog.create_table("db.u", Schema(pa.schema([key, ("default", pa.int64())]), ["k"], [], options))
    assert any("right name is 'fields.default-aggregate-function'" in line for line in caplog.messages)


def test_a_reader_may_carry_an_option_of_flink_alone(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(pa.schema([("v", pa.int64())]), [], [], {"bucket": "-1"}))
    assert table.copy({"scan.remove-normalize": "true"}).to_arrow().num_rows == 0
    with pytest.raises(InvalidOption, match=r"'scan\.remove-normalise'"):
        table.copy({"scan.remove-normalise": "true"})


def test_a_catalog_option_is_named_right(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        CatalogOptions({"lock.timeout": "5 s"})
    assert "'lock-acquire-timeout'" in caplog.text


def test_status_and_the_platform_name_the_right_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    options = {"bucket": "-1", "lookup.compact": "gentle"}
    table = catalog.create_table("db.t", Schema(pa.schema([("v", pa.int64())]), [], [], options))
    row = Shell(tmp_path / "wh", capsys)("status", "db.t", "--json").json
    assert "option 'lookup.compact': the right name is 'lookup-compact'" in row["warnings"]
    shown = table_metadata(card_of("db.t", table.store, None))["options with another right name"]
    assert "lookup.compact: the right name is 'lookup-compact'" in str(shown.value)
