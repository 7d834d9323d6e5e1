"""Buckets, row bytes, hashes, bucket pruning, sizes and durations as Paimon's own tests want them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidOption
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows, header_bytes
from lsm_core.format.hashing import EMPTY_HASH, bucket_of, hash_rows, hive_hash
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.options import TableOptions, duration, memory_size
from lsm_core.read.predicate import parse_filter
from lsm_core.read.prune import prune_buckets, prune_partitions
from lsm_core.types import kinds_from_text, parse, to_arrow
from tests.vectors.cases import Case, cases, not_yet, require_known
from tests.vectors.values import column, columns


def names(listed: str | list[str] | None) -> tuple[str, ...]:
    """Column names, given as a list or as text with commas."""
    parts = listed.split(",") if isinstance(listed, str) else listed or []
    return tuple(part.strip() for part in parts if part.strip())


def schema_of(case: Case) -> TableSchema:
    fields = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(case["columns"]))
    options = {"bucket-key": ",".join(names(case.get("bucket_key")))}
    keys, partition = names(case.get("primary_key")), names(case.get("partition_key"))
    return TableSchema(0, fields, len(fields), partition, keys, options)


def expect_value(case: Case, compute: Callable[[], Any]) -> None:
    """The case's value, or its refusal as an invalid option."""
    expect = case["expect"]
    if isinstance(expect, dict) and "error" in expect:
        with pytest.raises(InvalidOption):
            compute()
    else:
        assert compute() == expect


def run_binary_row(case: Case, place: Path) -> None:
    kinds, expect = [parse(text) for text in case["types"]], case["expect"]
    if not kinds:
        assert expect["hash"] == EMPTY_HASH
        return
    cols = columns(case["values"], kinds)
    if "hex" in expect:
        assert encode_rows(cols, kinds, with_arity=False)[0].as_py().hex() == expect["hex"]
    assert hash_rows(cols, kinds).tolist() == [expect["hash"]]
    for buckets, bucket in expect.get("bucket_of", {}).items():
        assert bucket_of(cols, kinds, int(buckets)).tolist() == [bucket]


def run_header_width(case: Case, place: Path) -> None:
    assert header_bytes(case["columns"]) == case["expect"]


def run_row_size(case: Case, place: Path) -> None:
    kinds = [parse(text) for text in case["types"]]
    assert len(encode_rows(columns(case["values"], kinds), kinds, with_arity=False)[0].as_py()) == case["expect"]


def run_table_bucket(case: Case, place: Path) -> None:
    """A row's bucket; a case without a row is a table that must be refused when it is created."""
    if "row" not in case:
        refused_table(case, place)
        return
    schema = schema_of(case)
    kinds = list(schema.bucket_key_types)
    cols = columns([case["row"][name] for name in schema.bucket_keys], kinds)
    expect_value(case, lambda: bucket_of(cols, kinds, case["num_buckets"]).tolist()[0])


def refused_table(case: Case, place: Path) -> None:
    catalog = Catalog(place)
    catalog.create_database("db")
    fields = pa.schema([(name, to_arrow(parse(kind))) for name, kind in case["columns"]])
    options = {"bucket": str(case["num_buckets"]), "bucket-key": case["bucket_key"]}
    wanted = Schema(fields, names(case["primary_key"]), names(case.get("partition_key")), options)
    assert "error" in case["expect"]
    with pytest.raises(InvalidOption, match="bucket-key"):
        catalog.create_table("db.t", wanted)
    assert catalog.list_tables("db") == []


def run_other_function(case: Case, place: Path) -> None:
    """`bucket-function.type` mod and hive; a case without a key must be refused for its types."""
    function = case["op"].removesuffix("_bucket")
    kinds = [parse(text) for text in case["types"]]
    key = case.get("key")
    cols = [pa.array([], to_arrow(kind)) for kind in kinds] if key is None else columns(key, kinds)
    expect_value(case, lambda: bucket_of(cols, kinds, case["num_buckets"], function).tolist()[0])
    if "hash" in case:
        assert hive_hash(cols, kinds).tolist() == [case["hash"]]


def filter_of(predicate: list[Any]) -> list[Any]:
    """["and"|"or", predicates...] or [op, column, value...] as a filter of the public API; "or" only outermost."""
    op, *rest = predicate
    if op == "and":
        parts = [filter_of(part) for part in rest]
        assert all(len(part) == 1 for part in parts)
        return [[test for part in parts for test in part[0]]]
    if op == "or":
        return [group for part in rest for group in filter_of(part)]
    name, *value = rest
    return [[(name, op.replace("_", " "), *value)]]


def run_bucket_pruning(case: Case, place: Path) -> None:
    """One file a bucket, of the partition that the case names (values by column, or in the order of `partition_key`)."""
    total = case["num_buckets"]
    schema = schema_of(case)
    given = case.get("partition") or []
    values = [given[name] for name in schema.partition_keys] if isinstance(given, dict) else given
    kinds = list(schema.partition_types)
    partition = encode_rows(columns(values, kinds), kinds)[0].as_py() if kinds else EMPTY_ROW
    entries = pa.table(
        {
            "partition": pa.array([partition] * total, pa.binary()),
            "bucket": pa.array(range(total), pa.int32()),
            "total_buckets": pa.array([total] * total, pa.int32()),
        }
    )
    predicate = parse_filter(filter_of(case["predicate"]), schema, "db.t")
    left = prune_buckets(schema, prune_partitions(schema, entries, predicate), predicate, "default")
    assert left.num_rows == case["expect"]["selected_count"]
    if "selected_derived" in case["expect"]:
        assert left.column("bucket").to_pylist() == case["expect"]["selected_derived"]


def run_option_size(case: Case, place: Path) -> None:
    key, text = case["option"], case["text"]
    expect_value(case, lambda: TableOptions({} if text is None else {key: text}, "db.t").get(key))


def run_duration(case: Case, place: Path) -> None:
    """Dredge keeps whole milliseconds, as all options that it reads do."""
    if "expect_nanos" in case:
        assert duration(case["text"]) == case["expect_nanos"] // 1_000_000
        return
    with pytest.raises(InvalidOption):
        duration(case["text"])


def run_row_kind(case: Case, place: Path) -> None:
    """Keys and partitions are +I rows: byte 0 of what Dredge encodes is always that kind; other kinds are numbers of their own."""
    if isinstance(case.get("expect"), int) and "kind" in case:
        assert kinds_from_text(pa.array([case["kind"]])).to_pylist() == [case["expect"]]
    kind = parse("INT")
    assert encode_rows([column([1], kind)], [kind], with_arity=False)[0].as_py()[0] == 0


OPERATIONS: dict[str, Callable[[Case, Path], None]] = {
    "binary_row": run_binary_row,
    "bucket_pruning": run_bucket_pruning,
    "duration": run_duration,
    "duration_format": lambda case, place: not_yet("durations as text"),
    "header_width": run_header_width,
    "hive_bucket": run_other_function,
    "memory_size": lambda case, place: expect_value(case, lambda: memory_size(case["text"])),
    "mod_bucket": run_other_function,
    "murmur3_32_seed0": lambda case, place: not_yet("external data paths (entropy of file names)"),
    "option_size": run_option_size,
    "row_kind_in_header": run_row_kind,
    "row_size": run_row_size,
    "table_bucket": run_table_bucket,
}


@pytest.mark.parametrize("case", cases("fixed_bucket_hash"))
def test_fixed_bucket_hash(case: Case, tmp_path: Path) -> None:
    require_known("fixed_bucket_hash", case)
    OPERATIONS[case["op"]](case, tmp_path)
