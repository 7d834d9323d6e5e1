"""Which snapshots expire: the range rule of format.md 17, checked against a transcript of Paimon's loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import InvalidOption
from lsm_core.maintenance.retention import RetentionPolicy
from lsm_core.options import TableOptions


def _paimon_2_0(
    earliest: int,
    latest: int,
    times: dict[int, int],
    older: int,
    retain_min: int,
    retain_max: int,
    deletes: int,
    consumer: int,
) -> int:
    """`ExpireSnapshotsImpl.expire()`: returns the exclusive end."""
    lowest = max(latest - retain_max + 1, earliest)
    max_exclusive = min(latest - retain_min + 1, consumer)
    max_exclusive = min(max_exclusive, earliest + deletes)
    for snapshot_id in range(lowest, max_exclusive):
        if snapshot_id + 1 in times and older <= times[snapshot_id + 1]:
            return max(snapshot_id, earliest)
    return max(max_exclusive, earliest)


@given(st.data())
def test_the_range_is_paimons(data: st.DataObject) -> None:
    earliest = data.draw(st.integers(1, 5))
    latest = earliest + data.draw(st.integers(0, 12))
    clock, times = 0, {}
    for number in range(earliest, latest + 1):
        clock += data.draw(st.integers(0, 3))
        times[number] = clock
    older = data.draw(st.integers(-1, clock + 2))
    retain_min = data.draw(st.integers(1, 6))
    retain_max = data.draw(st.one_of(st.none(), st.integers(retain_min, 14)))
    deletes = data.draw(st.integers(1, 14))
    consumer = data.draw(st.one_of(st.none(), st.integers(1, latest + 2)))
    chosen = RetentionPolicy(retain_min, retain_max, older, deletes).choose(earliest, latest, consumer, times.get)
    expected = _paimon_2_0(
        earliest,
        latest,
        times,
        older,
        retain_min,
        retain_max or 2**31,
        deletes,
        2**62 if consumer is None else consumer,
    )
    assert (chosen.start, chosen.end) == (earliest, expected)
    assert chosen.end <= latest  # the newest snapshot never goes
    assert chosen.limit


def test_a_snapshot_expires_only_when_its_successor_is_old_enough() -> None:
    times = {1: 100, 2: 200, 3: 300, 4: 400}
    chosen = RetentionPolicy(1, None, older_than_ms=250, max_deletes=50).choose(1, 4, None, times.get)
    # By the rule of 1.3 snapshot 2 (time 200) would go too; its successor (time 300) is too young.
    assert chosen.end == 2
    assert "snapshot 3 is younger" in chosen.limit


def test_limits_are_named() -> None:
    times = dict.fromkeys(range(1, 101), 0)
    assert "at most 50" in RetentionPolicy(10, None, 10, 50).choose(1, 100, None, times.get).limit
    assert "newest 10" in RetentionPolicy(10, None, 10, 500).choose(1, 100, None, times.get).limit
    assert "consumer" in RetentionPolicy(10, None, 10, 500).choose(1, 100, 7, times.get).limit
    forced = RetentionPolicy(1, 3, older_than_ms=-1, max_deletes=500).choose(1, 100, None, times.get)
    assert forced.end == 98 and "num-retained.max" in forced.reason_of(97)


def test_arguments_override_options_and_are_checked() -> None:
    options = TableOptions({"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "9"}, "db.t")
    policy = RetentionPolicy.of(options, now_ms=10_000_000)
    assert (policy.retain_min, policy.retain_max, policy.older_than_ms, policy.max_deletes) == (5, 9, 6_400_000, 50)
    assert RetentionPolicy.of(options, 0, retain_max=2).retain_min == 2
    assert RetentionPolicy.of(options, 0, retain_min=20).retain_max == 20
    with pytest.raises(InvalidOption, match=r"retain_max.*at least retain_min"):
        RetentionPolicy.of(options, 0, retain_max=2, retain_min=3)
    for name in ("retain_max", "retain_min", "max_deletes"):
        with pytest.raises(InvalidOption, match=name):
            RetentionPolicy.of(options, 0, **{name: 0})
