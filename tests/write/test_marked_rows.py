"""DELETE and UPDATE of append tables with deletion vectors: rows are marked in place, compactions apply the marks, conflicts are told or retried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, UnsupportedFeature
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.apply import apply_plan
from lsm_core.metadata import snapshots
from lsm_core.metadata.manifests import index_entries
from lsm_core.metadata.store import TableStore
from lsm_core.write.row_changes import vectors
from tests.support import stores
from tests.support.samples import examples, one_in

COLUMNS = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
KINDS = pytest.mark.parametrize("buckets", [0, 2], ids=["unaware", "bucketed"])


def create(tmp_path: Path, buckets: int = 0, **options: str) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db", ignore_if_exists=True)
    fixed = {"bucket": str(buckets), "bucket-key": "k"} if buckets else {}
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    chosen = {"deletion-vectors.enabled": "true", **fixed, **named}
    return catalog.create_table("db.t", Schema(COLUMNS, [], ["p"], chosen))


def rows(partition: str, keys: Sequence[int], value: int = 0) -> pa.Table:
    return pa.table([[partition] * len(keys), list(keys), [value + k for k in keys]], schema=COLUMNS)


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


def live_files(store: TableStore) -> list[DataFileMeta]:
    return [file for files in stores.live_files(store).values() for file in files]


def index_names(table: Table) -> list[str]:
    latest = snapshots.latest(table.store)
    assert latest is not None
    return [entry.file_name for entry in index_entries(table.store, latest)]


def index_files_on_disk(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root, "index").glob("*")}


@KINDS
@pytest.mark.parametrize("wide", one_in(2, ["false", "true"], 1), ids=["v1", "bitmap64"])
def test_rows_are_marked_and_no_file_is_written_again(tmp_path: Path, buckets: int, wide: str) -> None:
    table = create(tmp_path, buckets, deletion_vectors__bitmap64=wide)
    for partition in "ab":
        table.write(rows(partition, range(100)))
    before = {file.file_name for file in live_files(table.store)}
    assert table.delete([("p", "=", "a"), ("k", "<", 30)]) == 3
    assert {file.file_name for file in live_files(table.store)} == before
    latest = snapshots.latest(table.store)
    assert latest is not None
    assert latest.commit_kind is CommitKind.OVERWRITE
    assert sum(stores.deleted_rows(table.store).values()) == 30
    assert len(index_names(table)) == (buckets or 1)
    # rows that are marked already are not counted again, and the marks of both statements are in one vector a file
    assert table.delete([("k", "<", 40), ("k", ">=", 20)]) == 4
    assert sum(stores.deleted_rows(table.store).values()) == 30 + 10 + 20
    assert table.delete([("p", "=", "a"), ("k", "<", 40)]) is None
    assert table.update([("p", "=", "b"), ("k", ">", 89)], {"v": pc.field("v") + 1000}) == 5
    expected = [("a", k, k) for k in range(40, 100)]
    expected += [("b", k, k) for k in range(90) if not 20 <= k < 40] + [("b", k, k + 1000) for k in range(90, 100)]
    assert content(table) == sorted(expected, key=repr)
    assert content(Catalog(tmp_path / "wh").table("db.t")) == sorted(expected, key=repr)
    # a full compaction leaves no vector, and says what it took away
    report = table.compact(full=True)
    assert stores.deleted_rows(table.store) == {}
    assert report.rows_in == report.rows_out == len(expected)
    assert report.verification.level == "V1"
    assert content(table) == sorted(expected, key=repr)
    assert table.verify(5, 6).ok


@KINDS
def test_a_file_whose_rows_are_all_marked_goes(tmp_path: Path, buckets: int) -> None:
    table = create(tmp_path, buckets)
    table.write(rows("a", range(10)))
    table.write(rows("a", range(10, 20)))
    assert table.delete([("k", "<", 5)]) is not None
    assert len(stores.deleted_rows(table.store)) == (buckets or 1)
    table.delete([("k", "<", 12)])
    assert {
        file.row_count - stores.deleted_rows(table.store).get(file.file_name, 0) for file in live_files(table.store)
    } > {0} - {0}
    assert sum(file.row_count for file in live_files(table.store)) == 10
    assert content(table) == [("a", k, k) for k in range(12, 20)]
    table.delete(pc.scalar(value=True))
    assert content(table) == []
    assert live_files(table.store) == []
    assert index_names(table) == []


def test_files_with_too_many_deleted_rows_are_compacted_alone(tmp_path: Path) -> None:
    table = create(tmp_path, compaction__small_file_ratio="0.000001")
    table.write(rows("a", range(1000)))
    table.write(rows("a", range(1000, 2000)))
    table.delete([("k", "<", 190)])
    assert table.compact().snapshot_id is None  # 19 % of one file
    table.delete([("k", "<", 210)])
    report = table.compact()
    assert (report.files_in, report.rows_in) == (1, 790)
    assert stores.deleted_rows(table.store) == {}
    assert len(content(table)) == 1790


def test_index_files_roll_at_their_size_and_many_small_ones_are_packed(tmp_path: Path) -> None:
    table = create(tmp_path, deletion_vector__index_file__target_size="100 b")
    for first in range(0, 60, 10):
        table.write(rows("a", range(first, first + 10)))
    table.delete([("k", "in", [3, 13, 23, 33, 43, 53])])
    latest = snapshots.latest(table.store)
    assert latest is not None
    sizes = [entry.file_size for entry in index_entries(table.store, latest)]
    assert len(sizes) == 2
    packed = create(tmp_path / "other")
    for first in range(0, 120, 10):
        packed.write(rows("a", range(first, first + 10)))
        packed.delete([("k", "=", first)])
    assert len(index_names(packed)) <= 9
    assert sum(stores.deleted_rows(packed.store).values()) == 12
    assert len(content(packed)) == 108


def test_a_compaction_that_comes_between_makes_the_statement_run_again(tmp_path: Path, monkeypatch: Any) -> None:
    table = create(tmp_path)
    for first in range(0, 50, 10):
        table.write(rows("a", range(first, first + 10)))
    other = Catalog(tmp_path / "wh").table("db.t")
    asked = []

    def between(scan_of: Any) -> Any:
        def plan() -> Any:
            scan = scan_of()
            if not asked:
                other.compact(full=True)
            asked.append(scan.snapshot.id)
            return scan

        return plan

    real = vectors._retried
    monkeypatch.setattr(vectors, "_retried", lambda store, plan, *rest: real(store, between(plan), *rest))
    assert table.delete([("k", "<", 7)]) == 7
    assert asked == [5, 6]
    assert sorted(row[1] for row in content(table)) == list(range(7, 50))
    assert index_files_on_disk(table) == set(index_names(table))


def test_a_statement_that_loses_every_time_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    table = create(tmp_path)
    table.write(rows("a", range(10)))
    other = Catalog(tmp_path / "wh").table("db.t")
    real, lost = vectors._change, iter(range(10))

    def change(store: Any, scan: Any, *rest: Any) -> Any:
        other.store.options  # noqa: B018 - another process would have its own
        monkeypatch.setattr(vectors, "_change", real)
        other.delete([("k", "=", next(lost))])
        monkeypatch.setattr(vectors, "_change", change)
        return real(store, scan, *rest)

    monkeypatch.setattr(vectors, "_change", change)
    with pytest.raises(CommitConflict) as failed:
        table.update([("k", ">", 7)], {"v": 1})
    assert failed.value.kind is ConflictKind.INDEX_CHANGED
    assert sorted(row[1] for row in content(table)) == list(range(5, 10))
    assert index_files_on_disk(table) >= set(index_names(table))
    assert len(live_files(table.store)) == 1
    data = {path.name for path in Path(table.store.root).glob("p=a/bucket-0/*")}
    assert data == {file.file_name for file in live_files(table.store)}


def test_a_compaction_does_not_bring_back_what_was_deleted_meanwhile(tmp_path: Path) -> None:
    table = create(tmp_path)
    for first in range(0, 50, 10):
        table.write(rows("a", range(first, first + 10)))
        table.write(rows("b", range(first, first + 10)))
    plan = table.plan_maintenance("compact", full=True)

    def runner(store: Any, tasks: Any) -> Any:
        from lsm_core.compact import run_tasks_locally

        yield from run_tasks_locally(store, tasks)
        Catalog(tmp_path / "wh").table("db.t").delete([("p", "=", "a"), ("k", "=", 33)])

    report = apply_plan(table.store, plan, runner)
    assert [declined.reason for declined in report.declined] == ["stale"]
    assert len(content(table)) == 99
    assert {file.row_count for file in live_files(table.store)} == {10, 50}
    table.compact(full=True)
    assert len(content(table)) == 99
    assert stores.deleted_rows(table.store) == {}


@pytest.mark.parametrize("damage", ["missing", "short", "beyond"])
def test_a_damaged_index_file_stops_everything_and_is_named(tmp_path: Path, damage: str) -> None:
    table = create(tmp_path)
    for first in range(0, 50, 10):
        table.write(rows("a", range(first, first + 10)))
    table.delete([("k", "=", 3)])
    (name,) = index_names(table)
    path = Path(table.store.root, "index", name)
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-5])
    else:  # the vector of another, longer file
        latest = snapshots.latest(table.store)
        assert latest is not None
        from lsm_core.format.deletion_vector import DeletionVector, index_file

        path.write_bytes(index_file([DeletionVector.of([10])])[0])
    before = snapshots.latest_id(table.store)
    for action in (
        lambda: table.delete([("k", "=", 4)]),
        lambda: table.compact(full=True),
        lambda: table.to_arrow(),
    ):
        with pytest.raises(CorruptFile, match=name):
            action()
    assert snapshots.latest_id(table.store) == before
    assert len(live_files(table.store)) == 5
    assert {p.name for p in Path(table.store.root).glob("p=a/bucket-0/*")} == {
        file.file_name for file in live_files(table.store)
    }


def test_an_append_table_that_switched_vectors_off_is_refused_while_it_has_some(tmp_path: Path) -> None:
    table = create(tmp_path, deletion_vectors__modifiable="true")
    table.write(rows("a", range(10)))
    table.delete([("k", "=", 3)])
    off = table.copy({"deletion-vectors.enabled": "false"})
    with pytest.raises(UnsupportedFeature, match="deletion vectors"):
        off.delete([("k", "=", 4)])


STATEMENTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 40), st.integers(1, 12)),
        st.tuples(st.just("delete"), st.integers(0, 40), st.integers(0, 12)),
        st.tuples(st.just("update"), st.integers(0, 40), st.integers(0, 12)),
        st.tuples(st.sampled_from(["compact", "full", "drop", "overwrite"]), st.just(0), st.just(3)),
    ),
    min_size=3,
    max_size=10,
)


@KINDS
@settings(max_examples=examples(15), deadline=None)
@given(statements=STATEMENTS, wide=st.booleans())
def test_any_history_leaves_the_rows_that_a_list_would(
    tmp_path_factory: pytest.TempPathFactory, buckets: int, statements: list[tuple[str, int, int]], wide: bool
) -> None:
    table = create(
        tmp_path_factory.mktemp("t"),
        buckets,
        deletion_vectors__bitmap64=str(wide).lower(),
        compaction__min__file_num="2",
    )
    model: list[dict[str, Any]] = []
    for number, (verb, first, count) in enumerate(statements):
        if verb == "write":
            new = rows("ab"[first % 2], range(first, first + count), number)
            table.write(new)
            model += new.to_pylist()
        elif verb == "delete":
            table.delete([("k", ">=", first), ("k", "<", first + count)])
            model = [row for row in model if not first <= row["k"] < first + count]
        elif verb == "update":
            table.update([("k", ">=", first), ("k", "<", first + count)], {"v": pc.field("v") + 100})
            model = [{**r, "v": r["v"] + 100} if first <= r["k"] < first + count else r for r in model]
        elif verb == "drop":
            table.drop_partitions([{"p": "a"}])
            model = [row for row in model if row["p"] != "a"]
        elif verb == "overwrite":
            table.write(rows("b", range(5), number), overwrite={"p": "b"})
            model = [row for row in model if row["p"] != "b"] + rows("b", range(5), number).to_pylist()
        else:
            table.compact(full=verb == "full")
        assert content(table) == sorted((tuple(row.values()) for row in model), key=repr)
    if snapshots.latest_id(table.store) is not None:
        names = {file.file_name for file in live_files(table.store)}
        assert set(stores.deleted_rows(table.store)) <= names
