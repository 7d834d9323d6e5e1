"""Columns of type VARIANT are shared with Java: same bytes in the files, same values through merges and compactions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import UnsupportedFeature
from tests.support.peers import JavaPaimon
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
DOCUMENTS = [
    '{"a":1,"b":[1,2,"x"],"c":{"d":null}}',
    '"text"',
    "3.25",
    "true",
    "null",
    "[]",
    "12345678901234",
    '{"a":7}',
    "{}",
]
COLUMNS = [
    ("k", "BIGINT NOT NULL"),
    ("v", "VARIANT"),
    ("a", "ARRAY<VARIANT>"),
    ("m", "MAP<STRING, VARIANT>"),
    ("r", "ROW<x VARIANT, y INT>"),
]
KINDS = {
    "append": ([], {"bucket": "-1"}),
    "deduplicate": (["k"], {"bucket": "1"}),
    "vectors": (["k"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "lookup": (["k"], {"bucket": "1", "changelog-producer": "lookup"}),
    "partial-update": (["k"], {"bucket": "1", "merge-engine": "partial-update"}),
    "aggregation": (["k"], {"bucket": "1", "merge-engine": "aggregation"}),
}


def made(tmp_path: Path, kind: str, **options: str) -> Table:
    keys, own = KINDS[kind]
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog.create_table("db.t", Schema(COLUMNS, keys, [], {**own, **options}))


def documents(first: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"k": first + i, "v": text, "a": [text, None], "m": [["q", text]], "r": {"x": text, "y": i}}
        for i, text in enumerate(DOCUMENTS)
    ]
    return [*rows, {"k": first + len(rows), "v": None, "a": None, "m": None, "r": None}]


def with_keys(rows: pa.Table, first: int) -> pa.Table:
    keys = pa.array(range(first, first + rows.num_rows), pa.int64())
    return rows.set_column(0, rows.schema.field("k"), keys)


def values_by_key(java: Java) -> dict[int, tuple[Any, ...]]:
    return {row["k"]: tuple(row[name] for name, _ in COLUMNS[1:]) for row in java("read")["rows"]}


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(2, list(KINDS), 1))
def test_both_write_merge_and_compact_variants(tmp_path: Path, java: Java, kind: str) -> None:
    made(tmp_path, kind)
    expected = {row["k"]: tuple(row[name] for name, _ in COLUMNS[1:]) for row in documents(0)}
    java("write", rows=documents(0), compact="full" if kind == "vectors" else "none")
    table = Catalog(str(tmp_path)).table("db.t")
    rows = table.to_arrow().sort_by("k")
    table.write(with_keys(rows, 100))
    expected |= {100 + key: values for key, values in expected.items()}
    report = table.compact(full=True)
    assert report.snapshot_id is not None
    assert values_by_key(java) == expected
    table.write(with_keys(rows.slice(0, 1), 101))  # in a table with a key, another document for key 101
    java("write", rows=documents(200), compact="none")
    expected |= {200 + row: expected[row] for row in range(len(DOCUMENTS) + 1)}
    table = Catalog(str(tmp_path)).table("db.t")
    table.compact(full=True)
    if kind == "append":
        assert len(java("read")["rows"]) == len(expected) + 1
    else:
        assert values_by_key(java) == {**expected, 101: expected[0]}
        assert values_by_key(java).keys() == set(table.to_arrow().column("k").to_pylist())
    assert all(check.passed for check in table.check())


@pytest.mark.paimon_java
def test_files_have_the_layout_and_the_statistics_of_java(tmp_path: Path, java: Java) -> None:
    made(tmp_path, "append")
    java("write", rows=documents(0), compact="none")
    table = Catalog(str(tmp_path)).table("db.t")
    table.write(table.to_arrow())
    files = [file for split in Catalog(str(tmp_path)).table("db.t").plan_scan() for file in split.files]
    theirs, ours = (pq.read_schema(f"{table.store.root}/bucket-0/{file.file_name}") for file in files)
    assert theirs.equals(ours, check_metadata=True)
    assert files[0].value_stats == files[1].value_stats


@pytest.mark.paimon_java
def test_a_column_that_was_added_is_null_in_older_files(tmp_path: Path, java: Java) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema([("k", "BIGINT NOT NULL")], ["k"], [], {"bucket": "1"}))
    table.write(pa.table({"k": [1, 2]}))
    catalog.alter_table("db.t", [SchemaChange.add_column("v", "VARIANT")])
    java("write", rows=[{"k": 2, "v": '{"a":1}'}], compact="none")
    table = catalog.table("db.t")
    table.compact(full=True)
    assert [row["v"] for row in java("read")["rows"]] == [None, '{"a":1}']
    with pytest.raises(UnsupportedFeature, match="VARIANT"):
        catalog.alter_table("db.t", [SchemaChange.set_option("file.format", "orc")])


SHAPE = json.dumps(
    {
        "type": "ROW",
        "fields": [
            {
                "name": "v",
                "type": {
                    "type": "ROW",
                    "fields": [
                        {"name": "a", "type": "BIGINT"},
                        {"name": "c", "type": "STRING"},
                        {"name": "d", "type": "DECIMAL(9, 2)"},
                        {"name": "t", "type": "BOOLEAN"},
                        {"name": "l", "type": {"type": "ARRAY", "element": "INT"}},
                        {"name": "o", "type": {"type": "ROW", "fields": [{"name": "x", "type": "INT"}]}},
                    ],
                },
            }
        ],
    }
)
LEAVES: list[Any] = [
    None,
    0,
    -1,
    127,
    -32769,
    1 << 40,
    1.5,
    12.25,
    3e300,
    True,
    False,
    "",
    "x" * 70,
    "ä€",
    [],
    [1, "q", 2.5],
    {},
]


def drawn(random: Random, depth: int = 0) -> Any:
    """Return a JSON value, often an object with the fields of `SHAPE`."""
    if depth > 2 or random.random() < 0.25:
        return random.choice(LEAVES)
    if random.random() < 0.2:
        return [drawn(random, depth + 1) for _ in range(random.choice([0, 1, 3, 300 if depth == 0 else 2]))]
    typed = {
        "a": [1, 300, -5, 1 << 50, "no number", None],
        "c": ["q", "", "y" * 99, 5],
        "d": [1.25, 99.5, 7, "z"],
        "t": [True, False, 0],
        "l": [[], [1, 2], [1, "x"], 7],
        "o": [{}, {"x": 1}, {"x": "s", "w": [1]}, {"w": 2}, None],
    }
    names = random.sample([*typed, "other", "zz", "B"], random.randrange(7))
    return {name: random.choice(typed[name]) if name in typed else drawn(random, depth + 1) for name in names}


@pytest.mark.parametrize("option", ["variant.shreddingSchema", "variant.inferShreddingSchema"])
def test_shredded_files_are_read_and_rewritten_as_plain_files(
    tmp_path: Path, option: str, testrun_uid: str, java_of: Callable[[str], JavaPaimon]
) -> None:
    newest = java_of(os.environ.get("DREDGE_PAIMON_VERSION", "2.0.0"))
    seed = int(os.environ.get("DREDGE_VARIANTS_SEED") or int(testrun_uid, 16) % 10**6)
    random = Random(seed)
    value = SHAPE if option == "variant.shreddingSchema" else "true"
    table = made(tmp_path, "append", **{option: value, "compaction.min.file-num": "2"})
    texts = [*DOCUMENTS, *(json.dumps(drawn(random)) for _ in range(150))]
    if option == "variant.inferShreddingSchema":
        objects = [text for text in texts if text[0] == "{"]
        texts = [json.dumps({"a": i, "c": "q", "l": [1], "n": {"x": i}}) for i in range(300)] + objects
    rows: list[dict[str, Any]] = [
        {"k": i, "v": text, "a": [text], "m": [["q", text]], "r": {"x": text, "y": 1}} for i, text in enumerate(texts)
    ]
    rows.append({"k": len(rows), "v": None, "a": None, "m": None, "r": None})

    def read(name: str = "db.t") -> dict[int, Any]:
        listed = newest.call("read", warehouse=str(tmp_path), table=name)["rows"]
        return {row["k"]: tuple(row[name] for name, _ in COLUMNS) for row in listed}

    newest.call("write", warehouse=str(tmp_path), table="db.t", rows=rows, compact="none")
    expected = read()
    (path,) = (tmp_path / "db.db" / "t").rglob("bucket-0/*.parquet")
    assert "typed_value" in str(pq.read_schema(path))
    plain = table.refresh().to_arrow()
    catalog = Catalog(str(tmp_path))
    copy = catalog.create_table("db.plain", Schema(COLUMNS, [], [], {"bucket": "-1"}))
    copy.write(plain)
    assert read("db.plain") == expected, f"seed {seed}"
    table.refresh().write(plain.slice(0, 5))
    table.refresh().compact(full=True)
    assert read() == expected, f"seed {seed}"
    (split,) = table.refresh().plan_scan()
    assert "typed_value" not in str(pq.read_schema(f"{table.store.root}/bucket-0/{split.files[0].file_name}"))
    assert all(check.passed for check in table.refresh().check())
