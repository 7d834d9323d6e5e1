"""Rows that a merge engine could never merge are refused when they are written, by every writer, and nothing is left of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasketches import hll_sketch, update_theta_sketch
from pyroaring import BitMap

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.commit import Committer
from lsm_core.errors import DredgeError, InvalidData, InvalidOption, RetractNotSupported
from lsm_core.merge.functions import function_names, roaring64
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.types import parse, to_arrow
from lsm_core.write import TableWrite
from lsm_core.write.table_write import StoredRows
from tests.support.stores import data_files_on_disk, make_store, read, write

BOTH, UPDATES, NONE = ("-U", "-D"), ("-U",), ()
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"}
GROUP_OF_MAX = {**GROUP, "fields.v.aggregate-function": "max"}
AGGREGATION = {"merge-engine": "aggregation", "fields.g.aggregate-function": "sum"}
MAX = {**AGGREGATION, "fields.v.aggregate-function": "max"}
CASES: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({}, NONE, ""),
    ({"merge-engine": "first-row"}, BOTH, ""),
    ({"merge-engine": "first-row", "ignore-delete": "true"}, NONE, ""),
    ({"merge-engine": "first-row", "first-row.ignore-delete": "true"}, NONE, ""),
    ({"merge-engine": "first-row", "ignore-update-before": "true"}, ("-D",), ""),
    ({"merge-engine": "partial-update"}, BOTH, ""),
    ({"merge-engine": "partial-update", "ignore-delete": "true"}, NONE, ""),
    ({"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}, NONE, ""),
    (GROUP, NONE, ""),
    ({**GROUP, "fields.v.aggregate-function": "sum"}, NONE, ""),
    (GROUP_OF_MAX, BOTH, "v"),
    ({**GROUP_OF_MAX, "fields.v.ignore-retract": "true"}, NONE, ""),
    ({**GROUP_OF_MAX, "ignore-delete": "true"}, NONE, ""),
    ({**GROUP_OF_MAX, "partial-update.remove-record-on-sequence-group": "g"}, UPDATES, "v"),
    (AGGREGATION, NONE, ""),
    (MAX, BOTH, "v"),
    ({**MAX, "fields.v.ignore-retract": "true"}, NONE, ""),
    ({**MAX, "ignore-delete": "true"}, NONE, ""),
    ({**MAX, "aggregation.remove-record-on-delete": "true"}, UPDATES, "v"),
    ({**AGGREGATION, "fields.default-aggregate-function": "first_value"}, BOTH, "v"),
    ({**AGGREGATION, "fields.default-aggregate-function": "min", "sequence.field": "v"}, NONE, ""),
]
RETRACTABLE = {
    "sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update", "primary-key",
}  # fmt: skip
"""semantics.md 3.4: functions with something in the column "retract"."""
TYPES = {
    "bool_and": "BOOLEAN", "bool_or": "BOOLEAN", "listagg": "STRING", "collect": "ARRAY<INT>", "merge_map": "MAP<INT, STRING>",
    "merge_map_with_keytime": "MAP<INT, ROW<v INT, ts STRING>>", "nested_update": "ARRAY<ROW<n INT, s STRING>>",
    "nested_partial_update": "ARRAY<ROW<n INT, s STRING>>", "rbm32": "BYTES", "rbm64": "BYTES", "hll_sketch": "BYTES",
    "theta_sketch": "BYTES",
}  # fmt: skip


def make(root: Path, options: dict[str, str], kind: str = "INT") -> TableStore:
    fields = {"k": "INT NOT NULL", "g": "INT", "v": kind}
    return make_store(root / "t", fields, ["k"], (), {"bucket": "2", **options})


def row(key: int, g: int | None = 1, v: Any = 1, kind: str = "INT") -> pa.Table:
    return pa.table({"k": [key], "g": pa.array([g], pa.int32()), "v": pa.array([v], to_arrow(parse(kind)))})


def refused(store: TableStore, column: str, attempt: Callable[[], object]) -> None:
    """The attempt raises and leaves neither a snapshot nor a file."""
    before, files = snapshots.latest_id(store), data_files_on_disk(store)
    at = f", column '{column}'" if column else ""
    with pytest.raises(RetractNotSupported, match=f"table db.t{at}, key {{'k': 7}}: a -[UD] row: .*does not support"):
        attempt()
    assert (snapshots.latest_id(store), data_files_on_disk(store)) == (before, files)


@pytest.mark.parametrize(("options", "kinds", "column"), CASES)
def test_each_engine_refuses_what_it_cannot_merge(
    tmp_path: Path, options: dict[str, str], kinds: tuple[str, ...], column: str
) -> None:
    store = make(tmp_path, options)
    write(store, row(7))
    for kind in BOTH:
        if kind in kinds:
            refused(store, column, lambda kind=kind: write(store, row(7, 2, 5), [kind]))
        else:
            write(store, row(7, 2, 5), [kind])  # and whatever became of it can be merged
            write(store, row(7, 3, 6))
            assert read(store).num_rows == (store.options.merge_engine != "first-row")


@pytest.mark.parametrize("function", function_names())
def test_functions_refuse_retracts_as_the_catalogue_says(tmp_path: Path, function: str) -> None:
    options = {**AGGREGATION, "fields.v.aggregate-function": function, "fields.v.nested-key": "n"}
    kind = TYPES.get(function, "INT")
    store = make(tmp_path, options, kind)
    if function in RETRACTABLE:
        write(store, row(7, 1, None, kind), ["-D"])
        write(store, row(7, 1, None, kind), ["-U"])
        assert read(store).num_rows == 1
    else:
        refused(store, "v", lambda: write(store, row(7, 1, None, kind), ["-D"]))
        allowed = make(tmp_path / "allowed", {**options, "fields.v.ignore-retract": "true"}, kind)
        write(allowed, row(7, 1, None, kind), ["-D"])


def test_a_sequence_group_passes_rows_over_that_have_no_ordering_value(tmp_path: Path) -> None:
    store = make(tmp_path, GROUP_OF_MAX)
    write(store, row(7))
    write(store, row(7, None, 5), ["-D"])
    assert read(store).to_pylist() == [{"k": 7, "g": 1, "v": 1}]
    refused(store, "v", lambda: write(store, row(7, 0, 5), ["-D"]))


def test_a_delete_that_may_remove_the_row_is_taken(tmp_path: Path) -> None:
    fields = {"k": "INT NOT NULL", "g": "INT", "v": "INT", "h": "INT", "w": "INT"}
    options = {
        "bucket": "1", **GROUP, "fields.h.sequence-group": "w", "fields.w.aggregate-function": "max",
        "partial-update.remove-record-on-sequence-group": "g",
    }  # fmt: skip
    store = make_store(tmp_path / "t", fields, ["k"], (), options)
    given = pa.table({"k": [7], "g": [1], "v": [1], "h": [1], "w": [1]})
    write(store, given)
    write(store, given, ["-D"])
    assert read(store).num_rows == 0
    nothing = given.set_column(1, "g", pa.array([None], pa.int32()))
    refused(store, "w", lambda: write(store, nothing, ["-D"]))
    refused(store, "w", lambda: write(store, given, ["-U"]))


def test_the_first_refused_row_is_the_one_that_is_named(tmp_path: Path) -> None:
    store = make(tmp_path, {"merge-engine": "first-row", "write-buffer-size": "1 kb"})
    keys = list(range(500))
    given = pa.table({"k": keys, "g": keys, "v": keys})
    kinds = ["+I", "+U"] * 3 + ["+I", "-U", "-D"] + ["+I"] * 491

    def flushed_before() -> None:
        with TableWrite(store.copy({"write-buffer-spillable": "false"})) as writer:
            writer.write(given)
            assert data_files_on_disk(store)
            writer.write(given, pa.array(kinds))

    refused(store, "", flushed_before)
    refused(store, "", lambda: write(store, given, kinds))


def test_a_column_of_kinds_and_routed_rows_are_no_way_around(tmp_path: Path) -> None:
    fields = {"k": "INT NOT NULL", "op": "STRING"}
    options = {"bucket": "2", "rowkind.field": "op", "merge-engine": "first-row"}
    store = make_store(tmp_path / "t", fields, ["k"], (), options)
    refused(store, "", lambda: write(store, pa.table({"k": [1, 7], "op": ["+I", "-D"]})))
    write(store, pa.table({"k": [1, 7], "op": ["+I", "+U"]}))
    routed = make(tmp_path / "routed", MAX)

    def attempt() -> None:
        with TableWrite(routed) as writer:
            writer.routed(row(7), pa.array([3], pa.int8()))

    refused(routed, "v", attempt)


def table_of(root: Path, options: dict[str, str], kind: pa.DataType = pa.int32()) -> Table:  # noqa: B008  (a constant)
    catalog = Catalog(str(root))
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", kind)])
    catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options={"bucket": "1", **options}))
    return catalog.table("db.t")


def test_batches_refuse_and_streams_go_on_with_other_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"})
    bad, kinds = pa.table({"k": [7], "v": [1]}), pa.array(["-D"])
    refused(table.store, "v", lambda: table.write(bad, kinds))
    refused(table.store, "v", lambda: table.write(bad, kinds, overwrite=True))
    with table.new_stream_write("job") as writer:
        writer.write(pa.table({"k": [1], "v": [1]}))
        refused(table.store, "v", lambda: writer.write(bad, kinds))
        writer.write(pa.table({"k": [2], "v": [2]}))
        table.new_stream_commit("job").commit(writer.prepare_commit(), 1)
    assert sorted(table.to_arrow().column("k").to_pylist()) == [1, 2]


# -- bytes that are no bitmap or sketch ----------------------------------------------------------------------------------------


def _hll() -> bytes:
    sketch = hll_sketch(12)
    sketch.update(1)
    return bytes(sketch.serialize_compact())


def _theta() -> bytes:
    sketch = update_theta_sketch()
    sketch.update(1)
    return bytes(sketch.compact().serialize())


SKETCHES = {
    "rbm32": bytes(BitMap([1, 5]).serialize()), "rbm64": roaring64.encode(roaring64.of([1, 1 << 40])), "hll_sketch": _hll(),
    "theta_sketch": _theta(),
}  # fmt: skip


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xff" * 40], ids=["empty", "short", "long"])
@pytest.mark.parametrize("function", sorted(SKETCHES))
def test_junk_in_a_column_of_sketches_is_refused(tmp_path: Path, function: str, junk: bytes) -> None:
    table = table_of(tmp_path, {"merge-engine": "aggregation", "fields.v.aggregate-function": function}, pa.binary())
    good = SKETCHES[function]
    table.write(pa.table({"k": [1, 2, 3], "v": [good, None, good]}))
    before, files = table.latest_snapshot(), data_files_on_disk(table.store)
    for bad in (junk, good[: len(good) // 2]):
        with pytest.raises(
            InvalidData,
            match=rf"table db.t, column 'v': row 3 \(from 0\) of the rows given, key {{'k': 8}}: {function} .*cannot",
        ):
            table.write(pa.table({"k": [5, 6, 7, 8, 9], "v": [good, None, good, bad, bad]}))
    assert (table.latest_snapshot(), data_files_on_disk(table.store)) == (before, files)
    table.write(pa.table({"k": [1, 2, 3], "v": [good, good, None]}))
    assert table.to_arrow().column("v").null_count == 0


def test_junk_in_a_sequence_group_is_refused_and_elsewhere_bytes_are_bytes(tmp_path: Path) -> None:
    store = make(tmp_path, {**GROUP, "fields.v.aggregate-function": "rbm32"}, "BYTES")
    with pytest.raises(InvalidData, match=r"column 'v': row 0 \(from 0\) of the rows given, key {'k': 7}: rbm32"):
        write(store, row(7, 1, b"junk", "BYTES"))
    plain = make(tmp_path / "plain", GROUP, "BYTES")
    write(plain, row(7, 1, b"junk", "BYTES"))
    assert read(plain).column("v").to_pylist() == [b"junk"]


@pytest.mark.parametrize("option", ["ignore-delete", "ignore-update-before"])
def test_bytes_of_a_row_that_is_dropped_are_nobodys_business(tmp_path: Path, option: str) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "rbm32", "fields.v.ignore-retract": "true"}
    table = table_of(tmp_path, {**options, option: "true"}, pa.binary())
    good = SKETCHES["rbm32"]
    table.write(pa.table({"k": [1, 2, 2], "v": [good, b"junk", good]}), ["+I", "-U", "+I"])
    assert table.to_arrow().to_pylist() == [{"k": 1, "v": good}, {"k": 2, "v": good}]
    with pytest.raises(InvalidData, match=r"row 2 \(from 0\) of the rows given, key {'k': 3}: rbm32"):
        table.write(pa.table({"k": [1, 2, 3], "v": [good, b"junk", b"junk"]}), ["+I", "-U", "+I"])


def test_a_bad_kind_is_named_with_the_users_column(tmp_path: Path) -> None:
    options = {"bucket": "1", "rowkind.field": "op"}
    store = make_store(tmp_path / "t", {"k": "INT NOT NULL", "op": "STRING"}, ["k"], (), options)
    for bad, message in (("delete", "'delete' is no row kind; accepted: .I, -U"), (None, "null is not a row kind")):
        with pytest.raises(
            InvalidData, match=rf"table db.t, column 'op': row 1 \(from 0\) of the rows given: {message}"
        ):
            write(store, pa.table({"k": [1, 2], "op": ["+I", bad]}))
    write(store, pa.table({"k": [1, 2], "op": ["+i", "+I"]}))  # in either case, as in Java
    write(store, pa.table({"k": [1], "op": ["-d"]}))
    assert read(store).to_pylist() == [{"k": 2, "op": "+I"}]
    numbers = make_store(tmp_path / "n", {"k": "INT NOT NULL", "op": "INT"}, ["k"], (), options)
    with pytest.raises(
        InvalidOption, match=r"option 'rowkind\.field' of table db.t cannot be 'op'; accepted: a text column"
    ):
        write(numbers, pa.table({"k": [1], "op": [0]}))


def test_junk_that_others_wrote_is_still_read_and_moved_as_it_stands(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"merge-engine": "aggregation", "fields.v.aggregate-function": "rbm32"}, pa.binary())
    with StoredRows(table.store) as writer:
        writer.write(pa.table({"k": [7], "v": [b"junk"]}))
        Committer(table.store).commit(writer.prepare_commit())
    assert table.to_arrow().to_pylist() == [{"k": 7, "v": b"junk"}]
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "2")])
    table = catalog.table("db.t")
    table.apply(table.plan_maintenance("rescale"))
    assert table.to_arrow().to_pylist() == [{"k": 7, "v": b"junk"}]


def test_a_call_that_is_refused_halfway_cannot_be_committed(tmp_path: Path) -> None:
    store = make(tmp_path, {})
    bad = pa.table({"k": pa.array([None], pa.int32()), "g": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())})
    batches = [*row(1).cast(bad.schema).to_batches(), *bad.to_batches()]

    def halfway(writer: TableWrite) -> None:
        with pytest.raises(InvalidData, match="'k'"):
            writer.write(pa.RecordBatchReader.from_batches(bad.schema, batches))

    writer = TableWrite(store)
    halfway(writer)
    for attempt in (
        writer.prepare_commit,
        lambda: writer.write(row(2)),
    ):  # a good call does not make whole what was not
        with pytest.raises(DredgeError, match="an earlier write failed"):
            attempt()
    writer.abort()
    assert writer.prepare_commit() == []

    whole = TableWrite(store)
    with pytest.raises(InvalidData, match="'k'"):
        whole.write(bad)  # refused before any of its rows was taken
    whole.write(row(3))
    Committer(store).commit(whole.prepare_commit())
    assert read(store).column("k").to_pylist() == [3]
    assert len(data_files_on_disk(store)) == 1
