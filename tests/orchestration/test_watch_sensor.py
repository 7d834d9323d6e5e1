"""The sensor `watch`: tells people once what is wrong, all in one message, and no channel that hangs or fails blocks anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData

from dredge.orchestration.sensors import alert_channels
from dredge.orchestration.sensors.alert_channels import Alert, Mail, Webhook, channels_from, deliver
from dredge.orchestration.sensors.table_sweep import Cursor
from dredge.orchestration.sensors.watch_sensor import ChannelState, _read_channels, _write_cursor
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.policies.decisions import DAY_MS
from lsm_core.clock import FileClock, SystemClock
from lsm_core.errors import InvalidOption
from lsm_core.metadata import consumers
from tests.orchestration.alert_hook import AlertHook
from tests.support.platform import House, commit, keyed_table, open_house

WATCH = names.WATCH_SENSOR


@pytest.fixture
def hook() -> Iterator[AlertHook]:
    with AlertHook().running() as running:
        yield running


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past any proxy of the machine that runs the tests, and with patience: it may be busy."""
    for name in ("_SECONDS", "_SECONDS_A_TRY"):
        monkeypatch.setattr(alert_channels, name, 60.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


@contextmanager
def _house(tmp_path: Path, policies: str = "", **environment: str) -> Iterator[tuple[House, FileClock]]:
    """A warehouse with two tables whose clock stands at the commits' time."""
    root, clock, file = tmp_path / "wh", FileClock(str(tmp_path / "clock")), tmp_path / "policies.yaml"
    keyed_table(root, "shop.busy", partitioned=False)
    keyed_table(root, "shop.calm", partitioned=False)
    clock.set(SystemClock().now_ms())
    file.write_text(policies)
    with open_house(root, DREDGE_CLOCK=clock.to_spec(), DREDGE_POLICIES=str(file), **environment) as house:
        commit(house.warehouse.table("shop.busy"), 6)
        commit(house.warehouse.table("shop.calm"))
        yield house, clock


def test_one_message_tells_all_and_the_next_only_what_changed(tmp_path: Path, hook: AlertHook) -> None:
    policies = "tables: {shop.busy: {paused: {reason: storage move, since: 2020-01-01}, level0_warn: 5}}"
    with _house(tmp_path, policies, DREDGE_ALERT_WEBHOOK=hook.address) as (house, clock):
        lines = house.lines(house.tick(WATCH))
        assert lines[0] == "2 tables visited: 2 findings"
        assert lines[1].startswith("shop.busy: warn (level 0 piles up): WARN: 6 level-0 files >= 5")
        assert lines[2].startswith("shop.busy: warn (paused for long): for ")
        assert lines[3] == "webhook at 127.0.0.1: sent 2 new, 0 over"
        (message,) = hook.sent
        assert message["text"].splitlines()[0] == "Dredge wh: 2 new, 0 over, 2 in all"
        assert message["new"] == lines[1:3]

        clock.set(clock.now_ms() + DAY_MS)  # other numbers, and no compaction for a day: one finding more
        result = house.tick(WATCH)
        assert [len(alert["new"]) for alert in hook.sent] == [2, 1]
        assert hook.sent[1]["new"][0].startswith(
            "shop.busy: error (maintenance stands still): nothing was compacted for 24 h >= 12 h"
        )
        (shown,) = [event for event in result.asset_events if isinstance(event, dg.AssetObservation)]
        assert shown.asset_key == house.layout("shop.busy") and shown.metadata["findings"].value == 3
        assert "secret" not in str(result) + str(house.cursors)

        house.load()  # a new process knows what was told
        assert house.lines(house.tick(WATCH))[-1].startswith("shop.busy: ") and len(hook.sent) == 2

        house.warehouse.table("shop.busy").compact(full=True)
        assert house.lines(house.tick(WATCH))[-1] == "webhook at 127.0.0.1: sent 0 new, 2 over"
        assert hook.sent[2]["standing"] == 1 and hook.sent[2]["over"][0] == "shop.busy: level 0 piles up (warn)"


def test_a_webhook_that_fails_is_tried_again_later_and_the_tick_goes_on(
    tmp_path: Path, hook: AlertHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.status = 500
    now = SystemClock().now_ms()
    monkeypatch.setattr(import_module("dredge.orchestration.sensors.watch_sensor"), "wall_ms", lambda: now)
    with _house(tmp_path, "defaults: {level0_warn: 5}", DREDGE_ALERT_WEBHOOK=hook.address) as (house, _):
        assert (
            house.lines(house.tick(WATCH))[-1]
            == "webhook at 127.0.0.1: not sent: OSError: the webhook answered with status 500; next try in 15 min"
        )
        assert len(hook.sent) == 2
        assert "1 alerts wait until" in house.lines(house.tick(WATCH))[-1] and len(hook.sent) == 2
        now += 16 * 60_000
        assert house.lines(house.tick(WATCH))[-1].endswith("next try in 60 min")
        assert len(hook.keys) == 4 and len({*hook.keys}) == 1 and len(hook.keys[0]) == 32, "one message, tried again"
        hook.status, now = 200, now + 61 * 60_000
        assert house.lines(house.tick(WATCH))[-1] == "webhook at 127.0.0.1: sent 1 new, 0 over"
        assert not any("webhook" in line for line in house.lines(house.tick(WATCH)))
        assert len({*hook.keys}) == 1 and hook.sent[-1]["id"] == hook.keys[0]


def test_a_webhook_that_hangs_or_leads_elsewhere_blocks_nothing(
    hook: AlertHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_channels, "_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hanging = Webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/key")
        assert deliver(hanging, Alert("wh", ["a"])) == "no answer within 0.3 s"
        assert "key" not in repr(hanging) + hanging.name
    monkeypatch.setattr(alert_channels, "_SECONDS", 60.0)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        nobody = deliver(Webhook(f"http://127.0.0.1:{deaf.getsockname()[1]}/key"), Alert("wh", ["a"]))
    assert nobody is not None and nobody.startswith("OSError: no answer from the webhook") and "key" not in nobody
    hook.status = 302
    assert deliver(Webhook(hook.address), Alert("wh", ["a"])) == "OSError: the webhook answered with status 302"
    assert len(hook.sent) == 1


def test_a_message_names_the_first_fifty() -> None:
    lines = Alert("wh", [f"t{number}" for number in range(60)], ["x"], 60).text.splitlines()
    assert lines[0] == "Dredge wh: 60 new, 1 over, 60 in all"
    assert lines[-2:] == ["... and 10 more: see the newest tick of the sensor watch", "over: x"]


def test_of_thousands_of_findings_none_is_told_twice() -> None:
    keys = [f"shop.t{number}: maintenance stands still (error)" for number in range(2_500)]
    known = _read_channels(_write_cursor(Cursor(), {"hook": ChannelState.of(keys)}))["hook"]
    assert known.unknown(keys) == known.unknown(reversed(keys)) == []
    assert known.unknown(["shop.new: maintenance stands still (error)", *keys]) == [
        "shop.new: maintenance stands still (error)"
    ]
    assert len(known.keys) == 2_000 and len(known.digests) == 4_000
    assert ChannelState().unknown(keys[:2]) == keys[:2]


class _Post:
    """An SMTP server as smtplib speaks to one."""

    def __init__(self, tls: bool) -> None:
        self.tls, self.done, self.messages = tls, [], []

    def __call__(self, host: str, port: int, **_: Any) -> _Post:
        self.done.append((host, port))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def ehlo(self) -> None:
        """Nothing to say."""

    def has_extn(self, name: str) -> bool:
        return self.tls and name == "starttls"

    def starttls(self, context: Any) -> None:
        assert context.check_hostname
        self.done.append("tls")

    def login(self, user: str, password: str) -> None:
        self.done.append((user, password))

    def send_message(self, message: Any) -> None:
        self.messages.append(message)


def test_a_mail_server_that_is_down_or_says_nothing_blocks_nobody_and_is_told_later(
    tmp_path: Path, hook: AlertHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SystemClock().now_ms()
    monkeypatch.setattr(import_module("dredge.orchestration.sensors.watch_sensor"), "wall_ms", lambda: now)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # nobody listens there
        down = f"127.0.0.1:{deaf.getsockname()[1]}"
        mail = {"DREDGE_ALERT_EMAIL": "ann@example.org", "DREDGE_ALERT_SMTP": f"smtp://{down}"}
        values = {**mail, "DREDGE_ALERT_WEBHOOK": hook.address}
        with _house(tmp_path, "defaults: {level0_warn: 5}", **values) as (house, _):
            lines = house.lines(house.tick(WATCH))[-2:]
            assert "webhook at 127.0.0.1: sent 1 new, 0 over" in lines, "the other channel gets it"
            assert any("e-mail to ann@example.org: not sent: ConnectionRefused" in line for line in lines), lines
            assert any(line.endswith("next try in 15 min") for line in lines)
            server = _Post(tls=False)
            monkeypatch.setattr(alert_channels.smtplib, "SMTP", server)
            assert "1 alerts wait until" in house.lines(house.tick(WATCH))[-1] and not server.messages
            now += 16 * 60_000
            assert house.lines(house.tick(WATCH))[-1] == "e-mail to ann@example.org: sent 1 new, 0 over"
            (message,) = server.messages
            assert "shop.busy: warn (level 0 piles up)" in message.get_content()
    monkeypatch.undo()
    monkeypatch.setattr(alert_channels, "_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hanging = Mail(f"smtp://127.0.0.1:{silent.getsockname()[1]}", "ann@example.org", ("ann@example.org",))
        assert deliver(hanging, Alert("wh", ["a"])) == "no answer within 0.3 s"


def test_mail_goes_to_all_and_a_password_over_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "DREDGE_ALERT_EMAIL": "ann@example.org, team@example.org",
        "DREDGE_ALERT_SMTP": "smtp://ann:p%40ss@mail.example.org:587",
    }
    (channel,) = channels_from(values)
    assert isinstance(channel, Mail) and channel.name == "e-mail to ann@example.org, team@example.org"
    assert "p%40ss" not in repr(channel)
    server = _Post(tls=True)
    monkeypatch.setattr(alert_channels.smtplib, "SMTP", server)
    assert deliver(channel, Alert("wh", ["shop.busy: error"], [], 1)) is None
    assert server.done == [("mail.example.org", 587), "tls", ("ann", "p@ss")]
    (message,) = server.messages
    assert message["Subject"] == "Dredge wh: 1 new, 0 over, 1 in all" and "shop.busy: error" in message.get_content()
    assert message["To"] == "ann@example.org, team@example.org" and message["Message-ID"] is None
    assert deliver(channel, Alert("wh", ["a"], message_id="0a1b")) is None
    assert server.messages[1]["Message-ID"] == "<0a1b@example.org>"
    bare = _Post(tls=False)
    monkeypatch.setattr(alert_channels.smtplib, "SMTP", bare)
    assert "no TLS" in str(deliver(channel, Alert("wh", ["x"])))
    assert not bare.messages and len(bare.done) == 1


@pytest.mark.parametrize(
    ("values", "variable"),
    [
        ({"DREDGE_ALERT_WEBHOOK": "hooks.example.org/T0/secret"}, "DREDGE_ALERT_WEBHOOK"),
        ({"DREDGE_ALERT_WEBHOOK": "file:///etc/secret"}, "DREDGE_ALERT_WEBHOOK"),
        ({"DREDGE_ALERT_WEBHOOK": "https://x:70000/secret"}, "DREDGE_ALERT_WEBHOOK"),
        ({"DREDGE_ALERT_EMAIL": "ann@example.org"}, "DREDGE_ALERT_SMTP"),
        ({"DREDGE_ALERT_EMAIL": "ann", "DREDGE_ALERT_SMTP": "smtp://x"}, "DREDGE_ALERT_EMAIL"),
        ({"DREDGE_ALERT_EMAIL": "a@b\nBcc: c@d", "DREDGE_ALERT_SMTP": "smtp://x"}, "DREDGE_ALERT_EMAIL"),
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_it(values: dict[str, str], variable: str) -> None:
    with pytest.raises(InvalidOption, match=variable) as refused:
        channels_from(values)
    assert "secret" not in str(refused.value)


def test_dagsters_own_state_the_history_and_broken_tables_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _house(tmp_path) as (house, clock):
        calm = house.warehouse.table("shop.calm")
        commit(calm, 12)
        consumers.write_consumer(calm.store, "job-7", 3)
        clock.set(clock.now_ms() + 3 * DAY_MS)
        tags = names.WarehouseNames.of("").run_tags("shop.busy", None, "p", "compact", "r")
        for _ in range(3):
            house.instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=tags, status=dg.DagsterRunStatus.FAILURE))
        bad = dg.AssetCheckEvaluation(
            asset_key=house.layout("shop.calm"), check_name=names.TREE_CHECK, passed=False, description="files overlap"
        )
        house.instance.report_runless_asset_event(bad)
        place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("dredge"), "__repository__")
        now = SystemClock().now_ms() / 1000
        for name, ticked, status in (
            (names.SORTED_RUN_SENSOR, now - 3_600, InstigatorStatus.RUNNING),
            (names.IDLE_SENSOR, now + 900, InstigatorStatus.RUNNING),
            (names.CATALOG_SENSOR, now - 3_600, InstigatorStatus.STOPPED),
            ("somebody_elses", now - 3_600, InstigatorStatus.RUNNING),
        ):
            data = SensorInstigatorData(last_tick_timestamp=ticked, min_interval=30)
            origin = RemoteInstigatorOrigin(place, name)
            house.instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status, data))
        lines = "\n".join(house.lines(house.tick(WATCH)))
        assert "a sensor is silent" not in lines, "the daemon may have just started"
        minutes = 0
        module = import_module("dredge.orchestration.sensors.watch_sensor")
        monkeypatch.setattr(module, "wall_ms", lambda: int(now * 1000) + minutes * 60_000)
        for minutes in (4, 8, 12, 16):
            lines = "\n".join(house.lines(house.tick(WATCH)))
            assert ("a sensor is silent" in lines) == (minutes > 15), minutes
        assert "sensor sorted_run: error (a sensor is silent): its last tick was at " in lines
        assert lines.count("a sensor is silent") == 1
        assert "shop.busy: error (suspended after failures): suspended: its last 3 runs failed" in lines
        assert "shop.calm: error (a blocking check failed): tree_is_valid failed: files overlap; since " in lines
        assert " UTC; no run starts and nothing expires until the check passes again" in lines
        assert "shop.calm: warn (a consumer holds snapshots): consumer 'job-7'" in lines
        assert "shop.calm: warn (snapshots do not expire): 2 of 13 snapshots" in lines

        (house.root / "shop.db" / "calm" / "schema" / "schema-0").write_text("{")
        lines = "\n".join(house.lines(house.tick(WATCH)))
        assert (
            "shop.calm: error (cannot be looked at): " in lines
            and "shop.busy: error (maintenance stands still)" in lines
        )


def test_a_run_that_ended_before_its_checks_neither_stops_it_nor_hides_what_failed_before(tmp_path: Path) -> None:
    with _house(tmp_path) as (house, _):
        layout = house.layout("shop.busy")
        failed = dg.AssetCheckEvaluation(layout, names.MERGED_VIEW_CHECK, passed=False, description="they differ")
        house.instance.report_runless_asset_event(failed)
        next((house.root / "shop.db" / "busy" / "bucket-0").iterdir()).write_bytes(b"torn")
        assert not house.maintain("shop.busy").success, "its checks stay planned"
        assert any("merged_view_unchanged failed: they differ" in line for line in house.lines(house.tick(WATCH)))


def test_a_replay_keeps_it_still_and_a_broken_cursor_starts_over(tmp_path: Path) -> None:
    replay = tmp_path / "replay"
    with _house(tmp_path, "defaults: {level0_warn: 5}", DREDGE_REPLAY_STATE=str(replay)) as (house, _):
        replay.write_text("batch 1")
        house.cursors[WATCH] = '{"tick": 4}'
        assert house.tick(WATCH).skip_message == "replay of batch 1 in progress"
        assert house.cursors[WATCH] == '{"tick": 4}'
        replay.unlink()
        house.cursors[WATCH] = '{"channels": [1]}'
        assert house.lines(house.tick(WATCH))[0] == "2 tables visited: 1 findings"


def test_a_process_that_ends_after_it_sent_an_alert_and_before_its_cursor_is_stored_sends_it_once(
    tmp_path: Path, hook: AlertHook
) -> None:
    with _house(tmp_path, "defaults: {level0_warn: 5}", DREDGE_ALERT_WEBHOOK=hook.address) as (house, _):
        for cursor in (None, '{"tick": 0}'):
            house.cursors[WATCH] = cursor
            house.tick(WATCH)
            assert len(hook.sent) == 1
            house.load()  # another process, which has the cursor of the tick before
        house.tick(WATCH)
        assert len(hook.sent) == 1
        house.load()
        house.cursors[WATCH] = '{"tick": 40}'  # no tick was lost: a person has reset the cursor
        house.tick(WATCH)
        assert len(hook.sent) == 2


def test_a_process_that_ends_before_it_records_what_it_sent_repeats_the_message_with_its_key(
    tmp_path: Path, hook: AlertHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """End of the process between the answer of the server and the record."""

    def die(*_: object) -> None:
        raise Killed

    with _house(tmp_path, "defaults: {level0_warn: 5}", DREDGE_ALERT_WEBHOOK=hook.address) as (house, clock):
        with monkeypatch.context() as context:
            context.setattr(import_module("dredge.orchestration.sensors.watch_sensor"), "_record_sent", die)
            with pytest.raises(Killed):
                house.tick(WATCH)
        house.load()  # another process, which knows nothing of the message
        clock.set(clock.now_ms() + 60_000)
        house.tick(WATCH)
        assert len(hook.sent) == 2 and hook.keys[0] == hook.keys[1] is not None
        house.warehouse.table("shop.busy").compact(full=True)
        house.tick(WATCH)  # it is over
        commit(house.warehouse.table("shop.busy"), 6)
        house.tick(WATCH)  # and begins again: the same finding, another message
        assert hook.sent[3]["new"][0].split(":")[0] == hook.sent[0]["new"][0].split(":")[0]
        assert len({*hook.keys}) == 3
