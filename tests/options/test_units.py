"""Sizes and durations mean what Java's MemorySize and TimeUtils make of the same text."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import InvalidOption
from lsm_core.options import duration, memory_size
from lsm_core.options.table_options import whole_number

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        (" 7 ", 7),
        ("500 B", 500),
        ("2 bytes", 2),
        ("4kb", 4096),
        ("4 K", 4096),
        ("64 kibibytes", 65536),
        ("128 mb", 128 << 20),
        ("1 m", 1 << 20),
        ("2 GB", 2 << 30),
        ("1g", 1 << 30),
        ("3 tb", 3 << 40),
        ("1 t", 1 << 40),
        (12, 12),
    ],
)
def test_sizes_are_read_as_java_reads_them(text: str | int, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1500", 1500),
        ("1 h", HOUR),
        ("1 hour", HOUR),
        ("2 hours", 2 * HOUR),
        ("10 seconds", 10_000),
        ("10 sec", 10_000),
        ("10 secs", 10_000),
        ("10s", 10_000),
        ("8 min", 480_000),
        ("8m", 480_000),
        ("1 minute", 60_000),
        ("1 d", 24 * HOUR),
        ("2 DAYS", 48 * HOUR),
        ("10 millis", 10),
        ("10 millisecond", 10),
        ("1500 µs", 1),
        ("1500 micros", 1),
        ("2000000 ns", 2),
        ("999999 nanoseconds", 0),
        (5, 5),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str | int, ms: int) -> None:
    assert duration(text) == ms


@pytest.mark.parametrize(
    "bad", ["", " ", "h", "-1 h", "1.5 h", "1 fortnight", "1 h 2", "0x10", "1_000", "1 mb", "٣ h", None, True, -1]
)
def test_a_malformed_duration_names_key_value_and_what_is_accepted(bad: object) -> None:
    with pytest.raises(InvalidOption) as caught:
        duration(bad, "snapshot.time-retained")  # type: ignore[arg-type]
    message = str(caught.value)
    assert "snapshot.time-retained" in message
    assert repr(bad) in message
    assert "'10 seconds'" in message


@pytest.mark.parametrize(
    "bad", ["", "mb", "-1", "1.5 gb", "1 pb", "1 kb kb", "9223372036854775808", "9007199254740993 kb", None, False]
)
def test_a_malformed_size_names_key_value_and_what_is_accepted(bad: object) -> None:
    with pytest.raises(InvalidOption, match="write-buffer-size") as caught:
        memory_size(bad, "write-buffer-size")  # type: ignore[arg-type]
    assert caught.value.value == bad
    assert "128 mb" in caught.value.accepted


@given(st.text(max_size=12))
def test_any_text_is_either_a_number_or_an_invalid_option(text: str) -> None:
    for read in (duration, memory_size):
        with contextlib.suppress(InvalidOption):
            assert read(text) >= 0


@given(st.integers(0, 10**9), st.sampled_from(["", " ", "  "]))
def test_units_are_multiples_of_each_other(number: int, space: str) -> None:
    assert memory_size(f"{number}{space}mb") == 1024 * memory_size(f"{number}{space}kb")
    assert duration(f"{number}{space}min") == 60 * duration(f"{number}{space}s")


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None])
def test_what_is_no_whole_number_is_none(value: object) -> None:
    with pytest.raises(InvalidOption, match=r"bucket_num.*a whole number"):
        whole_number(value, "bucket_num", "db.t")
    assert whole_number(np.int32(4), "bucket_num") == 4
