"""Metadata under Dagster's own keys: numbers of rows are those of a read, and wide tables keep events small."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from dredge.platform_core.health import table_health
from dredge.platform_core.resources.warehouse import card_of
from dredge.platform_core.standard_metadata import layout_metadata, location_metadata, schema_metadata, visible_rows
from dredge.platform_core.table_card import ColumnCard, TableCard
from lsm_core import Catalog, Schema, Table
from tests.support.platform import KEYED, append_table, commit, keyed_table

_DATA = dg.AssetKey(["wh", "shop", "orders"])


def _known(table: Table) -> int | None:
    return visible_rows(table.store, table_health(table.store))


def test_the_rows_of_metadata_are_those_of_a_read(tmp_path: Path) -> None:
    log = append_table(tmp_path)
    assert _known(log) == 0
    commit(log, 3)
    assert _known(log) == log.to_arrow().num_rows == 150
    keyed = keyed_table(tmp_path)
    commit(keyed)
    assert _known(keyed) == keyed.to_arrow().num_rows == 50
    commit(keyed)
    assert _known(keyed) is None, "two sorted runs hold versions of the same keys"
    keyed.compact(full=True)
    assert _known(keyed) == keyed.to_arrow().num_rows == 75
    commit(keyed, day="b")
    days = table_health(keyed.store)
    assert [visible_rows(keyed.store, days.of_partition(f"dt={day}")) for day in "ab"] == [75, 50]
    assert visible_rows(keyed.store, days) == keyed.to_arrow().num_rows


def test_rows_marked_by_deletion_vectors_are_not_counted(tmp_path: Path) -> None:
    table = keyed_table(tmp_path, partitioned=False, **{"deletion-vectors.enabled": "true"})
    commit(table)
    assert _known(table) is None, "level 0 is not visible before a compaction"
    assert table.to_arrow().num_rows == 0
    table.compact(full=True)
    assert _known(table) == table.to_arrow().num_rows == 50
    schema = Schema(KEYED, [], ["dt"], {"bucket": "-1", "deletion-vectors.enabled": "true"}, None)
    log = Catalog(str(tmp_path)).create_table("shop.marked", schema)
    commit(log)
    log.delete("id < 10")
    assert _known(log) == log.to_arrow().num_rows == 40


@pytest.mark.parametrize(
    "options",
    [
        {"record-level.expire-time": "1 d", "record-level.time-field": "dt"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "last_value"},
    ],
)
def test_rows_that_a_read_would_filter_or_merge_are_not_counted(tmp_path: Path, options: dict[str, str]) -> None:
    schema = Schema(
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("dt", pa.int32()), ("v", pa.int64())]),
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", **options},
    )
    table = Catalog(str(tmp_path)).create_table("shop.t", schema, create_database=True)
    rows = pa.table({"id": [1, 2], "dt": pa.array([1, 2], pa.int32()), "v": [1, 2]})
    table.write(rows, row_kinds=pa.array(["+I", "-D"]))
    assert _known(table) is None


def test_the_columns_of_a_wide_table_stay_out_of_events() -> None:
    def card(columns: int) -> TableCard:
        cards = tuple(ColumnCard(f"c{number}", "INT", nullable=True, description="") for number in range(columns))
        return TableCard("shop.t", columns=cards, root="/wh/shop.db/t")

    keys = {"dagster/uri", "uri", "dagster/column_schema", "dagster/column_lineage"}
    assert set(layout_metadata(card(500), _DATA)) == keys
    assert set(layout_metadata(card(501), _DATA)) == {"dagster/uri", "uri"}
    assert set(layout_metadata(card(300), _DATA, events=2)) == {"dagster/uri", "uri"}
    assert schema_metadata(card(501)) == schema_metadata(card(0)) == location_metadata("") == {}


def test_the_lineage_of_a_layout_leads_to_the_same_columns_of_its_data(tmp_path: Path) -> None:
    table = keyed_table(tmp_path)
    entries = layout_metadata(card_of("shop.orders", table.store, None), _DATA)
    lineage = entries["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    assert lineage.deps_by_column == {name: [dg.TableColumnDep(_DATA, name)] for name in ("dt", "id", "v")}
