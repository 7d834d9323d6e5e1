"""Clocks: one protocol, and a text form from which another process tells the same time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lsm_core.clock import (
    Clock,
    FileClock,
    FixedClock,
    SystemClock,
    clock_from,
    local_offset_ms,
    to_spec,
    utc_text,
    written_span,
)
from lsm_core.errors import CorruptFile


def test_a_fixed_clock_moves_only_when_told() -> None:
    clock = FixedClock(100)
    clock.advance(5)
    assert (clock.now_ms(), clock_from(to_spec(clock)).now_ms()) == (105, 105)


def test_a_file_clock_is_shared(tmp_path: Path) -> None:
    ours, theirs = FileClock(f"{tmp_path}/a/clock"), clock_from(f"file:{tmp_path}/a/clock")
    for ms in (1, 1_700_000_000_000):
        ours.set(ms)
        assert theirs.now_ms() == ms
    assert to_spec(theirs) == to_spec(ours)


def test_the_local_zone_is_the_machines_with_summer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    summer, winter = 1_720_000_000_000, 1_705_000_000_000
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        found = local_offset_ms(summer), local_offset_ms(winter)
    time.tzset()
    assert found == (2 * 3_600_000, 3_600_000)


@pytest.mark.parametrize(
    "content", [None, b"", b"soon", b"\xff\x00", b"{}", b"9" * 5_000, b"9" * 17, b"[" * 9_000, b"-1", b"1_0"]
)
def test_a_broken_file_clock_names_its_file(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "clock").write_bytes(content)
    with pytest.raises((CorruptFile, FileNotFoundError), match=f"{tmp_path}/clock"):
        FileClock(f"{tmp_path}/clock").now_ms()


def test_the_system_clock_goes_forward() -> None:
    clock = clock_from(None)
    assert clock == clock_from("system") == SystemClock()
    assert isinstance(clock, Clock)
    assert clock.now_ms() <= clock.now_ms()
    assert clock_from(clock) is clock


@pytest.mark.parametrize("spec", ["", "sun", "fixed:", "fixed:x", "file:"])
def test_an_unknown_clock_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="fixed"):
        clock_from(spec)


def test_spans_are_written_as_people_write_options() -> None:
    spans = (604_800_000, 129_600_000, 5_400_000, 90_000, 1_500, 0)
    assert [written_span(span) for span in spans] == ["7d", "36h", "90min", "90s", "1500ms", "0ms"]
    assert utc_text(10**18) == "1000000000000000000 ms"
