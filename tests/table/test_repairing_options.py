"""A table whose stored options nobody can use is listed, says what is wrong, and is repaired by altering it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.options import TableOptions

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = pa.table({"k": [1], "v": [1]}, schema=COLUMNS)


def broken(tmp_path: Path, options: dict[str, str], *, keyed: bool = True) -> Catalog:
    """A table with one snapshot, with ``options`` written into its schema by hand."""
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    keys, chosen = (["k"], {"bucket": "1"}) if keyed else ([], {})
    catalog.create_table("db.t", Schema(COLUMNS, keys, [], chosen)).write(ROWS)
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    text = json.loads(path.read_text())
    path.write_text(json.dumps({**text, "options": {**text["options"], **options}}))
    return catalog


# What reads need is refused by reads, what writers need by writers.
NEEDED = {
    "bucket": "read",
    "merge-engine": "read",
    "target-file-size": "write",
    "num-levels": "compact",
    "snapshot.num-retained.max": "expire",
    "file-index.bloom-filter.v.fpp": "write",
    "dredge.nope": "open",
}
LONG = "9" * 4301  # more digits than Python converts to a number
CASES = {
    "bucket": ("abc", "1"),
    "merge-engine": ("nonsense", "deduplicate"),
    "bucket, long": (LONG, "1"),
    "merge-engine, removed": ("nonsense", None),
    "num-levels, long": (LONG, None),
    "snapshot.num-retained.max, long": (LONG, None),
    "target-file-size, long": (LONG, "1 mb"),
    "target-file-size": ("lots", "1 mb"),
    "num-levels": ("0", None),
    "snapshot.num-retained.max": ("3", "20"),
    "file-index.bloom-filter.v.fpp": ("x", None),
    "dredge.nope": ("1", None),
}


_COLUMNS = "file-index.bloom-filter.columns"


def _use(table: Table, how: str) -> None:
    if how == "read":
        table.to_arrow()
    elif how == "write":
        table.write(ROWS)
    elif how == "compact":
        table.compact(full=True)
    else:
        table.expire_snapshots()


def _files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_an_option_that_nobody_can_use_is_set_or_removed(tmp_path: Path, case: str) -> None:
    key, (stored, wanted) = case.partition(",")[0], CASES[case]
    catalog = broken(tmp_path, {key: stored, **({_COLUMNS: "v"} if "bloom" in key else {})})
    kept = _files(tmp_path)
    if NEEDED[key] not in {"open", "read"}:
        assert catalog.table("db.t").to_arrow().equals(ROWS)
    with pytest.raises(InvalidOption, match=rf"'{key}' of table db\.t .*alter_table") as caught:
        _use(catalog.table("db.t"), NEEDED[key])
    assert caught.value.key == key
    assert _files(tmp_path) == kept
    listed = catalog.table("sys.all_table_options").to_arrow(filter=[("key", "=", key)])
    assert listed["value"].to_pylist() == [stored]
    assert catalog.table("sys.tables").to_arrow().num_rows == 1
    change = SchemaChange.remove_option(key) if wanted is None else SchemaChange.set_option(key, wanted)
    catalog.alter_table("db.t", [change])
    table: Table = catalog.table("db.t")
    assert table.options.get(key) == wanted
    assert table.to_arrow().equals(ROWS)
    assert table.to_arrow(snapshot_id=1).equals(ROWS)
    table.write(pa.table({"k": [2], "v": [2]}, schema=COLUMNS))
    table.compact(full=True)
    assert table.to_arrow().num_rows == 2


def test_a_table_is_repaired_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    catalog = broken(tmp_path, {"num-levels": "0", "page-size": "big"})
    with pytest.raises(InvalidOption, match="page-size"):
        catalog.alter_table("db.t", [SchemaChange.remove_option("num-levels")])
    with pytest.raises(InvalidOption, match="num-levels"):
        catalog.alter_table("db.t", [SchemaChange.set_option("page-size", "1 kb")])
    with pytest.raises(InvalidOption, match=r"'num-levels' of table db\.t cannot be '1'"):
        catalog.alter_table(
            "db.t", [SchemaChange.set_option("num-levels", "1"), SchemaChange.remove_option("page-size")]
        )
    catalog.alter_table("db.t", [SchemaChange.remove_option("num-levels"), SchemaChange.remove_option("page-size")])
    assert catalog.table("db.t").to_arrow().equals(ROWS)


def test_buckets_are_not_lost_by_a_repair(tmp_path: Path) -> None:
    """Without `bucket` a table with a key has dynamic buckets, from which no way leads back."""
    catalog = broken(tmp_path, {"bucket": "abc"})
    with pytest.raises(UnsupportedFeature, match="dynamic buckets"):
        catalog.alter_table("db.t", [SchemaChange.remove_option("bucket")])
    heap = broken(tmp_path / "heap", {"bucket": "abc"}, keyed=False)
    heap.alter_table("db.t", [SchemaChange.remove_option("bucket")])
    assert heap.table("db.t").to_arrow().equals(ROWS)


def test_what_can_be_used_stays_and_the_old_names_of_keys_count() -> None:
    given = {"merge-engine": "nonsense", "bucket": "4", "my.own": "x", "snapshot.num-retained.max": "2"}
    assert TableOptions.usable(given).raw == {"bucket": "4", "my.own": "x"}
    assert TableOptions.usable({"first-row.ignore-delete": "perhaps", "bucket": "2"}).raw == {"bucket": "2"}


def test_expiry_without_partitions_that_java_2_0_allows_does_not_stop_changes(tmp_path: Path) -> None:
    catalog = broken(tmp_path, {"partition.expiration-time": "1 d"})
    catalog.alter_table("db.t", [SchemaChange.add_column("w", pa.int32())])
    assert catalog.table("db.t").schema.field_names == ("k", "v", "w")
    catalog.alter_table("db.t", [SchemaChange.remove_option("partition.expiration-time")])
    with pytest.raises(InvalidOption, match="without partitions"):
        catalog.alter_table("db.t", [SchemaChange.set_option("partition.expiration-time", "1 d")])
