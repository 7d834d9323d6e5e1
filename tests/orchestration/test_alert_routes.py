"""Alerts of the sensor `watch` by cause and route: Slack, snoozed and acknowledged alerts, links, lost cursors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dredge.orchestration.sensors import alert_channels
from dredge.orchestration.sensors.alert_channels import Alert, AlertItem, Slack, deliver, slack_blocks
from dredge.platform_core import names
from dredge.platform_core.policies.decisions import DAY_MS
from lsm_core.clock import FileClock, SystemClock
from tests.orchestration.alert_hook import AlertHook
from tests.support.platform import House, commit, keyed_table, open_house

WATCH = names.WATCH_SENSOR
_HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SECONDS", "_SECONDS_A_TRY"):
        monkeypatch.setattr(alert_channels, name, 60.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


@pytest.fixture
def hooks() -> Iterator[list[AlertHook]]:
    with ExitStack() as stack:
        yield [stack.enter_context(AlertHook().running()) for _ in range(3)]


def _warehouse(root: Path, tables: int) -> None:
    for number in range(tables):
        commit(keyed_table(root, f"shop.t{number}", partitioned=False), 5)
    commit(keyed_table(root, "log.events", partitioned=False), 5)


POLICIES = """
alerts:
  channels:
    shop_slack: {kind: slack, address_in: DREDGE_ALERT_SLACK_SHOP}
    pager: {kind: webhook, address_in: DREDGE_ALERT_PAGER}
  routes:
    - {channels: [shop_slack], owners: ["team:shop"]}
    - {channels: [pager], databases: [log], severities: [error]}
databases:
  shop: {owners: ["team:shop"], paused: {reason: storage move, since: 2024-01-01}}
"""


def test_a_paused_database_is_one_line_and_alerts_follow_owner_severity_and_database(
    tmp_path: Path, hooks: list[AlertHook]
) -> None:
    root, clock, file = tmp_path / "wh", FileClock(str(tmp_path / "clock")), tmp_path / "policies.yaml"
    _warehouse(root, 5)
    clock.set(SystemClock().now_ms() + DAY_MS)
    file.write_text(POLICIES)
    slack, pager, rest = hooks
    environment = {
        "DREDGE_CLOCK": clock.to_spec(),
        "DREDGE_POLICIES": str(file),
        "DREDGE_ALERT_SLACK_SHOP": slack.address,
        "DREDGE_ALERT_PAGER": pager.address,
        "DREDGE_ALERT_WEBHOOK": rest.address,
        "DREDGE_UI_URL": "https://dredge.example.org",
        "DREDGE_RUNBOOK_URL": "https://docs.example.org/operations/",
    }
    with open_house(root, **environment) as house:
        lines = house.lines(house.tick(WATCH))
        assert "shop_slack (Slack at 127.0.0.1): sent 2 new, 0 over" in lines
        assert "pager (webhook at 127.0.0.1): sent 1 new, 0 over" in lines and not rest.sent
        (message,) = slack.sent
        assert message["text"] == "Dredge wh: 2 new, 0 over, 10 in all"
        text = json.dumps(message["blocks"])
        assert "*ERROR, team:shop*" in text and "*WARN, team:shop*" in text
        pause = "paused by policy: storage move, since 2024-01-01 (policies.yaml:10, database shop)"
        assert (
            f"5 tables (shop.t0, shop.t1, shop.t2 and 2 more): error (maintenance stands still): {pause}  "
            "(<https://dredge.example.org/assets/wh/shop/t0_layout|asset> · "
            "<https://docs.example.org/operations#level-0-piles-up|runbook>)"
        ) in text.replace("\\u00b7", "·")
        (alert,) = pager.sent
        (cause,) = alert["causes"]
        assert (cause["condition"], cause["severity"], cause["tables"]) == (
            "maintenance stands still", "error", ["log.events"],
        )  # fmt: skip
        assert cause["links"]["asset"] == "https://dredge.example.org/assets/wh/log/events_layout"
        assert alert["new"] == [cause["text"]] and alert["standing"] == 1

        # The pause ends: one line for what ended. A channel without an address loses no alert.
        file.write_text(POLICIES.split("databases:\n")[0] + "databases: {shop: {owners: ['team:shop']}}")
        house.tick(WATCH)
        assert "Over" in json.dumps(slack.sent[-1]["blocks"])
        assert "5 tables (shop.t0, shop.t1, shop.t2 and 2 more): paused for long (warn)" in json.dumps(slack.sent[-1])
        assert len(slack.sent) == 2 and len(pager.sent) == 1
        file.write_text(POLICIES.replace("DREDGE_ALERT_PAGER", "DREDGE_ALERT_UNSET"))
        lines = house.lines(house.tick(WATCH))
        assert any(line.startswith("alert channel pager: ") and "DREDGE_ALERT_UNSET" in line for line in lines)
        assert [item["new"] for item in rest.sent] == [[cause["text"]]]
        assert "secret" not in "\n".join(lines) + str(house.cursors)


def _tick(house: House, hook: AlertHook) -> list[dict[str, Any]]:
    """The messages of one tick."""
    before = len(hook.sent)
    house.tick(WATCH)
    return hook.sent[before:]


def test_snoozed_alerts_come_back_when_they_still_hold_and_acknowledged_ones_are_announced(
    tmp_path: Path, hooks: list[AlertHook], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock, hook = tmp_path / "wh", FileClock(str(tmp_path / "clock")), hooks[0]
    _warehouse(root, 1)
    clock.set(SystemClock().now_ms() + DAY_MS)
    shift = 0
    monkeypatch.setattr(
        import_module("dredge.orchestration.sensors.watch_sensor"), "wall_ms", lambda: SystemClock().now_ms() + shift
    )
    with open_house(root, DREDGE_CLOCK=clock.to_spec(), DREDGE_ALERT_WEBHOOK=hook.address) as house:
        stalled = "maintenance stands still"
        config = {"tables": "shop.*", "cause": stalled, "hours": 2.0, "by": "ann"}
        for wrong in (
            {"hours": 1_000.0}, {"hours": -1.0}, {"tables": "none.*"}, {"cause": "no such"}, {"by": " "},
        ):  # fmt: skip
            assert not house.execute(names.SNOOZE_JOB, run_config={**config, **wrong}).success, wrong
        assert house.execute(names.SNOOZE_JOB, run_config=config).success
        (message,) = _tick(house, hook)
        assert len(message["new"]) == 1 and message["new"][0].startswith("log.events: error (maintenance stands still)")
        assert _tick(house, hook) == []
        shift = 3 * _HOUR_MS  # the time is over, and the finding still holds
        (message,) = _tick(house, hook)
        assert [line.split(":")[0] for line in message["new"]] == ["shop.t0"] and not message["over"]

        shift = 0
        config |= {"tables": "log.events", "reason": "the writer is being fixed"}
        assert house.execute(names.ACKNOWLEDGE_JOB, run_config=config).success
        (message,) = _tick(house, hook)
        assert message["new"] == [] and message["acknowledged"][0].startswith(
            "log.events, maintenance stands still: by ann until "
        )
        assert message["acknowledged"][0].endswith(": the writer is being fixed")
        house.load()  # nothing is sent twice by a new process
        assert _tick(house, hook) == []
        ended = {**config, "hours": 0.0}
        other = house.execute(names.SNOOZE_JOB, run_config={**ended, "tables": "log.*"})
        failed = other.filter_events(lambda event: event.is_step_failure)[0].step_failure_data.error
        assert (
            failed is not None
            and (
                "no record to end has tables 'log.*' and cause 'maintenance stands still'; the records that apply: "
                "tables 'log.events', cause 'maintenance stands still', until "
            )
            in failed.message
        )
        assert _tick(house, hook) == []
        assert house.execute(names.ACKNOWLEDGE_JOB, run_config=ended).success
        (message,) = _tick(house, hook)
        assert [line.split(":")[0] for line in message["new"]] == ["log.events"], "ended before its time"
        house.warehouse.table("log.events").compact(full=True)
        (message,) = _tick(house, hook)
        assert message["over"] == [f"log.events: {stalled} (error)"]


def test_nothing_is_sent_again_if_dagster_loses_the_cursor_of_a_tick(tmp_path: Path, hooks: list[AlertHook]) -> None:
    root, hook, clock = tmp_path / "wh", hooks[0], FileClock(str(tmp_path / "clock"))
    _warehouse(root, 1)
    clock.set(SystemClock().now_ms() + DAY_MS)
    with open_house(root, DREDGE_CLOCK=clock.to_spec(), DREDGE_ALERT_WEBHOOK=hook.address) as house:
        house.tick(WATCH)
        house.cursors[WATCH] = None  # the daemon was stopped before it stored the result
        house.tick(WATCH)
        assert len(hook.sent) == 1


def test_slack_blocks_keep_the_limits_and_no_text_becomes_a_link_or_mention(hooks: list[AlertHook]) -> None:
    evil = "<!channel> <https://evil.example.org|click> *bold* `code` \x1b[31m" + "x" * 5_000
    items = [AlertItem(f"db.t{number}: {evil}", "error", owners=[f"team:{number}"]) for number in range(200)]
    alert = Alert("<wh>", [item.line for item in items], ["x"], 200, items)
    blocks = slack_blocks(alert)
    assert len(blocks) <= 50 and blocks[0]["type"] == "header"
    texts = [block["text"]["text"] for block in blocks[1:]]
    assert all(0 < len(text) <= 3_000 for text in texts)
    assert not any("<" in text or "\x1b" in text for text in texts)
    (hook, *_) = hooks
    assert deliver(Slack(hook.address), alert) is None
    assert hook.sent[0]["text"] == "Dredge &lt;wh&gt;: 200 new, 1 over, 200 in all"
    assert "secret" not in repr(Slack(hook.address))
