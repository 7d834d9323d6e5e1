"""The time that partition values tell: Java's lenient default form, its strict patterns, and what tells no time."""

from __future__ import annotations

import datetime

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.format.java_text import date_text
from lsm_core.format.partitions import NANOS_PER_DAY, NoTime, PartitionTimeExtractor, epoch_day


def told(text: str | None, formatter: str | None = None) -> str:
    """The time as ISO text, "-" for none."""
    try:
        nanos = PartitionTimeExtractor(("dt",), None, formatter).extract([text])
    except NoTime:
        return "-"
    days, rest = divmod(nanos, NANOS_PER_DAY)
    seconds, fraction = divmod(rest, 1_000_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{date_text(days)} {clock}" + (f".{fraction:09d}".rstrip("0") if fraction else "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", "2024-02-29 00:00:00"),
        ("2024-1-5", "2024-01-05 00:00:00"),
        ("2024-13-01", "2025-01-01 00:00:00"),
        ("2024-01-32", "2024-02-01 00:00:00"),
        ("2024-00-00", "2023-11-30 00:00:00"),
        ("2024--1-01", "2023-11-01 00:00:00"),
        ("-5-01-01", "-0005-01-01 00:00:00"),
        ("2024-01-05 7:8:9", "2024-01-05 07:08:09"),
        ("2024-01-05 25:61:61", "2024-01-06 02:02:01"),
        ("2024-01-05 10:00:00.5", "2024-01-05 10:00:00.5"),
        ("2024-01-05 10:00", "-"),
        ("2024-01-05T10:00:00", "-"),
        ("2024-01-05 10:00:00.", "-"),
        ("20240105", "-"),
        ("+2024-01-05", "-"),
        ("-0-01-01", "-"),
        ("2024-01-05 ", "-"),
        ("9999999999-01-01", "-"),
        ("19723", "-"),
        ("", "-"),
        (None, "-"),
    ],
)
def test_the_default_form_is_lenient(text: str | None, expected: str) -> None:
    assert told(text) == expected


@pytest.mark.parametrize(
    ("formatter", "text", "expected"),
    [
        ("yyyyMMdd", "20240105", "2024-01-05 00:00:00"),
        ("yyyyMMdd", "2024105", "-"),
        ("yyyyMMdd", "20240230", "2024-02-29 00:00:00"),  # the last day stands for those that a month lacks
        ("yyyyMMdd", "20240231", "2024-02-29 00:00:00"),
        ("yyyyMMdd", "20240232", "-"),
        ("yyyyMMdd", "120240105", "-"),
        ("yyyyMMddHH", "2024010523", "2024-01-05 23:00:00"),
        ("yyyyMMddHH", "2024010524", "2024-01-06 00:00:00"),
        ("yyyyMMddHH", "2024010525", "-"),
        ("yyyy-MM-dd HH:mm", "2024-01-05 24:01", "-"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-01-05T10:11:12.013", "2024-01-05 10:11:12.013"),
        ("yyyy-MM-dd[ HH:mm]", "2024-01-05", "2024-01-05 00:00:00"),
        ("yyyy-MM-dd[ HH:mm]", "2024-01-05 10:11", "2024-01-05 10:11:00"),
        ("[yyyy]yyyy-MM-dd", "2024-01-05", "-"),  # an optional part that was taken is not given back
        ("yy-M-d", "24-1-5", "2024-01-05 00:00:00"),
        ("uuuu/DDD", "2024/366", "2024-12-31 00:00:00"),
        ("uuuu/DDD", "2023/366", "-"),
        ("yyyy-MM", "2024-01", "-"),
        ("HH:mm", "10:11", "-"),
        ("y-MM-dd", "+12024-01-05", "-"),
        ("yyyy-MM-dd", "+12024-01-05", "+12024-01-05 00:00:00"),
        ("yyyy-MM-dd", "12024-01-05", "-"),
        ("yyyy-MM-dd", "-2024-01-05", "-"),
        ("uuuu-MM-dd", "-2024-01-05", "-2024-01-05 00:00:00"),
        ("yyyy''MMdd", "2024'0105", "2024-01-05 00:00:00"),
        ("yyyyMMdd yyyy", "20240105 2023", "-"),
    ],
)
def test_a_pattern_is_read_as_java_reads_it(formatter: str, text: str, expected: str) -> None:
    assert told(text, formatter) == expected


@pytest.mark.parametrize(
    "formatter", ["yyyy-MMM-dd", "EEE", "yyyy'", "yyyy]", "ddd", "yyyy{", "hh a", "SSSSSSSSSS", "XXX"]
)
def test_a_pattern_that_is_not_read_is_refused_by_name(formatter: str) -> None:
    with pytest.raises(InvalidOption, match=r"partition\.timestamp-formatter"):
        PartitionTimeExtractor(("dt",), None, formatter, "db.t")


def test_a_pattern_of_columns_is_filled_as_java_fills_it() -> None:
    times = PartitionTimeExtractor(("dt", "hour"), "$dt $hour:00:00")
    assert times.text_of(["2024-01-05", "7"]) == "2024-01-05 7:00:00"
    with pytest.raises(NoTime, match="hour is null"):
        times.text_of(["2024-01-05", None])
    # The shorter name is put in first, also where it begins a longer one.
    assert PartitionTimeExtractor(("dt", "dt2"), "$dt2").text_of(["2020", "2021-01-01"]) == "20202"
    # A column that the pattern does not name keeps a partition when it is null; without a pattern the first alone counts.
    with pytest.raises(NoTime):
        PartitionTimeExtractor(("dt", "x"), "$dt").text_of(["2020-01-01", None])
    assert PartitionTimeExtractor(("dt", "x")).text_of(["2020-01-01", None]) == "2020-01-01"


def test_days_of_any_year() -> None:
    first = datetime.date(1970, 1, 1).toordinal()
    for ordinal in (1, 719_163, 738_000, 700_000, 3_652_059):
        day = datetime.date.fromordinal(ordinal)
        assert epoch_day(day.year, day.month, day.day) == ordinal - first
    assert date_text(epoch_day(-999_999_999, 1, 1)) == "-999999999-01-01"
