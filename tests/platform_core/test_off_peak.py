"""Off-peak windows follow the clocks of their zone: over midnight, by day of the week, and when the clocks are changed."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dredge.platform_core.policies import Policy, Reason
from dredge.platform_core.policies.decisions import find_hold
from dredge.platform_core.policies.windows import DAYS, MINUTE_MS, OffPeak
from tests.support.samples import examples

_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")


def off_peak(zone: str, *windows: dict[str, Any]) -> OffPeak:
    return OffPeak.model_validate({"time_zone": zone, "windows": list(windows)})


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    friday = off_peak("Europe/Berlin", {"from": "22:00", "to": "06:00", "days": ["fri"]})
    open_at = {
        text: friday.is_open(at(text, "Europe/Berlin"))
        for text in ("2024-05-31 21:59", "2024-05-31 22:00", "2024-06-01 05:59", "2024-06-01 06:00", "2024-06-01 22:30")
    }
    assert list(open_at.values()) == [False, True, True, False, False]
    assert friday.next_open(at("2024-06-01 06:00", "Europe/Berlin")) == at("2024-06-07 22:00", "Europe/Berlin")


def test_summer_time_moves_windows_with_the_clocks() -> None:
    night = off_peak("Europe/Berlin", {"from": "01:00", "to": "03:30"})
    assert night.is_open(at("2024-01-10 00:30")) and not night.is_open(at("2024-01-10 02:30"))
    assert night.is_open(at("2024-07-09 23:30")) and not night.is_open(at("2024-07-10 01:30"))


def test_hours_that_the_clocks_skip_do_not_take_place_and_those_they_repeat_do_twice() -> None:
    early = off_peak("Europe/Berlin", {"from": "02:15", "to": "02:45"})
    before = at("2024-03-31 01:50", "Europe/Berlin")  # at 02:00 it is 03:00
    assert early.next_open(before) == at("2024-04-01 02:15", "Europe/Berlin")
    longer = off_peak("Europe/Berlin", {"from": "02:15", "to": "05:00"})
    assert longer.next_open(before) == at("2024-03-31 03:00", "Europe/Berlin")
    between = at("2024-10-27 02:50", "Europe/Berlin")  # at 03:00 it is 02:00 again
    assert early.next_open(between) == at("2024-10-27 02:15", "Europe/Berlin", fold=1)


def test_numbers_are_what_yaml_makes_of_times_without_quotes() -> None:
    assert off_peak("UTC", {"from": 1320, "to": "06:00"}).text() == "22:00-06:00 (UTC)"
    whole = off_peak("UTC", {"from": 0, "to": 1440, "days": ["sat", "sun"]})
    assert whole.text() == "00:00-24:00 on sat, sun (UTC)"
    assert whole.is_open(at("2024-06-01 00:00")) and whole.is_open(at("2024-06-02 23:59"))
    assert not whole.is_open(at("2024-06-03 00:00"))


@pytest.mark.parametrize(
    ("zone", "spring", "autumn", "shift"),
    [
        ("Europe/Berlin", "2024-03-31", "2024-10-27", 60),
        ("America/New_York", "2024-03-10", "2024-11-03", 60),
        ("Australia/Lord_Howe", "2024-10-06", "2024-04-07", 30),
    ],
)
@pytest.mark.parametrize(("start", "end"), [("22:00", "06:00"), ("01:00", "05:00")])
def test_a_night_in_which_the_clocks_change_is_shorter_or_longer_by_that(
    zone: str, spring: str, autumn: str, shift: int, start: str, end: str
) -> None:
    hours = off_peak(zone, {"from": start, "to": end})
    usual = 480 if start == "22:00" else 240
    for day, wanted in ((spring, usual - shift), (autumn, usual + shift), ("2024-06-20", usual)):
        noon = at(f"{day} 12:00", zone)
        minutes = [noon - ahead * MINUTE_MS for ahead in range(18 * 60, 0, -1)]  # since the evening before
        night = [moment for moment in minutes if hours.is_open(moment)]
        assert len(night) == wanted, day
        assert night == list(range(night[0], night[-1] + 1, MINUTE_MS)), "without a break"
        assert hours.next_open(minutes[0]) == night[0] and not hours.is_open(night[0] - MINUTE_MS)


_MINUTES = st.integers(0, 1439)
_WINDOWS = st.tuples(_MINUTES, _MINUTES, st.none() | st.lists(st.sampled_from(DAYS), min_size=1, unique=True)).filter(
    lambda one: one[0] != one[1]
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(_ZONES),
    st.lists(_WINDOWS, min_size=1, max_size=2),
    # Minutes around the changes of clocks in 2024, and any other.
    st.sampled_from([at("2024-03-31"), at("2024-03-10"), at("2024-10-27"), at("2024-11-03"), at("2024-04-06"), at("2024-10-05"), at("2024-07-01")]),
    st.integers(-1440, 2880),
)  # fmt: skip
@example("America/New_York", [(0, 61, None)], at("2024-11-03"), 330)  # clocks go back into a window that has ended
def test_the_next_opening_is_open_and_nothing_before_it_is(
    zone: str, windows: list[tuple[int, int, list[str] | None]], day: int, minutes: int
) -> None:
    hours = off_peak(zone, *({"from": start, "to": end, "days": days} for start, end, days in windows))
    now = day + minutes * MINUTE_MS
    found = hours.next_open(now)
    until = found if found is not None else now + 8 * 1440 * MINUTE_MS
    assert found is None or hours.is_open(found)
    assert not any(hours.is_open(moment) for moment in range(now, until, 5 * MINUTE_MS))
    assert found is None or found == now or not hours.is_open(found - MINUTE_MS)


@pytest.mark.parametrize(
    ("policy", "reason", "text"),
    [
        (Policy(), None, ""),
        (Policy(paused="move"), Reason.PAUSED, "paused by policy: move"),
        (
            Policy(off_peak=off_peak("UTC", {"from": "22:00", "to": "06:00"})),
            Reason.OFF_PEAK,
            "outside 22:00-06:00 (UTC), next at 2024-06-01 22:00:00 UTC",
        ),
        (Policy(off_peak=off_peak("UTC", {"from": "12:00", "to": "13:00"})), None, ""),
    ],
)
def test_the_reason_to_rest_says_until_when(policy: Policy, reason: Reason | None, text: str) -> None:
    found = find_hold(policy, at("2024-06-01 12:00"))
    assert found == (None if reason is None else (reason, text))
