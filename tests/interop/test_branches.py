"""Branches, consumers, strict mode and statistics of one engine are the other's, file by file and row by row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.metadata import branches, statistics
from tests.maintenance.tables import on_disk
from tests.support.peers import refusal_of

Java = Callable[..., dict[str, Any]]
FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "STRING"}]
DEV = "db.t$branch_dev"


def theirs(java: Java, table: str = "db.t") -> dict[int, str]:
    return {row["k"]: row["v"] for row in java("read", table=table)["rows"]}


def ours(catalog: Catalog, table: str = "db.t") -> dict[int, str]:
    found = catalog.table(table).to_arrow()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def put(table: Table, **values: str) -> None:
    keys = pa.array([int(name[1:]) for name in values], pa.int32())
    table.write(pa.table({"k": keys, "v": list(values.values())}))


def both(java: Java, catalog: Catalog, expected: dict[int, str], table: str = "db.t") -> None:
    assert theirs(java, table) == ours(catalog, table) == expected


@pytest.fixture
def catalog(java: Java, tmp_path: Path) -> Catalog:
    """db.t of Java's: two snapshots, a tag of the first, and a schema since."""
    java("create", schema={"fields": FIELDS, "primaryKeys": ["k"], "options": {"bucket": "1"}})
    java("write", rows=[{"k": 1, "v": "a"}, {"k": 2, "v": "b"}], compact="none")
    java("tag", name="v1", snapshot=1)
    java("alter", changes=[{"change": "update_comment", "comment": "wider"}])
    java("write", rows=[{"k": 2, "v": "main"}], compact="none")
    return Catalog(tmp_path)


def files_of(root: Path) -> dict[str, bytes]:
    """All metadata below a table's root but what only one of the engines writes."""
    names = ("branch/", "snapshot/", "schema/", "tag/")
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and str(p.relative_to(root)).startswith(names)
    }


@pytest.mark.paimon_java
def test_branches_have_the_same_files_whoever_makes_them(java: Java, catalog: Catalog, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "db.db" / "t", tmp_path / "db.db" / "u")
    for name, tag in (("tagged", "v1"), ("empty", None)):
        java("branch", name=name, tag=tag)
        catalog.table("db.u").create_branch(name, from_tag=tag)
    root = tmp_path / "db.db"
    assert files_of(root / "u") == files_of(root / "t")
    for name in ("123", "main", " ", "tagged"):
        assert refusal_of(lambda name=name: java("branch", name=name))
        assert refusal_of(lambda name=name: catalog.table("db.u").create_branch(name))
    java("delete_branch", name="tagged")
    catalog.table("db.u").delete_branch("tagged")
    assert files_of(root / "u") == files_of(root / "t")


@pytest.mark.paimon_java
def test_each_uses_and_forwards_to_the_other_s_branch(java: Java, catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.table("db.t")
    # Ours, written by both.
    put(table.create_branch("dev", from_tag="v1"), k3="ours")
    java("write", table=DEV, rows=[{"k": 4, "v": "java"}], compact="full")
    both(java, catalog, {1: "a", 2: "b", 3: "ours", 4: "java"}, DEV)
    both(java, catalog, {1: "a", 2: "main"})
    # Each maintains it; main keeps what it has.
    catalog.table(DEV).compact(full=True)
    put(catalog.table(DEV), k5="five")
    java("expire_snapshots", table=DEV, retain_max=2, retain_min=1, older_than_ms=1 << 42)
    catalog.table(DEV).expire_snapshots(retain_max=1)
    catalog.table(DEV).copy({"dredge.trash-grace-expiry": "0 ms"}).sweep_trash()
    dev = {1: "a", 2: "b", 3: "ours", 4: "java", 5: "five"}
    both(java, catalog, dev, DEV)
    both(java, catalog, {1: "a", 2: "main"})
    both(java, catalog, {1: "a", 2: "b"}, "db.t$branch_again" if _again(table) else "db.t")
    java("delete_branch", name="again")
    # Java forwards to a branch that we made and wrote, we to one of Java's.
    java("branch", name="theirs", tag="v1")
    java("write", table="db.t$branch_theirs", rows=[{"k": 6, "v": "six"}], compact="none")
    shutil.copytree(tmp_path / "db.db" / "t", tmp_path / "db.db" / "u")
    put(catalog.table("db.u$branch_theirs"), k7="seven")
    put(catalog.table("db.t$branch_theirs"), k7="seven")
    java("fast_forward", table="db.u", name="theirs")
    report = catalog.table("db.t").fast_forward("theirs")
    assert report.latest == 3
    for name in ("db.t", "db.u"):
        both(java, catalog, {1: "a", 2: "b", 6: "six", 7: "seven"}, name)
        java("write", table=name, rows=[{"k": 8, "v": "eight"}], compact="none")
        put(catalog.table(name), k9="nine")
        both(java, catalog, {1: "a", 2: "b", 6: "six", 7: "seven", 8: "eight", 9: "nine"}, name)
    kinds = ("snapshot/snapshot-", "schema/", "tag/")
    names = [{name for name in on_disk(catalog.table(f"db.{item}")) if name.startswith(kinds)} for item in "tu"]
    assert names[0] == names[1]
    assert catalog.table("db.t").fast_forward("dev").changed
    both(java, catalog, dev)


def _again(table: Table) -> bool:
    """A branch made after main has moved on."""
    table.create_branch("again", from_tag="v1")
    return True


@pytest.mark.paimon_java
def test_a_deleted_branch_that_is_restored_is_java_s_again(java: Java, catalog: Catalog) -> None:
    java("branch", name="dev", tag="v1")
    java("write", table=DEV, rows=[{"k": 3, "v": "java"}], compact="full")
    table = catalog.table("db.t")
    report = table.delete_branch("dev")
    assert refusal_of(lambda: java("read", table=DEV))
    java("write", rows=[{"k": 9, "v": "nine"}], compact="none")
    table.restore(str(report.trash_id))
    both(java, catalog, {1: "a", 2: "b", 3: "java"}, DEV)
    assert branches.list_branches(table.store) == ["dev"]


@pytest.mark.paimon_java
def test_consumers_are_one_another_s(java: Java, catalog: Catalog) -> None:
    table = catalog.table("db.t")
    table.reset_consumer("ours", 2)
    assert (
        java("consumer", name="theirs", next_snapshot=1)["consumers"] == {"ours": 2, "theirs": 1} == table.consumers()
    )
    root = Path(table.store.root)
    assert (root / "consumer/consumer-ours").read_bytes().replace(b"2", b"1") == (
        root / "consumer/consumer-theirs"
    ).read_bytes()
    table.reset_consumer("theirs")
    assert java("consumer", name="ours", delete=True)["consumers"] == {} == table.consumers()


TYPES = {
    "k": ("INT NOT NULL", [1, 2, 3]),
    "o": ("BOOLEAN", [True, False, None]),
    "t": ("TINYINT", [-1, 5, None]),
    "s": ("SMALLINT", [7, 7, 8]),
    "l": ("BIGINT", [1 << 40, -1, None]),
    "f": ("FLOAT", [1.1, 1e10, -2.5]),
    "d": ("DOUBLE", [1e-7, 123456789.125, None]),
    "m": ("DECIMAL(10, 2)", ["1.20", "-3.00", None]),
    "w": ("DECIMAL(38, 10)", ["12345678901234567890.0000000001", "0.0000000000", None]),
    "a": ("DATE", ["2024-02-03", "1969-12-31", None]),
    "h": ("TIME(3)", ["01:02:03.004", "23:59:59.999", None]),
    "p": ("TIMESTAMP(3)", ["2024-01-01T00:00:00.000", "2024-01-01T12:00:00.120", None]),
    "q": ("TIMESTAMP(6)", ["1969-12-31T23:59:59.999999", "2024-01-01T12:00:00", None]),
    "r": ("TIMESTAMP(9)", ["2024-01-01T12:00:00.000000001", "2024-01-01T12:00:30", None]),
    "z": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", ["2024-01-01T00:00:00", "2024-05-01T00:00:00.5", None]),
    "c": ("STRING", ["ä", "bcd", None]),
    "b": ("BYTES", ["00ff", "aa", None]),
}


@pytest.mark.paimon_java
def test_statistics_are_written_as_java_writes_them_and_read_by_it(java: Java, tmp_path: Path) -> None:
    fields = [{"name": name, "type": kind} for name, (kind, _) in TYPES.items()]
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": {"bucket": "1"}})
    listed = [{name: values[place] for name, (_, values) in TYPES.items()} for place in range(3)]
    java("write", rows=listed, compact="none")
    table = Catalog(tmp_path).table("db.t")
    report = table.analyze()
    latest = table.latest_snapshot()
    assert latest is not None and latest.commit_kind.value == "ANALYZE"
    found = statistics.read_statistics(table.store, latest)
    assert found is not None and set(found.columns) == set(TYPES)
    result = java("read", table="db.t$statistics")["rows"]
    assert [(row["snapshot_id"], row["mergedRecordCount"], row["mergedRecordSize"]) for row in result] == [
        (1, 3, report.size)
    ]
    # The same values handed to Java's own writer give the same file.
    given = {}
    for name, column in found.columns.items():
        values = sorted((v for v in TYPES[name][1] if v is not None), key=_order(name))
        bounds = {} if column.minimum is None else {"min": values[0], "max": values[-1]}
        given[name] = {
            "distinct": column.distinct_count,
            **bounds,
            "nulls": column.null_count,
            "avg_len": column.average_length,
            "max_len": column.maximum_length,
        }
    shutil.rmtree(tmp_path / "db.db" / "t" / "statistics")
    for name in ("snapshot-2", "LATEST"):
        (Path(table.store.snapshot_dir) / name).unlink()
    java("analyze", row_count=3, row_size=report.size, columns=given)
    [written] = (tmp_path / "db.db" / "t" / "statistics").iterdir()
    assert written.name.startswith(statistics.PREFIX)
    assert json.loads(written.read_bytes()) == json.loads(found.to_json())
    kinds = [column["commitKind"] for column in java("snapshots")["snapshots"]]
    assert kinds == ["APPEND", "ANALYZE"]
    java("write", rows=[{"k": 9}], compact="none")
    assert table.write(pa.table({"k": pa.array([10], pa.int32())})) == 4


def _order(name: str) -> Callable[[Any], Any]:
    return float if name in ("m", "w") else lambda value: value


@pytest.mark.paimon_java
def test_strict_mode_refuses_what_java_refuses(java: Java, tmp_path: Path) -> None:
    """What others committed after the safe snapshot, and what is committed then.

    Java 1.4.2 cannot be told -1, though its documentation can: it looks for a snapshot 0.
    """
    answers: dict[tuple[str, ...], tuple[bool, bool]] = {}
    for kind, others, safe in (
        *(("key", others, "2") for others in ("write", "compact", "overwrite")),
        *(("append", others, "2") for others in ("write", "overwrite")),
        ("key", "compact", "3"),
    ):
        name, append = f"db.{kind}_{others}_{safe}", kind == "append"
        options = {"bucket": "-1" if append else "1"}
        java(
            "create", table=name, schema={"fields": FIELDS, "primaryKeys": [] if append else ["k"], "options": options}
        )
        for key in (1, 2):
            java("write", table=name, rows=[{"k": key, "v": "a"}], compact="none", commit_user="us")
        if others == "compact":
            java("compact", table=name, full=True)
        else:
            scope = {"partition": {}} if others == "overwrite" else None
            java("write", table=name, rows=[{"k": 3, "v": "b"}], compact="none", overwrite=scope)
        strict = {"commit.strict-mode.last-safe-snapshot": safe}
        for mine in ("write", "overwrite"):
            copied = f"{name}_{mine}"
            shutil.copytree(tmp_path / "db.db" / name[3:], tmp_path / "db.db" / copied[3:])
            table = Catalog(tmp_path).table(copied).copy(strict)
            refused = refusal_of(lambda table=table, mine=mine: _commit(table, mine))
            shutil.rmtree(tmp_path / "db.db" / copied[3:])
            shutil.copytree(tmp_path / "db.db" / name[3:], tmp_path / "db.db" / copied[3:])
            asked = {"rows": [{"k": 4, "v": "c"}], "compact": "none", "commit_user": "us", "options": strict}
            scope = {"partition": {}} if mine == "overwrite" else None
            theirs = refusal_of(
                lambda copied=copied, asked=asked, scope=scope: java("write", table=copied, overwrite=scope, **asked)
            )
            answers[kind, others, mine, safe] = (bool(theirs), bool(refused))
    assert [case for case, (java_refuses, we_refuse) in answers.items() if java_refuses is not we_refuse] == []
    assert {case for case, (refuses, _) in answers.items() if refuses} == {
        *((kind, others, "overwrite", "2") for kind, others, _, safe in answers if safe == "2"),
        *((kind, others, "write", "2") for kind, others, _, safe in answers if safe == "2" and others != "write"),
    }


def _commit(table: Table, how: str) -> None:
    with table.new_write() as writer:
        writer.write(pa.table({"k": pa.array([4], pa.int32()), "v": ["c"]}))
        messages = writer.prepare_commit()
    commit = table.new_commit("us")
    commit.overwrite(messages, {}) if how == "overwrite" else commit.commit(messages)
