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
