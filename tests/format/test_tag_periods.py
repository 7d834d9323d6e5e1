"""Names of automatic tags and the moments they stand for, both ways."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lsm_core.format.tag_periods import DAY, HOUR, TagPeriods


def at(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("period", "formatter", "length", "moment", "name"),
    [
        ("daily", "with-dashes", None, at(2024, 1, 2), "2024-01-02"),
        ("daily", "without_dashes", None, at(2024, 1, 2), "20240102"),
        ("hourly", "with_dashes", None, at(2024, 1, 2, 3), "2024-01-02 03"),
        ("hourly", "without-dashes", None, at(2024, 1, 2, 3), "20240102 03"),
        ("hourly", "without-dashes-and-spaces", None, at(2024, 1, 2, 3), "2024010203"),
        ("two-hours", "without-dashes", None, at(2024, 1, 2, 4), "2024-01-02 04"),
        ("daily", "with-dashes", 5 * 60_000, at(2024, 1, 2, 3, 55), "202401020355"),
    ],
)
def test_a_name_and_its_moment(period: str, formatter: str, length: int | None, moment: int, name: str) -> None:
    periods = TagPeriods.of(period, formatter, length)
    assert periods.name_of(moment) == name
    assert periods.time_of(name) == moment
    # The period before the one that a moment lies in is the last complete one.
    assert periods.name_of(periods.previous(moment + periods.length + 1)) == name


@pytest.mark.parametrize("name", ["", "v1", "2024-1-02", "2024-01-02 03", "20240102", "2024-01-02x", "٢٠٢٤-01-02"])
def test_other_names_are_no_automatic_ones(name: str) -> None:
    hourly = TagPeriods.of("hourly", "without-dashes")
    assert hourly.time_of(name) is None


def test_java_is_lenient_so_are_we() -> None:
    daily = TagPeriods.of("daily", "with-dashes")
    assert daily.time_of("2024-13-01") == at(2025, 1, 1)
    assert daily.time_of("2024-02-30") == at(2024, 3, 1)
    assert daily.time_of("2024-01-02 and more") == at(2024, 1, 2)
    assert daily.time_of("99999-01-01") is None
    assert (daily.length, TagPeriods.of("two-hours", "with-dashes").length) == (DAY, 2 * HOUR)
