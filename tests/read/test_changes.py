"""Changes between two versions, and limits that are pushed down to the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.read.changes import changed_rows, diff
from tests.support.samples import examples

NOW = 1_800_000_000_000
SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
Row = tuple[str, int, int | None]


def make(tmp_path: Path, keys: tuple[str, ...] = ("k",), **options: str) -> Table:
    catalog = Catalog(tmp_path, clock=FixedClock(NOW))
    catalog.create_database("db", ignore_if_exists=True)
    return catalog.create_table("db.t", Schema(SCHEMA, keys, (), {"bucket": "2" if keys else "-1", **options}))


def put(table: Table, *rows: Row, **arguments: Any) -> None:
    data = pa.table({"k": [k for _, k, _ in rows], "v": [v for _, _, v in rows]}, SCHEMA)
    table.write(data, row_kinds=pa.array([kind for kind, _, _ in rows], pa.string()), **arguments)


def changes(table: Table, *span: Any, **choice: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.incremental(*span, **choice).to_pylist())


def test_delta_tells_every_row_and_diff_what_came_of_it(tmp_path: Path) -> None:
    table = make(tmp_path)
    put(table, ("+I", 1, 10), ("+I", 2, 20), ("+I", 3, 30))
    put(table, ("+U", 1, 11), ("-D", 2, 20))
    put(table, ("+U", 1, 12), ("+I", 3, 30))
    table.compact(full=True)
    records = [("+I", 3, 30), ("+U", 1, 11), ("+U", 1, 12), ("-D", 2, 20)]
    assert changes(table, 1, 4) == changes(table, 1, 4, "delta") == records
    assert changes(table, 1, 4, "changelog") == []
    assert changes(table, 1, 4, "diff") == [("+U", 1, 12), ("-D", 2, 20)]
    assert changes(table, 3, 4, "diff") == []
    assert changes(table, 2, 2) == []
    assert table.incremental(0, 1).schema.names == ["_ROW_KIND", "k", "v"]
    options = {"incremental-between": "1,4", "incremental-between-scan-mode": "diff"}
    assert table.copy(options).to_arrow().to_pylist() == [{"k": 1, "v": 12}]
    assert table.copy({"incremental-between": "1,4"}).to_arrow(limit=3).num_rows == 3
    assert table.copy({"incremental-between": "1,4"}).to_arrow(snapshot_id=1).num_rows == 3


LATEST = {"scan.mode": "latest-delta", "dredge.paimon-version": "2.1"}


def values(table: Table, **options: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.copy({**LATEST, **options}).to_arrow().to_pylist())


@pytest.mark.parametrize("keys", [("k",), ()])
def test_the_newest_snapshot_alone_is_read_where_that_is_asked_for(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """`scan.mode` = `latest-delta`: rows that the newest snapshot added, if it is an APPEND; never those of one before it."""
    table = make(tmp_path, keys)
    assert values(table) == []
    put(table, ("+I", 1, 10), ("+I", 2, 20))
    put(table, ("+I", 1, 11), ("+I", 3, 30))
    assert values(table) == [(1, 11), (3, 30)]
    assert table.copy(LATEST).to_arrow(filter=[("k", "=", 3)], columns=["v"]).to_pylist() == [{"v": 30}]
    assert table.copy(LATEST).to_arrow(snapshot_id=1).num_rows == 2
    assert table.copy(LATEST).to_arrow(limit=1).num_rows == 1
    put(table, ("+I", 4, 40), overwrite=True)
    assert values(table) == []
    table.copy({"target-file-size": "1 gb"}).compact(full=True)
    assert values(table) == []
    put(table, ("+I", 5, 50))
    assert values(table) == [(5, 50)]
    with pytest.raises(InvalidOption, match=r"scan\.mode.*no value in a stream"):
        table.copy(LATEST).new_stream_scan()
    with pytest.raises(InvalidOption, match=r"scan\.mode.*from-snapshot.* together with scan\.snapshot-id"):
        values(table, **{"scan.snapshot-id": "1"})


@pytest.mark.parametrize("keys", [("k",), ()])
def test_a_mode_of_2_1_is_none_of_a_table_that_follows_an_older_version(tmp_path: Path, keys: tuple[str, ...]) -> None:
    table = make(tmp_path, keys)
    put(table, ("+I", 1, 10))
    wrong = r"'scan\.mode' of table db\.t cannot be 'latest-delta'; accepted: a mode of Paimon {}, .*since 2\.1"
    with pytest.raises(InvalidOption, match=wrong.format(r"1\.4")):
        table.copy({"scan.mode": "latest-delta"}).to_arrow()
    with pytest.raises(InvalidOption, match=wrong.format(r"2\.0")):
        table.copy({**LATEST, "dredge.paimon-version": "2.0"}).to_arrow()
    catalog, change = Catalog(tmp_path), SchemaChange.set_option("scan.mode", "latest-delta")
    with pytest.raises(InvalidOption, match=wrong.format(r"1\.4")):
        catalog.alter_table("db.t", [change])
    # a table that Paimon 2.1 writes follows it
    path = Path(table.store.snapshot_path(1))
    path.write_bytes(replace(Snapshot.from_json(path.read_bytes(), str(path)), writer_version="java-2.1.0").to_json())
    assert Catalog(tmp_path).table("db.t").copy({"scan.mode": "latest-delta"}).to_arrow().num_rows == 1
    catalog.alter_table("db.t", [change])
    assert catalog.table("db.t").to_arrow().to_pylist() == [{"k": 1, "v": 10}]


def test_versions_with_other_bucket_counts_are_not_compared_wherever_their_files_lie(tmp_path: Path) -> None:
    places: set[bool] = set()
    for key in range(40):
        if len(places) == 2:
            break
        table = make(tmp_path / str(key), bucket="5")
        put(table, ("+I", key, 1))
        old = {bucket.bucket for bucket in table.health()}
        table.apply(table.plan_maintenance("rescale", bucket_num=2))
        table = Catalog(tmp_path / str(key)).table("db.t")
        places.add(old == {bucket.bucket for bucket in table.health()})
        with pytest.raises(UnsupportedFeature, match=r"different numbers of buckets \(5 and 2\)"):
            table.incremental(1, 2, mode="diff")
        assert changes(table, 2, 2, "diff") == []
    assert places == {True, False}


def test_logs_show_the_changes_that_options_ask_for(tmp_path: Path) -> None:
    """`$binlog` makes one row of an update's two, also across batches; without options both show the table as it is."""
    table = make(tmp_path, bucket="1")
    put(table, ("+I", 1, 10), ("+I", 2, 20))
    put(table, ("-U", 1, 10), ("-D", 2, 20))
    put(table, ("+U", 1, 11), ("+I", 3, 30), ("-U", 4, 40))
    catalog = Catalog(tmp_path, clock=FixedClock(NOW))
    between = {"incremental-between": "1,3"}
    log = catalog.table("db.t$audit_log").copy(between)
    records = [tuple(row.values()) for row in log.to_arrow().to_pylist()]
    assert records == [("-U", 1, 10), ("-D", 2, 20), ("+U", 1, 11), ("+I", 3, 30), ("-U", 4, 40)]
    assert log.to_arrow(columns=["rowkind"], filter=[("rowkind", "=", "-D"), ("v", ">", 5)]).to_pylist() == [
        {"rowkind": "-D"}
    ]
    assert [row["rowkind"] for row in log.to_arrow(snapshot_id=1).to_pylist()] == ["+I", "+I"]
    put(table, ("-U", 7, 1))
    put(table, ("+U", 7, 2))
    pairs = catalog.table("db.t$binlog").copy({"incremental-between": "2,5"}).to_arrow()
    assert [tuple(row.values()) for row in pairs.to_pylist()] == [
        ("+U", [1], [11]),
        ("+I", [3], [30]),
        ("-U", [4], [40]),
        ("+U", [7, 7], [1, 2]),
    ]
    assert sorted(catalog.table("db.t$binlog").to_arrow().column("rowkind").to_pylist()) == [
        "+I",
        "+U",
        "+U",
        "-D",
        "-U",
    ]


def test_only_files_made_since_a_time_are_read_where_that_is_asked_for(tmp_path: Path) -> None:
    clock = FixedClock(NOW)
    catalog = Catalog(tmp_path, clock=clock)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(SCHEMA))
    put(table, ("+I", 1, 1))
    later = Catalog(tmp_path, clock=FixedClock(NOW + 5_000)).table("db.t")
    put(later, ("+I", 2, 2))
    made = sorted(catalog.table("db.t$files").to_arrow().column("creation_time").to_pylist())
    assert made[0] < made[1]
    since = {"scan.file-creation-time-millis": str(NOW + 5_000)}
    assert later.copy(since).to_arrow().to_pylist() == [{"k": 2, "v": 2}]
    assert later.copy({"scan.file-creation-time-millis": "0"}).to_arrow().num_rows == 2
    assert changes(later, 0, 2) == [("+I", 1, 1), ("+I", 2, 2)]


def test_columns_and_filters_judge_each_changed_row(tmp_path: Path) -> None:
    table = make(tmp_path)
    put(table, ("+I", 1, 10), ("+I", 2, 20))
    put(table, ("+U", 1, 30), ("-D", 2, 20))
    assert changes(table, 1, 2, columns=["v"], filter=[("k", "=", 1)]) == [("+U", 30)]
    # a key whose new value does not pass is neither new nor gone
    assert changes(table, 1, 2, "diff", columns=["k"], filter=[("v", "<", 25)]) == [("-D", 2)]
    # values are compared in columns that are not asked for, too
    assert changes(table, 1, 2, "diff", columns=["k"]) == [("+U", 1), ("-D", 2)]


def test_a_comparison_sees_overwritten_rows_whatever_their_sequence_numbers(tmp_path: Path) -> None:
    """An overwrite begins again with sequence number 0, so the older row may have the larger one (Java then loses the change)."""
    table = make(tmp_path, bucket="1")
    put(table, ("+I", 5, 50), ("+I", 6, 60))
    put(table, ("+U", 5, 51))
    put(table, ("+I", 5, 52), overwrite=True)
    assert changes(table, 2, 3, "diff") == [("+I", 5, 52), ("-D", 6, 60)]


def test_files_that_both_versions_have_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, bucket="1")
    put(table, *(("+I", k, k) for k in range(100)))
    put(table, ("+I", 500, 1))
    put(table, ("+I", 501, 1))
    opened: list[int] = []
    kept = changed_rows.merged_rows

    def counting(choice: Any, place: Any, files: Any, *rest: Any, **named: Any) -> Any:
        opened.append(sum(file.row_count for file in files))
        return kept(choice, place, files, *rest, **named)

    monkeypatch.setattr(diff, "merged_rows", counting)
    assert changes(table, 2, 3, "diff") == [("+I", 501, 1)]
    assert opened == [0, 1]


@pytest.mark.parametrize(
    ("span", "error"),
    [
        ((2, 1), InvalidOption),
        ((0, 9), SnapshotNotFound),
        (("nope", 2), SnapshotNotFound),
        ((1, 2, "sideways"), InvalidOption),
        ((-1, 2), InvalidOption),
        ((0, 2, "diff"), SnapshotNotFound),
        ((1.5, 2), InvalidOption),
    ],
)
def test_spans_that_are_not_there_are_refused(tmp_path: Path, span: tuple[Any, ...], error: type[Exception]) -> None:
    table = make(tmp_path)
    put(table, ("+I", 1, 1))
    put(table, ("+I", 2, 2))
    with pytest.raises(error):
        table.incremental(*span)


@pytest.mark.parametrize("text", ["1", "1,2,3", "a,2", ",", "1,"])
def test_a_span_that_cannot_be_understood_is_refused_by_its_option(tmp_path: Path, text: str) -> None:
    table = make(tmp_path)
    put(table, ("+I", 1, 1))
    with pytest.raises((InvalidOption, SnapshotNotFound)):
        table.copy({"incremental-between": text}).to_arrow()


def test_expired_changes_are_missed_by_name(tmp_path: Path) -> None:
    table = make(tmp_path)
    for number in range(4):
        put(table, ("+I", number, number))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than_ms=NOW + 1)
    assert changes(table, 2, 4) == [("+I", 2, 2), ("+I", 3, 3)]
    with pytest.raises(SnapshotNotFound, match="keeps 3 to 4") as caught:
        table.incremental(1, 4)
    assert caught.value.expired


def test_versions_with_other_numbers_of_buckets_are_not_compared(tmp_path: Path) -> None:
    """The rows of a key would lie in other buckets, so nothing could be matched."""
    make(tmp_path, bucket="1")
    catalog = Catalog(tmp_path, clock=FixedClock(NOW))
    put(catalog.table("db.t"), ("+I", 1, 1), ("+I", 2, 2))
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "2")])
    put(catalog.table("db.t"), ("+I", 1, 1), ("+I", 2, 2), overwrite=True)
    with pytest.raises(UnsupportedFeature, match=r"different numbers of buckets \(1 and 2\)"):
        catalog.table("db.t").incremental(1, 2, "diff")


COMMITS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=6),
        st.sampled_from(["write", "delete", "overwrite", "compact"]),
    ),
    min_size=2,
    max_size=6,
)


@given(COMMITS)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_comparison_turns_one_version_into_the_other(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[dict[int, int | None], str]]
) -> None:
    """Applied to the older version, the changes give the newer one, and no row that stayed the same is among them."""
    table = make(tmp_path_factory.mktemp("t"))
    for values, how in commits:
        if how == "compact" and table.latest_snapshot() is not None:
            table.compact(full=True)
        kind = "-D" if how == "delete" else "+I"
        put(table, *((kind, k, v) for k, v in values.items()), **({"overwrite": True} if how == "overwrite" else {}))
    last = table.snapshots()[-1].id
    versions = [
        {row["k"]: row["v"] for row in table.to_arrow(snapshot_id=number).to_pylist()} for number in range(1, last + 1)
    ]
    for a in range(1, last + 1):
        before, after = versions[a - 1], versions[last - 1]
        found = table.incremental(a, last, "diff").to_pylist()
        assert sorted(row["k"] for row in found) == sorted(
            k for k in before.keys() | after.keys() if before.get(k, "-") != after.get(k, "-")
        )
        for row in found:
            if row["_ROW_KIND"] == "-D":
                assert before[row["k"]] == row["v"]
            else:
                assert after[row["k"]] == row["v"]


def counted_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many data files are opened from now on."""
    from lsm_core.files import reader

    opened: list[str] = []
    kept = reader.open_source

    def counting(*arguments: Any, **named: Any) -> Any:
        opened.append(arguments[3].file_name)
        return kept(*arguments, **named)

    monkeypatch.setattr(reader, "open_source", counting)
    return lambda: len(opened)


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_limit_opens_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]) -> None:
    options = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    table = make(tmp_path, keys, **({"bucket": "1"} if keys else {}), **options)
    for start in range(0, 100, 10):
        put(table, *(("+I", k, k) for k in range(start, start + 10)))
    opened = counted_files(monkeypatch)
    assert table.to_arrow(limit=15).num_rows == 15
    assert opened() == 2
    assert table.to_arrow(limit=0).num_rows == 0
    assert table.to_arrow(limit=95).num_rows == 95
    assert table.to_arrow(limit=500).num_rows == 100
    assert table.to_arrow(limit=5, filter=[("v", ">=", 50)]).num_rows == 5
