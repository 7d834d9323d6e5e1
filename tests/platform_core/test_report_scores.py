"""The history of scores grows by one point a report, stays bounded, and refuses what it did not write."""

from __future__ import annotations

import json

import pytest

from dredge.platform_core.report.scores import POINTS, ScoreHistory

HOUR = 3_600_000


def test_points_are_added_and_the_oldest_leave() -> None:
    history = ScoreHistory()
    for hour in range(POINTS + 20):
        history = history.add_point(hour * HOUR, {"a.b": hour % 100 + 0.04, **({"a.c": 1.0} if hour > POINTS else {})})
    assert len(history.times) == POINTS and history.times[-1] == (POINTS + 19) * HOUR
    assert len(history.trend("a.b")) == POINTS and history.trend("a.b")[-1] == (
        (POINTS + 19) * HOUR,
        (POINTS + 19) % 100,
    )
    assert len(history.trend("a.c")) == 19
    assert history.trend("a.d") == ()
    assert ScoreHistory.from_json(history.to_json()) == history


def test_reports_in_quick_succession_keep_one_point_and_a_clock_set_back_drops_later_points() -> None:
    history = ScoreHistory()
    for minute in range(0, 120, 5):
        history = history.add_point(minute * 60_000, {"a.b": float(minute)})
    assert 3 <= len(history.times) <= 6
    assert history.trend("a.b")[0] == (0, 0.0) and history.trend("a.b")[-1] == (115 * 60_000, 115.0)
    assert history.add_point(HOUR, {"a.b": 7.0}).times[-1] == HOUR
    assert history.add_point(0, {"a.b": 7.0}).trend("a.b") == ((0, 7.0),)
    assert history.add_point(3 * HOUR, {}).scores == {}, "a dropped table leaves the file"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "nonsense",
        json.dumps({"version": 2, "times": [], "scores": {}}),
        json.dumps({"version": 1, "times": [2, 1], "scores": {}}),
        json.dumps({"version": 1, "times": [True], "scores": {}}),
        json.dumps({"version": 1, "times": [1], "scores": {"a": [1, 2]}}),
        json.dumps({"version": 1, "times": [1], "scores": {"a": ["1"]}}),
        '{"version": 1, "times": [1], "scores": {"a": [NaN]}}',
        json.dumps({"version": 1, "times": [1], "scores": [1]}),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ScoreHistory.from_json(text)
