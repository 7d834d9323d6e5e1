"""DELETE, UPDATE and UPSERT: by row kinds with a key, by rewriting files without one; refused where they could not be right."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.commit import Committer
from lsm_core.errors import (
    ColumnNotFound,
    CommitConflict,
    DredgeError,
    InvalidData,
    InvalidFilter,
    InvalidOption,
    UnsupportedFeature,
)
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import snapshots
from lsm_core.write import TableWrite, row_changes
from tests.support.samples import examples
from tests.support.stores import data_files_on_disk, live_files

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string()), ("p", pa.string())]
)
ALL = pc.scalar(value=True)


def create(tmp_path: Path, key: bool = True, partitioned: bool = False, **options: Any) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db", ignore_if_exists=True)
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    keys = [*(["p"] if partitioned else []), "k"] if key else []
    chosen = {**({"bucket": "2"} if key else {}), **named}
    return catalog.create_table("db.t", Schema(COLUMNS, keys, ["p"] if partitioned else [], chosen))


def rows(*listed: tuple[int, int | None, str | None, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip("kvsp", row, strict=True)) for row in listed], schema=COLUMNS)


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


FOUR = rows((1, 10, "a", "x"), (2, None, "b", "x"), (3, 30, None, "y"), (4, 40, "d", "y"))
KINDS = pytest.mark.parametrize("key", [True, False], ids=["keyed", "append"])


@KINDS
def test_rows_are_deleted_and_updated_in_one_commit_each(tmp_path: Path, key: bool) -> None:
    table = create(tmp_path, key)
    table.write(FOUR)
    assert table.delete([("v", ">", 25), ("s", "is not null")]) == 2  # a null is not more than 25
    assert content(table) == [(1, 10, "a", "x"), (2, None, "b", "x"), (3, 30, None, "y")]
    assert table.update([("p", "=", "x")], {"v": pc.field("v") + pc.field("k"), "s": "new"}) == 3
    assert content(table) == [(1, 11, "new", "x"), (2, None, "new", "x"), (3, 30, None, "y")]
    assert table.update(ALL, {"s": None}) == 4
    assert table.update(pc.field("k") == 99, {"s": "nobody"}) is None
    assert table.delete(pc.field("k") == 99) is None
    table.compact(full=True)
    assert content(table) == [(1, 11, None, "x"), (2, None, None, "x"), (3, 30, None, "y")]
    assert table.delete(ALL) is not None
    assert content(table) == []
    assert table.delete(ALL) is None


@KINDS
def test_values_of_every_shape_are_set_also_after_the_schema_changed(tmp_path: Path, key: bool) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    listed, inner = pa.list_(pa.int32()), pa.struct([("a", pa.int32())])
    columns = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            ("v", pa.int32()),
            ("l", listed),
            ("r", inner),
            ("day", pa.date32()),
        ]
    )
    table = catalog.create_table("db.t", Schema(columns, ["k"] if key else [], [], {"bucket": "1"} if key else {}))
    table.write({"k": [1, 2, 3], "v": [1, 2, 3], "l": [[1], None, [3, 4]], "r": [{"a": 1}, None, {"a": None}]})
    table.update(ALL, {"v": pc.scalar(5), "r": {"a": 7}, "day": "2024-01-01"})
    table.update([("k", "=", 2)], {"v": pc.if_else(pc.field("v") > 3, 2, 0), "l": [9, 9]})
    change = [SchemaChange.add_column("n", pa.string()), SchemaChange.rename_column("v", "w")]
    catalog.alter_table("db.t", change)
    table = catalog.table("db.t")
    table.update([("n", "is null"), ("k", ">", 1)], {"n": pc.utf8_upper(pc.scalar("k"))})
    table.delete(pc.field("w") == 5)
    day = dt.date(2024, 1, 1)
    assert table.to_arrow().to_pylist() == [{"k": 2, "w": 2, "l": [9, 9], "r": {"a": 7}, "day": day, "n": "K"}]


@KINDS
def test_a_filter_over_partitions_alone_drops_them_without_reading(tmp_path: Path, key: bool) -> None:
    table = create(tmp_path, key, partitioned=True)
    table.write(FOUR)
    before = data_files_on_disk(table.store)
    assert table.delete([("p", "=", "x")]) == 2
    latest = snapshots.latest(table.store)
    assert latest is not None
    assert latest.commit_kind is CommitKind.OVERWRITE
    assert data_files_on_disk(table.store) == before
    assert content(table) == [(3, 30, None, "y"), (4, 40, "d", "y")]
    assert table.delete([("p", "=", "x")]) is None
    table.delete([("p", "=", "y"), ("k", "=", 4)])
    assert content(table) == [(3, 30, None, "y")]
    assert table.drop_partitions([{"p": "y"}]) is not None
    assert table.truncate() is None


def test_an_option_keeps_row_kinds_for_whole_partitions(tmp_path: Path) -> None:
    table = create(tmp_path, partitioned=True, delete__force_produce_changelog="true")
    table.write(FOUR)
    table.delete([("p", "=", "x")])
    latest = snapshots.latest(table.store)
    assert latest is not None
    assert latest.commit_kind is CommitKind.APPEND
    assert [row[0] for row in content(table)] == [3, 4]


def test_append_files_without_matching_rows_are_left_alone_and_order_is_kept(tmp_path: Path) -> None:
    table = create(tmp_path, key=False, bucket="1", bucket_key="k")
    for first in (0, 3, 6):
        table.write(rows(*((first + i, first + i, "s", "x") for i in range(3))))
    names = [file.file_name for file in next(iter(live_files(table.store).values()))]
    table.delete([("v", "=", 4)])
    after = {file.file_name: file for file in next(iter(live_files(table.store).values()))}
    assert set(names) - set(after) == {names[1]}
    (new,) = (file for name, file in after.items() if name not in names)
    assert (new.min_sequence_number, new.max_sequence_number, new.file_source) == (3, 4, 0)
    assert table.to_arrow().column("v").to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8]
    table.update([("v", "in", [0, 8])], {"s": "t"})
    assert table.to_arrow().column("s").to_pylist() == list("tsssssst")
    table.delete([("v", "<", 3)])
    assert table.to_arrow().column("v").to_pylist() == [3, 5, 6, 7, 8]
    table.write(rows((9, 9, "s", "x")))
    assert table.to_arrow().column("v").to_pylist() == [3, 5, 6, 7, 8, 9]


@KINDS
def test_statements_without_a_filter_or_with_nonsense_change_nothing(tmp_path: Path, key: bool) -> None:
    table = create(tmp_path, key)
    table.write(FOUR)
    files = data_files_on_disk(table.store)
    wrong: list[tuple[type[DredgeError], str, Any]] = [
        (InvalidFilter, "without a filter", lambda: table.delete(None)),
        (InvalidFilter, "without a filter", lambda: table.update([], {"v": 1})),
        (ColumnNotFound, "'nope'", lambda: table.update(ALL, {"nope": 1})),
        (ColumnNotFound, "'nope'", lambda: table.update(ALL, {"v": pc.field("nope") + 1})),
        (ColumnNotFound, "'nope'", lambda: table.delete([("nope", "=", 1)])),
        (InvalidData, "'v'", lambda: table.update(ALL, {"v": "many"})),
        (InvalidData, "'v'", lambda: table.update(ALL, {"v": pc.field("s")})),
        (InvalidData, "'v'", lambda: table.update(ALL, {"v": object()})),
        (InvalidOption, "at least one column", lambda: table.update(ALL, {})),
        (InvalidOption, "a mapping", lambda: table.update(ALL, "v")),  # type: ignore[arg-type]
        (InvalidFilter, "bool", lambda: table.delete(pc.field("k") + 1)),
        (InvalidData, "cannot be read as a table", lambda: table.upsert("k") if key else table.write("k")),  # type: ignore[arg-type]
    ]
    if key:
        wrong.append((UnsupportedFeature, "primary key column 'k'", lambda: table.update(ALL, {"k": 1})))
    else:
        wrong.append((UnsupportedFeature, "without primary key", lambda: table.upsert(FOUR)))
        wrong.append((InvalidData, "'k'", lambda: table.update(ALL, {"k": None})))
    for kind, message, statement in wrong:
        with pytest.raises(kind, match=message):
            statement()
    assert snapshots.latest_id(table.store) == 1
    assert data_files_on_disk(table.store) == files


@pytest.mark.parametrize(
    ("options", "delete", "update"),
    [
        ({"merge_engine": "first-row"}, "first-row", "first-row"),
        ({"merge_engine": "partial-update"}, "partial-update.remove-record-on-delete", None),
        ({"merge_engine": "partial-update", "partial_update__remove_record_on_delete": "true"}, None, None),
        (
            {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"},
            "aggregation.remove-record-on-delete",
            "merge engine aggregation",
        ),
        ({"merge_engine": "aggregation", "aggregation__remove_record_on_delete": "true"}, None, "aggregation"),
        ({"ignore_delete": "true"}, "ignore-delete", None),
    ],
)
def test_engines_take_what_they_can_carry_out(
    tmp_path: Path, options: dict[str, Any], delete: str | None, update: str | None
) -> None:
    table = create(tmp_path, **options)
    table.write(FOUR)
    statements: list[tuple[str | None, Callable[[], Any], int]] = [
        (update, lambda: table.update([("k", "=", 1)], {"v": 7}), 4),
        (delete, lambda: table.delete([("k", "=", 1)]), 3),
    ]
    for refusal, statement, left in statements:
        if refusal is None:
            statement()
            assert table.to_arrow().num_rows == left
        else:
            with pytest.raises(UnsupportedFeature, match=refusal):
                statement()
    if update is None:
        assert delete is None or (1, 7, "a", "x") in content(table)


def test_an_update_that_the_engine_would_merge_away_is_refused(tmp_path: Path) -> None:
    partial = create(tmp_path / "a", merge_engine="partial-update")
    partial.write(FOUR)
    with pytest.raises(InvalidData, match="a null"):
        partial.update([("k", "=", 1)], {"s": None})
    partial.update([("k", "=", 2)], {"v": None})  # it was null
    ordered = create(tmp_path / "b", sequence__field="v")
    ordered.write(FOUR)
    with pytest.raises(InvalidData, match="older sequence"):
        ordered.update([("k", "=", 1)], {"v": 9})
    ordered.update([("k", "=", 1)], {"v": 11})
    ordered.delete([("k", "=", 3)])
    assert content(ordered) == [(1, 11, "a", "x"), (2, None, "b", "x"), (4, 40, "d", "y")]
    options: dict[str, Any] = {"fields__v__sequence_group": "s", "fields__s__aggregate_function": "listagg"}
    doubling = create(tmp_path / "c", **{"merge_engine": "partial-update", **options})
    doubling.write(FOUR)
    with pytest.raises(InvalidData, match="aggregate"):
        doubling.update([("k", "=", 1)], {"p": "z"})
    for table in (partial, ordered, doubling):
        live = {file.file_name for files in live_files(table.store).values() for file in files}
        assert data_files_on_disk(table.store) == live


def test_the_column_that_holds_row_kinds_says_so_itself(tmp_path: Path) -> None:
    table = create(tmp_path, rowkind__field="s")
    table.write(rows((1, 1, "+I", "x"), (2, 2, "+I", "x")))
    table.delete([("k", "=", 1)])
    table.update([("k", "=", 2)], {"v": 3})
    assert content(table) == [(2, 3, "+U", "x")]
    with pytest.raises(UnsupportedFeature, match="row kind column 's'"):
        table.update(ALL, {"s": "-D"})


def test_upserts_replace_or_are_merged(tmp_path: Path) -> None:
    table = create(tmp_path / "a")
    table.write(FOUR)
    assert table.upsert(rows((1, 0, "n", "z"), (9, 9, "n", "z"), (9, 8, "m", "z"))) == 2
    assert [row for row in content(table) if row[3] == "z"] == [(1, 0, "n", "z"), (9, 8, "m", "z")]
    table.upsert({"k": [1], "v": [2], "p": ["q"]})  # as `Table.write` and `save()` fill what is missing
    assert (1, 2, None, "q") in content(table)
    partial = create(tmp_path / "b", merge_engine="partial-update")
    partial.write(FOUR)
    partial.upsert({"k": [1], "v": [5]})
    assert content(partial)[0] == (1, 5, "a", "x")
    with pytest.raises(UnsupportedFeature, match="first-row"):
        create(tmp_path / "c", merge_engine="first-row").upsert(FOUR)


@KINDS
def test_what_another_commit_changed_meanwhile_is_never_undone(
    tmp_path: Path, key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, key)
    table.write(FOUR)
    real = Committer.commit
    rivals: list[Any] = []

    def late(self: Committer, *arguments: Any, **named: Any) -> Any:
        if rivals:
            rivals.pop()()
        return real(self, *arguments, **named)

    monkeypatch.setattr(Committer, "commit", late)
    rivals.append(lambda: table.write(rows((1, 99, "late", "x"))))
    if key:
        with pytest.raises(CommitConflict, match="do it again"):
            table.delete([("k", "<", 3)])
        assert (1, 99, "late", "x") in content(table)
        assert len(content(table)) == 4
    else:  # new rows in other files are not this statement's
        table.delete([("k", "<", 3)])
        assert content(table) == [(1, 99, "late", "x"), (3, 30, None, "y"), (4, 40, "d", "y")]
        rivals.append(lambda: table.truncate())
        with pytest.raises(CommitConflict, match="deleted or moved"):
            table.update(ALL, {"s": "u"})
        assert content(table) == []
    live = {file.file_name for files in live_files(table.store).values() for file in files}
    lost = data_files_on_disk(table.store) - live
    assert len(lost) == (0 if key else 3)  # only what earlier snapshots hold


def test_a_statement_is_worked_out_from_the_newest_version(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.write(FOUR)
    table.write(rows((1, 11, "a", "x")))
    with pytest.raises(DredgeError, match="newest version"):
        table.copy({"scan.snapshot-id": "1"}).delete([("k", "=", 1)])


@settings(max_examples=examples(20), deadline=None)
@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["write", "delete", "update", "compact"]),
            st.integers(0, 12),
            st.integers(0, 12),
            st.integers(0, 100),
        ),
        max_size=12,
    ),
)
def test_tables_say_what_a_list_of_rows_would_say(
    tmp_path_factory: pytest.TempPathFactory, key: bool, steps: list[tuple[str, int, int, int]]
) -> None:
    table = create(tmp_path_factory.mktemp("t"), key)
    model: list[tuple[Any, ...]] = []
    for verb, low, high, value in steps:
        if verb == "write":
            new = [(k, value, None, "p") for k in range(low, min(low + 5, 13))]
            model = [row for row in model if not (key and any(row[0] == n[0] for n in new))] + new
            table.write(rows(*new))
        elif verb == "delete":
            model = [row for row in model if not low <= row[0] <= high]
            table.delete([("k", ">=", low), ("k", "<=", high)])
        elif verb == "update":
            model = [(k, v + k if low <= k <= high else v, s, p) for k, v, s, p in model]
            table.update((pc.field("k") >= low) & (pc.field("k") <= high), {"v": pc.field("v") + pc.field("k")})
        else:
            table.compact(full=True)
        assert content(table) == sorted(model, key=repr)


def test_memory_follows_the_buffers_not_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path, write_buffer_size="1 mb")
    count = 60_000
    table.write(pa.table([list(range(count)), list(range(count)), ["text"] * count, ["p"] * count], schema=COLUMNS))
    seen: list[int] = []
    real = TableWrite.write

    def watched(self: TableWrite, *arguments: Any) -> None:
        real(self, *arguments)
        seen.append(self.buffered_bytes)

    monkeypatch.setattr(TableWrite, "write", watched)
    row_changes.update_rows(table.store, ALL, {"v": pc.field("v") + 1})
    assert max(seen) <= 1 << 20
    assert pc.sum(table.to_arrow().column("v")).as_py() == count * (count + 1) // 2
