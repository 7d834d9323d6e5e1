"""Sensor `watch`: it alerts people, once per change, about conditions that no single compaction resolves.

The sensor starts no run.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import dagster as dg

from lsm_core.clock import utc_text
from lsm_core.errors import InvalidOption
from lsm_core.json_text import parse_json
from lsm_core.maintenance import CheckLimits
from lsm_core.maintenance.checks.layout_condition import Condition, judge_file_size, judge_small_files
from lsm_core.maintenance.history_health import HistoryHealth
from orchestration.sensors.alert_channels import Alert, Channel, channels_from, deliver
from orchestration.sensors.table_cache import OpenTable, open_table, read_history, wall_ms
from orchestration.sensors.table_sweep import Cursor, TickLog
from platform_core import names
from platform_core.failure_records import iterate_lasting
from platform_core.obstacles import find_failed_checks, list_suspensions
from platform_core.policies import Decision, Policy, PolicySource, Reason
from platform_core.policies.decisions import due_work
from platform_core.policies.findings import (
    AlertCondition,
    Finding,
    Severity,
    find_backlog,
    find_history,
    find_late_data,
    find_pause,
    find_permanent_failures,
    find_small_files,
    find_stall,
)
from platform_core.resources.settings import Settings
from platform_core.resources.warehouse import WarehouseResource
from platform_core.table_card import TableCard

DESCRIPTION: Final = (
    "Starts nothing. Finds level-0 backlogs, stalled maintenance, long pauses, suspended tables, "
    "failed blocking checks, history that does not shrink, and silent sensors. "
    "Alerts the webhook of DREDGE_ALERT_WEBHOOK and the e-mail of DREDGE_ALERT_EMAIL: "
    "one message per tick, once per finding until it changes."
)
_DEBT_LASTS_MS: Final = 60 * 60 * 1000
"""Time for which the computed overdue history of an unchanged table is reused."""
_EVENTS_A_TICK: Final = 200
_SKIP_TEXT: Final = 12_000
_MOST_KEYS: Final = 2_000
"""Most findings per channel whose whole keys are stored in the cursor."""
_MOST_DIGESTS: Final = 20_000
"""Most further findings per channel that are stored as a digest of 8 characters."""
_WAITS_MS: Final = (15 * 60_000, 60 * 60_000, 4 * 60 * 60_000)
"""Waiting times (ms) of a failing channel: after the first, the second, and each later failure."""
_SILENT_INTERVALS: Final = 10
_SILENT_SECONDS: Final = 15 * 60
_OURS: Final = frozenset({names.SORTED_RUN_SENSOR, names.IDLE_SENSOR, names.CATALOG_SENSOR, names.FAILURE_SENSOR})


def _find_small_files(table: OpenTable, policy: Policy, now_ms: int) -> list[Finding]:
    """Return the alerts about small files of an append table; the list is empty if no limit is reached."""
    options, watch = table.store.options, policy.watch
    target = options.target_file_size(has_primary_key=False)
    condition = Condition(
        table.health.buckets, now_ms, keyed=False, file_bytes=target, trigger=options.compaction_trigger
    )
    limits = CheckLimits(pile_warn=watch.small_files, pile_critical=max(watch.small_files_critical, watch.small_files))
    return find_small_files(table.name, judge_small_files(condition, limits), judge_file_size(condition, limits))


@dataclass(frozen=True)
class ChannelState:
    """State of an alert channel: what was sent, and when to try again.

    Attributes:
        keys: keys of the findings that were sent.
        failures: consecutive failures since the last success.
        again_ms: time of the next try (epoch ms).
        digests: concatenated digests of findings beyond the first 2,000. These findings are not sent twice, but their
            end is not reported.
    """

    keys: tuple[str, ...] = ()
    failures: int = 0
    again_ms: int = 0
    digests: str = ""

    @staticmethod
    def of(keys: Sequence[str]) -> ChannelState:
        """Return the state of a channel that was sent all findings with these keys."""
        overflow = keys[_MOST_KEYS : _MOST_KEYS + _MOST_DIGESTS]
        return ChannelState(tuple(keys[:_MOST_KEYS]), digests="".join(map(_digest, overflow)))

    def unknown(self, keys: Iterable[str]) -> list[str]:
        """Return those of `keys` that were not sent to the channel yet."""
        sent, size = set(self.keys), len(_digest(""))
        digests = {self.digests[start : start + size] for start in range(0, len(self.digests), size)}
        return [key for key in keys if key not in sent and not (digests and _digest(key) in digests)]


@dataclass
class Watch:
    """State of the sensor in this process: findings and overdue history from the last visit of each table.

    No alert is sent before all tables were visited once. Otherwise, earlier findings of unvisited tables would be
    reported as ended.

    Attributes:
        cards: tables of the loaded definitions.
        policies: source of the current policies.
        settings: intervals and budgets.
        channels: alert channels.
        findings_by_table: findings by table.
        tick_log: selection of the log lines of the ticks.
    """

    cards: Sequence[TableCard]
    policies: PolicySource
    settings: Settings
    channels: Sequence[Channel] = ()
    findings_by_table: dict[str, list[Finding]] = field(default_factory=dict)
    tick_log: TickLog = field(default_factory=TickLog)
    _debts: dict[str, tuple[object, int, HistoryHealth]] = field(default_factory=dict)
    _shown: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Visit as many tables as the time budget allows, at least one, and send new findings.

        Args:
            context: context of the tick.
            warehouse: the warehouse.

        Returns:
            The findings as lines of the tick, and an observation of each layout whose findings changed.
        """
        state = _read_channels(context.cursor)
        stopped = warehouse.replay_text()
        if stopped is None:
            try:
                warehouse.time()
            except InvalidOption as error:
                stopped = str(error)
        if stopped is not None:
            return dg.SensorResult(skip_reason=stopped, cursor=context.cursor)
        cursor, policies = Cursor.read(context.cursor), self.policies.current()
        start = next((index for index, card in enumerate(self.cards) if card.name == cursor.next_table), 0)
        pending = deque([*self.cards[start:], *self.cards[:start]])
        began = time.monotonic()
        visited = 0
        while pending and (not visited or time.monotonic() - began < self.settings.sensor_budget_seconds):
            card = pending.popleft()
            self.findings_by_table[card.name] = self._visit(warehouse, card, policies.of(card.name))
            visited += 1
        trouble = (
            [Finding("the policy file", AlertCondition.POLICIES, Severity.ERROR, policies.trouble)]
            if policies.trouble
            else []
        )
        table_findings = [finding for card in self.cards for finding in self.findings_by_table.get(card.name, ())]
        findings = [*trouble, *self._find_in_dagster(context.instance, warehouse), *table_findings]
        lines = [f"{visited} tables visited: {len(findings)} findings", *(finding.line() for finding in findings)]
        if pending:
            lines.append(
                f"{len(pending)} tables had no turn in this tick's {self.settings.sensor_budget_seconds:g} s: "
                f"next is {pending[0].name}"
            )
        if len(self.findings_by_table) == len(self.cards):
            state = self._send_alerts(warehouse, findings, state, lines)
        lines = self.tick_log.lines(lines)
        for line in lines:
            context.log.info(line)
        text = "\n".join(lines)
        return dg.SensorResult(
            skip_reason=text
            if len(text) <= _SKIP_TEXT
            else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)",
            cursor=_write_cursor(Cursor(cursor.tick + 1, pending[0].name if pending else None), state),
            asset_events=list(self._events(warehouse, findings)),
        )

    # -- looking -------------------------------------------------------------------------------------------------------

    def _visit(self, warehouse: WarehouseResource, card: TableCard, policy: Policy) -> list[Finding]:
        """Return the findings about one table from the table's metadata."""
        table = open_table(warehouse, card, policy)
        if isinstance(table, Decision):
            if table.reason is not Reason.UNREADABLE:
                return []
            return [Finding(card.name, AlertCondition.UNREADABLE, Severity.ERROR, table.text)]
        now = table.store.clock.now_ms()
        states, append_only = table.health.partitions, table.facts.append_only
        try:
            findings = [
                *(_find_small_files(table, policy, now) if append_only else find_backlog(table.name, states, policy)),
                *find_stall(table.name, due_work(table.facts, table.policy_of, table.now), policy, now),
                *find_pause(table.name, policy, now),
                *find_late_data(table.name, states, policy),
            ]
            return [*findings, *find_history(table.name, self._read_debt(table, now), policy, now)]
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            return [Finding(card.name, AlertCondition.UNREADABLE, Severity.ERROR, f"{type(error).__name__}: {error}")]

    def _read_debt(self, table: OpenTable, now_ms: int) -> HistoryHealth:
        version = (table.health.snapshot, table.health.commit)
        known = self._debts.get(table.name)
        if known is not None and known[0] == version and 0 <= now_ms - known[1] < _DEBT_LASTS_MS:
            return known[2]
        debt = read_history(table)
        self._debts[table.name] = (version, now_ms, debt)
        return debt

    def _find_in_dagster(self, instance: dg.DagsterInstance, warehouse: WarehouseResource) -> Iterator[Finding]:
        """Yield findings from Dagster's storage: suspended tables, failed blocking checks, sensors without ticks."""
        yield from find_permanent_failures(iterate_lasting(instance, warehouse, (card.name for card in self.cards)))
        for table, suspended in sorted(list_suspensions(instance).items()):
            yield Finding(table, AlertCondition.SUSPENDED, Severity.ERROR, suspended.text())
        layouts = {card.name: names.layout_key(warehouse.path, card.name) for card in self.cards}
        for table, text in sorted(find_failed_checks(instance, layouts).items()):
            yield Finding(
                table,
                AlertCondition.BLOCKED,
                Severity.ERROR,
                f"{text}; no run starts and nothing expires until the check passes again",
            )
        now = wall_ms() / 1000
        for state in instance.all_instigator_state():
            ticked = getattr(state.instigator_data, "last_tick_timestamp", None)
            if state.name not in _OURS or not state.is_running or ticked is None:
                continue
            limit = max(_SILENT_INTERVALS * (getattr(state.instigator_data, "min_interval", 0) or 0), _SILENT_SECONDS)
            if now - ticked >= limit:
                text = f"its last tick was at {utc_text(int(ticked * 1000))} UTC, more than {limit // 60:.0f} min ago"
                yield Finding(f"sensor {state.name}", AlertCondition.SENSOR, Severity.ERROR, text)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _events(self, warehouse: WarehouseResource, findings: Sequence[Finding]) -> Iterator[dg.AssetObservation]:
        """Yield an observation of every layout whose findings changed since the previous report of this process."""
        by_table: dict[str, list[Finding]] = {}
        for finding in findings:
            by_table.setdefault(finding.subject, []).append(finding)
        changed = 0
        for card in self.cards:
            table_findings = by_table.get(card.name, [])
            keys = tuple(finding.key for finding in table_findings)
            if self._shown.get(card.name, ()) == keys or changed >= _EVENTS_A_TICK:
                continue
            self._shown[card.name] = keys
            changed += 1
            description = (
                "; ".join(f"{finding.trouble}: {finding.text}" for finding in table_findings) or "nothing any more"
            )
            yield dg.AssetObservation(
                names.layout_key(warehouse.path, card.name),
                description=description,
                metadata={
                    "watch": dg.MetadataValue.text(description),
                    "findings": dg.MetadataValue.int(len(table_findings)),
                },
            )

    def _send_alerts(
        self,
        warehouse: WarehouseResource,
        findings: Sequence[Finding],
        state: Mapping[str, ChannelState],
        lines: list[str],
    ) -> dict[str, ChannelState]:
        """Send new and ended findings to each channel that does not know about them; add the results to `lines`.

        Args:
            warehouse: warehouse of the tables.
            findings: all current findings.
            state: earlier states of the channels by name.
            lines: lines of the tick's log.

        Returns:
            The new states of the channels by name.
        """
        current = {finding.key: finding for finding in findings if finding.severity is not Severity.INFO}
        now = wall_ms()
        states: dict[str, ChannelState] = {}
        for channel in self.channels:
            channel_state = state.get(channel.name, ChannelState())
            new = [current[key].line() for key in channel_state.unknown(current)]
            over = [key for key in channel_state.keys if key not in current]
            if not new and not over:
                states[channel.name] = channel_state
                continue
            if now < channel_state.again_ms:
                states[channel.name] = channel_state
                lines.append(
                    f"{channel.name}: {len(new) + len(over)} alerts wait until {utc_text(channel_state.again_ms)} UTC: "
                    f"it failed {channel_state.failures} times"
                )
                continue
            why = deliver(channel, Alert(names.warehouse_name(warehouse.path), new, over, len(current)))
            if why is None:
                states[channel.name] = ChannelState.of(list(current))
                lines.append(f"{channel.name}: sent {len(new)} new, {len(over)} over")
            else:
                wait = _WAITS_MS[min(channel_state.failures, len(_WAITS_MS) - 1)]
                states[channel.name] = replace(channel_state, failures=channel_state.failures + 1, again_ms=now + wait)
                lines.append(f"{channel.name}: not sent: {why}; next try in {wait // 60_000} min")
        return states


def _digest(key: str) -> str:
    return hashlib.blake2s(key.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _read_channels(text: str | None) -> dict[str, ChannelState]:
    """Return the states of the channels by name.

    If the cursor is unreadable, the result is empty, so that all findings are sent once more.
    """
    try:
        channels = parse_json(text or "{}").get("channels", {})
        return {
            str(name): ChannelState(
                tuple(map(str, state["told"])),
                int(state["failures"]),
                int(state["again_ms"]),
                str(state.get("more", "")),
            )
            for name, state in channels.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _write_cursor(cursor: Cursor, state: Mapping[str, ChannelState]) -> str:
    document: dict[str, Any] = parse_json(cursor.write())
    document["channels"] = {
        name: {
            "told": list(channel_state.keys),
            "failures": channel_state.failures,
            "again_ms": channel_state.again_ms,
            "more": channel_state.digests,
        }
        for name, channel_state in state.items()
    }
    return json.dumps(document)


def watch_sensor(
    cards: Sequence[TableCard], policies: PolicySource, settings: Settings, environment: Mapping[str, str] | None = None
) -> dg.SensorDefinition:
    """Return the sensor `watch` for all tables.

    Raises:
        InvalidOption: the address of an alert channel is invalid.
    """
    watch = Watch(cards, policies, settings, channels_from(environment))

    @dg.sensor(
        name=names.WATCH_SENSOR,
        # Dagster requires the assets that a sensor may report on; this one requests no run.
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=settings.watch_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def watch_tables(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return watch.tick(context, warehouse)

    return watch_tables
