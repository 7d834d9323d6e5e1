"""Durations and sizes as Java Paimon takes them: the same texts, no more and no less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidOption
from lsm_core.options import duration, memory_size

Java = Callable[..., dict[str, Any]]
_NUMBERS = ["", "-5", "1.5", "1e3", "+5", "５", "9223372036854775807", "9223372036854775808", "0", "5"]
DURATIONS = [
    *_NUMBERS,
    *(
        f"5 {unit}"
        for unit in ["ms", "milli", "millis", "millisecond", "milliseconds", "s", "sec", "secs", "second", "seconds"]
    ),
    *(
        f"5 {unit}"
        for unit in [
            "m",
            "min",
            "mins",
            "minute",
            "minutes",
            "h",
            "hr",
            "hour",
            "hours",
            "d",
            "day",
            "days",
            "w",
            "week",
            "µs",
            "us",
            "micro",
            "micros",
        ]
    ),
    *(f"5 {unit}" for unit in ["ns", "nano", "nanos", "nanosecond", "microseconds"]),
    *(" 5  s ", "5S", "5 Min", "5\ts", "5 s 3 ms", "PT5S", "s", "9223372036854775807 d", "200000000 d"),
]
SIZES = [
    *_NUMBERS,
    *(
        f"5 {unit}"
        for unit in [
            "b",
            "byte",
            "bytes",
            "k",
            "kb",
            "kib",
            "kibibytes",
            "m",
            "mb",
            "mebibytes",
            "g",
            "gb",
            "gibibytes",
            "t",
            "tb",
            "tebibytes",
            "p",
        ]
    ),
    *(" 5  mb ", "5MB", "5 Kb", "5\tmb", "mb", "9007199254740992 kb", "8388607 tb", "8388608 tb"),
]


def _takes(act: Callable[[], object]) -> bool:
    try:
        act()
    except Exception as error:
        if isinstance(error, InvalidOption) or type(error).__name__ == "PeerError":
            return False
        raise
    return True


@pytest.mark.paimon_java
def test_both_take_the_same_durations_and_sizes(java: Java, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema([("k", "INT NOT NULL")], ["k"], options={"bucket": "1"}))
    table.write(pa.table({"k": pa.array([1], pa.int32())}))
    differing = []
    for text in DURATIONS:
        options = {"snapshot.time-retained": text}
        theirs = _takes(lambda: java("expire_snapshots", options=options, retain_max=5, retain_min=1))  # noqa: B023
        differing += [text] if theirs != _takes(lambda: duration(text)) else []  # noqa: B023
    for text in SIZES:
        options = {"source.split.target-size": text}
        theirs = _takes(lambda: java("plan", options=options))  # noqa: B023
        differing += [text] if theirs != _takes(lambda: memory_size(text)) else []  # noqa: B023
    assert differing == []


_ODD: dict[str, dict[str, str]] = {
    "low": {
        "commit.max-retries": "-1",
        "compaction.max-size-amplification-percent": "-1",
        "compaction.min.file-num": "0",
        "compaction.size-ratio": "-1",
        "file.compression.zstd-level": "-10",
        "full-compaction.delta-commits": "0",
        "manifest.merge-min-count": "0",
        "num-sorted-run.stop-trigger": "0",
        "snapshot.expire.limit": "0",
        "source.split.target-size": "0",
    },
    "high": {
        "compaction.offpeak.start.hour": "0",
        "compaction.offpeak.end.hour": "24",
        "compaction.offpeak-ratio": "1000",
        "file.compression.zstd-level": "30",
    },
}
_UNUSED: dict[str, dict[str, str]] = {
    "target-file-size": {"target-file-size": "0"},
    "manifest.target-file-size": {"manifest.target-file-size": "0"},
    "file-index.bloom-filter.v.items": {
        "file-index.bloom-filter.columns": "v",
        "file-index.bloom-filter.v.items": "0",
    },
}


@pytest.mark.paimon_java
def test_what_java_works_with_is_read_and_used_or_refused_by_what_needs_it(java: Java, tmp_path: Path) -> None:
    for number, (name, options) in enumerate((_ODD | _UNUSED).items()):
        table = f"db.t{number}"
        schema = {
            "fields": [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}],
            "primaryKeys": ["k"],
            "options": {"bucket": "1", "num-sorted-run.compaction-trigger": "3", **options},
        }
        java("create", table=table, schema=schema)
        for value in range(3):
            # Of level 30 it makes the highest there is, and takes seconds for each file: one is enough.
            quick = {"file.compression": "none"} if name == "high" and value != 1 else None
            rows = [{"k": k, "v": value} for k in range(3)]
            java("write", table=table, rows=rows, compact="none" if name == "high" else "minor", options=quick)
        ours = Catalog(tmp_path).table(table)
        assert ours.to_arrow().sort_by("k").to_pydict() == {"k": [0, 1, 2], "v": [2, 2, 2]}, name
        before = ours.latest_snapshot()
        if name in _ODD:
            ours.write(pa.table({"k": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}))
            ours.compact()
            ours.expire_snapshots(retain_max=1, retain_min=1)
            rows = java("read", table=table)["rows"]
            assert sorted((row["k"], row["v"]) for row in rows) == [(0, 2), (1, 2), (2, 2), (9, 9)], name
            assert (len(ours.snapshots()) > 1) == (name == "low")
            continue
        with pytest.raises(InvalidOption, match=rf"'{name}' of table {table} cannot be '0'.*alter_table"):
            ours.write(pa.table({"k": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}))
        assert Catalog(tmp_path).table(table).latest_snapshot() == before
    with pytest.raises(InvalidOption, match=r"full-compaction\.delta-commits"):
        Catalog(tmp_path).table("db.t0").copy({"scan.mode": "compacted-full"}).to_arrow()


@pytest.mark.paimon_java
def test_none_takes_a_stored_option_away_in_both(tmp_path: Path, java: Java) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    stored = {"bucket": "2", "scan.snapshot-id": "1"}
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options=stored))
    for number in (1, 2):
        table.write(pa.table({"k": [number]}))
    # Opening the table Java adds `scan.mode` = from-snapshot to its options, which must go as well there.
    freed = dict.fromkeys(("scan.snapshot-id", "scan.mode"))
    for given, rows in (({}, 1), (freed, 2)):
        assert len(java("read", options=given)["rows"]) == table.copy(given).to_arrow().num_rows == rows
    with pytest.raises(Exception, match="Cannot parse null"):
        java("read", options={"bucket": None})
    with pytest.raises(InvalidOption, match="bucket"):
        table.copy({"bucket": None})
