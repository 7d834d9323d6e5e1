"""Alerts: one line per cause, routes by owner, severity and database, and alerts that a person snoozed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dredge.platform_core.policies.alerts import (
    Mute,
    channels_for,
    find_active_mutes,
    group_causes,
    group_ended,
    runbook_section,
)
from dredge.platform_core.policies.findings import AlertCondition, Finding, Severity
from dredge.platform_core.policies.policy import AlertRoute
from dredge.platform_core.policies.policy_files import read_policies
from lsm_core.errors import InvalidOption

PAUSE = "paused by policy: storage move (policies.yaml:3, database shop)"


def _finding(subject: str, cause: str = "", severity: Severity = Severity.ERROR) -> Finding:
    return Finding(subject, AlertCondition.STALLED, severity, f"text of {subject}", cause)


def test_a_paused_database_of_five_hundred_tables_is_one_line() -> None:
    (cause,) = group_causes(_finding(f"shop.t{number:03d}", PAUSE) for number in range(500))
    assert cause.line() == (
        "500 tables (shop.t000, shop.t001, shop.t002 and 497 more): error (maintenance stands still): " + PAUSE
    )
    assert len(cause.findings) == 500


def test_findings_of_different_owners_severities_or_causes_have_a_line_each() -> None:
    owners = {"a.x": ["team:a"], "a.y": ["team:a"], "b.x": ["team:b"]}
    findings = [
        _finding("a.x", PAUSE, Severity.WARN),
        _finding("a.x", PAUSE),
        _finding("a.y", PAUSE),
        _finding("b.x", PAUSE),
        _finding("a.z", "paused by policy: another"),
    ]
    causes = group_causes(findings, lambda subject: owners.get(subject, ()))
    assert [(cause.severity.value, cause.owners, cause.subjects) for cause in causes] == [
        ("error", (), ["a.z"]),
        ("error", ("team:a",), ["a.x", "a.y"]),
        ("error", ("team:b",), ["b.x"]),
        ("warn", ("team:a",), ["a.x"]),
    ]
    assert causes[2].line() == "b.x: error (maintenance stands still): text of b.x"


def test_findings_without_a_known_cause_are_folded_from_the_fourth_on() -> None:
    few = [_finding(f"a.t{number}") for number in range(3)]
    assert [cause.line() for cause in group_causes(few)] == [finding.line() for finding in few]
    (folded,) = group_causes([*few, _finding("a.t3")])
    assert folded.line().startswith("4 tables (a.t0, a.t1, a.t2 and 1 more): error (maintenance stands still): for ")
    keys = [finding.key for finding in few]
    assert group_ended(keys) == keys
    assert group_ended([*keys, "a.t3: maintenance stands still (error)"]) == [
        "4 tables (a.t0, a.t1, a.t2 and 1 more): maintenance stands still (error)"
    ]
    sensors = group_causes(Finding(f"sensor {name}", AlertCondition.SENSOR, Severity.ERROR, "") for name in "abcd")
    assert sensors[0].line().startswith("4 findings (sensor a, ")


def test_a_route_takes_what_matches_all_its_conditions_and_defaults_take_the_rest() -> None:
    routes = [
        AlertRoute(channels=["mail"], owners=["team:*"]),
        AlertRoute(channels=["pager"], severities=["error", "emergency"], databases=["shop*"]),
    ]
    defaults = ["webhook"]
    assert channels_for(_finding("shop.t"), routes, ["team:a"], defaults) == {"mail", "pager"}
    assert channels_for(_finding("shop.t", severity=Severity.WARN), routes, [], defaults) == {"webhook"}
    assert channels_for(_finding("sensor sorted_run"), routes, [], defaults) == {"webhook"}
    assert channels_for(_finding("log.t"), [AlertRoute(channels=["all"])], [], defaults) == {"all"}


def test_a_mute_covers_up_to_its_severity_until_its_end_and_the_newest_counts() -> None:
    mute = Mute(
        "r1",
        acknowledged=False,
        cause="maintenance*",
        tables="shop.*",
        severity=Severity.ERROR,
        by="ann",
        reason="",
        until_ms=1_000,
    )
    assert mute.covers(_finding("shop.t")) and mute.covers(_finding("shop.t", severity=Severity.WARN))
    assert not mute.covers(_finding("shop.t", severity=Severity.EMERGENCY))
    assert not mute.covers(_finding("log.t"))
    assert not replace(mute, cause="level 0*").covers(_finding("shop.t"))
    assert find_active_mutes([mute], 999) == [mute] and find_active_mutes([mute], 1_000) == []
    ended = replace(mute, run_id="r2", until_ms=500)
    assert find_active_mutes([ended, mute], 600) == [], "a newer record with 0 hours ends it"


def test_every_condition_has_a_section_in_the_runbook() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.*)$", text, re.MULTILINE)}
    assert {runbook_section(condition) for condition in AlertCondition} <= anchors


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{channels: {x: {kind: slack, address_in: AWS_SECRET_ACCESS_KEY}}}", "DREDGE_ALERT_"),
        ("{channels: {x: {kind: slack, address_in: 'https://hooks.example.org/T0'}}}", "DREDGE_ALERT_"),
        ("{channels: {email: {kind: email, address_in: DREDGE_ALERT_X}}}", "configured by the environment"),
        ("{routes: [{channels: [pagr]}], channels: {pager: {kind: webhook, address_in: DREDGE_ALERT_P}}}", "'pager'"),
        ("{routes: [{channels: [webhook], severities: [info]}]}", "severities"),
        ("{routes: [{channels: []}]}", "channels"),
    ],
)
def test_wrong_routes_and_channels_are_refused(tmp_path: Path, content: str, error: str) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(f"alerts: {content}")
    with pytest.raises(InvalidOption, match=error):
        read_policies(file)


@pytest.mark.parametrize(
    "content",
    [
        "{channels: {x: {kind: slack, address_in: 'https://hooks.example.org/S3CRET'}}}",
        "{channels: {x: {kind: slack, address: 'https://hooks.example.org/S3CRET'}}}",
        "{channels: {x: {kind: slack, address_in: token-S3CRET}}}",
        "{channels: ['https://hooks.example.org/S3CRET']}",
        "'https://hooks.example.org/S3CRET'",
    ],
)
def test_no_message_shows_an_address_that_stands_in_the_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(f"alerts: {content}")
    with pytest.raises(InvalidOption, match="hidden") as caught:
        read_policies(file)
    assert "S3CRET" not in f"{caught.value} {caught.value.__cause__}"
