"""Streams, incremental reads and logs of tables that Java wrote: what Java tells of them and what Dredge does, row by row with kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import DredgeError
from tests.support.peers import peer_module
from tests.support.samples import sample

Java = Callable[..., dict[str, Any]]
Rows = Iterable[tuple[Any, ...]]

FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}, {"name": "p", "type": "INT NOT NULL"}]
NO_BUCKETS = {"bucket": "-1"}
LATE = "9999999999999"

TABLES: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "none": (["k"], {"bucket": "2"}, ["none", "none", "minor", "full", "none"]),
    "input": (["k"], {"bucket": "1", "changelog-producer": "input"}, ["none", "none", "none", "full", "none"]),
    "lookup": (["k"], {"bucket": "2", "changelog-producer": "lookup"}, ["minor", "minor", "minor", "minor", "none"]),
    "full": (["k"], {"bucket": "1", "changelog-producer": "full-compaction"}, ["full", "none", "none", "full", "none"]),
    "vectors": (
        ["k"],
        {"bucket": "1", "deletion-vectors.enabled": "true"},
        ["minor", "minor", "minor", "minor", "none"],
    ),
    "append": ([], NO_BUCKETS, ["none", "none", "none", "none", "none"]),
}
# Kinds and rows of five commits; append tables take the keys as plain values.
COMMITS: list[list[tuple[str, int, int | None]]] = [
    [("+I", 1, 10), ("+I", 2, 20), ("+I", 3, 30), ("+U", 8, 80)],
    [("+U", 1, 11), ("-D", 2, 20), ("+I", 4, None)],
    [("+I", 2, 22), ("+U", 1, 12), ("+I", 3, 30)],
    [("-D", 3, 30), ("+U", 4, 44), ("-U", 8, 80), ("+U", 8, 81)],
    [("+I", 9, 90), ("+U", 1, 13)],
]
STARTS: list[dict[str, str]] = [
    {},
    {"scan.mode": "latest"},
    {"scan.mode": "compacted-full"},
    {"scan.snapshot-id": "0"},
    {"scan.snapshot-id": "3"},
    {"scan.version": "2"},
    {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "3"},
    {"scan.timestamp-millis": "5"},
    {"scan.timestamp-millis": LATE},
    {"scan.file-creation-time-millis": LATE},
    {"scan.creation-time-millis": "5"},
    {"scan.creation-time-millis": LATE},
    {"scan.tag-name": "first"},
    {"scan.watermark": "1"},
    {"incremental-between": "1,2"},
    {"scan.mode": "latest", "scan.snapshot-id": "1"},
    {"scan.bounded.watermark": "250"},
    {"scan.bounded.watermark": "250", "scan.snapshot-id": "2"},
    {"scan.bounded.watermark": "50", "scan.snapshot-id": "1"},
    {"streaming-read-overwrite": "true", "scan.snapshot-id": "1"},
    {"streaming-read-append-overwrite": "true", "scan.snapshot-id": "1"},
]


def write_by_java(java: Java, kind: str, tmp_path: Path) -> Table:
    """Five commits, each with its watermark, then an overwrite, tags and one more commit."""
    keys, options, compactions = TABLES[kind]
    java("create", schema={"fields": FIELDS, "primaryKeys": keys, "options": options})
    for number, (rows, compact) in enumerate(zip(COMMITS, compactions, strict=True)):
        listed = [{"_kind": how if keys else "+I", "k": k, "v": v, "p": k % 2} for how, k, v in rows]
        java("write", rows=listed, compact=compact, watermark=100 * (number + 1))
        if number == 0:
            java("tag", name="first")
    java("tag", name="second")
    java("write", rows=[{"k": 7, "v": 100, "p": 1}, {"k": 5, "v": 5, "p": 1}], overwrite={"partition": {}})
    java("write", rows=[{"k": 6, "v": 6, "p": 0}])
    return Catalog(tmp_path).table("db.t")


def counted(rows: Rows) -> Counter[tuple[Any, ...]]:
    return Counter(rows)


def of_java(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return counted((row["_kind"], row["k"], row["v"], row["p"]) for row in rows)


def of_ours(changes: pa.Table) -> Counter[tuple[Any, ...]]:
    return counted(tuple(row.values()) for row in changes.select(["_ROW_KIND", "k", "v", "p"]).to_pylist())


def asked(java: Java, options: dict[str, str]) -> dict[str, Any] | None:
    """Java's stream, None when it refuses to begin."""
    try:
        return java("stream_read", options=options)
    except peer_module().PeerError:
        return None


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", sample(TABLES, {"lookup", "append"}.__contains__))
def test_changes_are_what_java_says(tmp_path: Path, java: Java, kind: str) -> None:
    table = write_by_java(java, kind, tmp_path)
    streams_agree(java, table, kind)
    spans_agree(java, table, kind, tmp_path)


def streams_agree(java: Java, table: Table, kind: str) -> None:
    for options in STARTS:
        if kind == "vectors" and "streaming-read-overwrite" in options:
            continue  # Java forgets the deletion vectors of what was overwritten: it takes deleted rows back once more
        answer = asked(java, options)
        if answer is None:
            with pytest.raises(DredgeError):
                table.copy(options).new_stream_scan().next()
            continue
        expected = [(event["initial"], of_java(event["rows"])) for event in answer["events"]]
        stream = table.copy(options).new_stream_scan()
        found = []
        while (batch := stream.next()) is not None:
            found.append((batch.initial, of_ours(batch.to_arrow())))
        assert found == expected, (kind, options)
        if not stream.ended:
            assert stream.checkpoint() == answer["next_snapshot"], (kind, options)
    answer = java("stream_read", from_snapshot=2)
    stream = table.new_stream_scan(from_snapshot=2)
    for event in answer["events"]:
        batch = stream.next()
        assert batch is not None
        assert (batch.snapshot_id, of_ours(batch.to_arrow())) == (event["snapshot"], of_java(event["rows"]))
    assert stream.next() is None


def spans_agree(java: Java, table: Table, kind: str, tmp_path: Path) -> None:
    last = table.snapshots()[-1].id
    times = [snapshot.time_millis for snapshot in table.snapshots()]
    modes = ("auto", "delta", "changelog", "diff")
    spans = [("incremental-between", f"1,{last}", mode) for mode in modes]
    spans += [("incremental-between", f"2,{last - 1}", mode) for mode in ("auto", "diff")]
    spans += [("incremental-between", "1,1", "auto")]
    spans += [("incremental-between", f"0,{last}", "delta"), ("incremental-between", "first,second", "auto")]
    spans += [("incremental-between-timestamp", f"{times[0]},{times[-1]}", mode) for mode in ("auto", "diff")]
    spans += [("incremental-between-timestamp", f"{times[0] - 1},{times[2]}", "auto")]
    for key, value, mode in spans:
        options = {key: value, "incremental-between-scan-mode": mode}
        if kind == "vectors" and mode != "diff" and value != "first,second":
            # Java's batch reads of such tables pass over level 0, and with it over all that was written; its streams do not.
            assert java("read", options=options)["rows"] == []
            continue
        plain = java("read", options=options)["rows"]
        logged = java("read", table="db.t$audit_log", options=options)["rows"]
        expected = counted((row["rowkind"], row["k"], row["v"], row["p"]) for row in logged)
        ours = table.copy(options)
        found = ours.to_arrow()
        assert counted(tuple(r.values()) for r in found.to_pylist()) == counted(
            (row["k"], row["v"], row["p"]) for row in plain
        ), (kind, options)
        log = Catalog(tmp_path).table("db.t$audit_log").copy(options).to_arrow()
        assert counted(tuple(row.values()) for row in log.to_pylist()) == expected, (kind, options)
        if key == "incremental-between":
            a, b = value.split(",")
            assert of_ours(table.incremental(a, b, mode)) == expected, (kind, options)
        if mode == "auto" and value != "first,second":  # Java fails to read a comparison as $binlog
            pairs = java("read", table="db.t$binlog", options=options)["rows"]
            log = Catalog(tmp_path).table("db.t$binlog").copy(options).to_arrow()
            names = ("rowkind", "k", "v", "p")
            assert Counter(repr([row[n] for n in names]) for row in log.to_pylist()) == Counter(
                repr([row[n] for n in names]) for row in pairs
            ), (kind, options)


@pytest.mark.paimon_java
def test_consumers_are_shared_with_java(tmp_path: Path, java: Java) -> None:
    table = write_by_java(java, "none", tmp_path)
    stream = table.new_stream_scan("job-1", 2)
    assert stream.next() is not None
    following = stream.checkpoint()
    assert following == 3
    assert {"_kind": "+I", "consumer_id": "job-1", "next_snapshot_id": 3} in java("read", table="db.t$consumers")[
        "rows"
    ]
    answer = java("stream_read", options={"consumer-id": "job-1"})
    assert answer["events"][0]["snapshot"] == 3
    assert table.new_stream_scan("job-1").next() is None
    java("consumer", name="job-1", next_snapshot=2)
    batch = table.new_stream_scan("job-1").next()
    assert batch is not None
    assert batch.snapshot_id == 2
