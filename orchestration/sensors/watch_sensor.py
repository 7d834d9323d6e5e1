"""Sensor `watch`: it alerts people, once per change, about conditions that no single compaction resolves.

The sensor starts no run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import dagster as dg

from dredge.orchestration.sensors.alert_channels import (
    Alert,
    AlertItem,
    Channel,
    default_channels,
    deliver,
    make_channel,
)
from dredge.orchestration.sensors.metric_files import alert_samples, write_metrics
from dredge.orchestration.sensors.table_cache import OpenTable, open_table, read_history, wall_ms
from dredge.orchestration.sensors.table_sweep import Cursor, TickLog
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.failure_records import iterate_lasting, read_unreadable_tables
from dredge.platform_core.mute_records import list_mutes
from dredge.platform_core.obstacles import find_failed_checks, list_suspensions
from dredge.platform_core.policies import Decision, Policies, Policy, PolicySource, Reason
from dredge.platform_core.policies.alerts import (
    AlertCause,
    Mute,
    channels_for,
    find_active_mutes,
    group_causes,
    group_ended,
    runbook_section,
)
from dredge.platform_core.policies.decisions import due_work
from dredge.platform_core.policies.findings import (
    AlertCondition,
    Finding,
    Severity,
    find_backlog,
    find_history,
    find_iceberg_lag,
    find_late_data,
    find_pause,
    find_permanent_failures,
    find_small_files,
    find_stall,
    find_unmaintained,
)
from dredge.platform_core.policies.policy import AlertRules
from dredge.platform_core.pools import assign_forgotten_steps
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard
from lsm_core.clock import utc_text
from lsm_core.errors import InvalidOption
from lsm_core.json_text import parse_json
from lsm_core.maintenance import CheckLimits
from lsm_core.maintenance.checks.layout_condition import Condition, judge_file_size, judge_small_files
from lsm_core.maintenance.history_health import HistoryHealth

DESCRIPTION: Final = (
    "Starts nothing. Finds level-0 backlogs, stalled maintenance, long pauses, suspended tables, "
    "failed blocking checks, history that does not shrink, and silent sensors. "
    "Alerts webhooks, Slack and e-mail by the routes of the policy file: "
    "one message per tick and channel, one line per cause, once until the finding changes. "
    "The jobs snooze_alerts and acknowledge_alerts silence alerts for a time."
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
_GAP_SECONDS: Final = 5 * 60
"""Time (seconds) without a tick of `watch` after which the daemon counts as restarted."""
_MOST_TABLES: Final = 10
"""Most tables that a cause in a message lists."""
_RUNBOOK_PAGE: Final = "docs/operations.md"
_MOST_ACKNOWLEDGED: Final = 50
"""Most announced acknowledgements that are stored per channel."""
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


def _find_in_pools(instance: dg.DagsterInstance, warehouse: WarehouseResource) -> list[Finding]:
    """Heal steps that wait for a Dagster pool although the pool has a free slot, and return a finding for each.

    Dagster can miss to wake up such a step. The step gets the free slot here.
    """
    return [
        Finding(
            f"pool {step.pool}",
            AlertCondition.POOL,
            Severity.INFO if step.is_healed else Severity.ERROR,
            step.text(),
            run_id=step.run_id,
        )
        for step in assign_forgotten_steps(instance, warehouse.names, wall_ms())
    ]


@dataclass(frozen=True)
class ChannelState:
    """State of an alert channel: what was sent, and when to try again.

    Attributes:
        keys: keys of the findings that were sent.
        failures: consecutive failures since the last success.
        again_ms: time of the next try (epoch ms).
        digests: concatenated digests of findings beyond the first 2,000. These findings are not sent twice, but their
            end is not reported.
        muted: keys of current findings that were snoozed or acknowledged at the last tick.
        announced: ids of the runs whose acknowledgement was sent.
        origin: digest of the cursor of the tick that tried first to send the message that failed; "" if none failed.
    """

    keys: tuple[str, ...] = ()
    failures: int = 0
    again_ms: int = 0
    digests: str = ""
    muted: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()
    origin: str = ""

    @staticmethod
    def of(keys: Sequence[str]) -> ChannelState:
        """Return the state of a channel to which all findings with these keys were sent."""
        overflow = keys[_MOST_KEYS : _MOST_KEYS + _MOST_DIGESTS]
        return ChannelState(tuple(keys[:_MOST_KEYS]), digests="".join(map(_digest, overflow)))

    def unknown(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of findings that were not sent to the channel yet, in the order of `keys`."""
        sent, size = set(self.keys), len(_digest(""))
        digests = {self.digests[start : start + size] for start in range(0, len(self.digests), size)}
        return [key for key in keys if key not in sent and not (digests and _digest(key) in digests)]


@dataclass
class Watch:
    """State of the sensor in this process: findings and overdue history from the last visit of each table.

    No alert is sent before all tables were visited once. Otherwise, earlier findings of unvisited tables would be
    reported as ended.

    Attributes:
        cards: descriptions of the tables in the loaded definitions.
        policies: source of the current policies.
        settings: intervals and budgets.
        channels: alert channels that the environment configures, by the name that the alert routes of the policy file
            use: "webhook", "slack" or "email".
        environment: environment variables with the addresses of the channels in the policy file.
        findings_by_table: findings of each table's last visit, by full name of the table.
        tick_log: selection of the log lines of the ticks.
    """

    cards: Sequence[TableCard]
    policies: PolicySource
    settings: Settings
    channels: Mapping[str, Channel] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    findings_by_table: dict[str, list[Finding]] = field(default_factory=dict)
    tick_log: TickLog = field(default_factory=TickLog)
    _debts: dict[str, tuple[object, int, HistoryHealth]] = field(default_factory=dict)
    _shown: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _sent: tuple[int, dict[str, ChannelState]] | None = None

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Visit as many tables as the time budget allows, at least one, and send new findings.

        Args:
            context: context of the tick.
            warehouse: the warehouse.

        Returns:
            The findings as lines of the tick, and an observation of each layout whose findings changed.
        """
        cursor, state = Cursor.read(context.cursor), _read_channels(context.cursor)
        if self._sent is not None and self._sent[0] > cursor.tick:
            state = self._sent[1]  # Dagster could not store the cursor of the tick that sent alerts
        elif self._sent is None:
            state = _read_record(context.instance, warehouse, cursor.tick + 1, state)
        stopped = warehouse.replay_text()
        if stopped is None:
            try:
                warehouse.time()
            except InvalidOption as error:
                stopped = str(error)
        if stopped is not None:
            return dg.SensorResult(skip_reason=stopped, cursor=context.cursor)
        policies, awake = self.policies.current(), self._awake_since(context.cursor)
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
        in_dagster = [
            *_find_in_pools(context.instance, warehouse),
            *self._find_in_dagster(context.instance, warehouse, awake),
        ]
        findings = [*trouble, *in_dagster, *table_findings]
        lines = [f"{visited} tables visited: {len(findings)} findings", *(finding.line() for finding in findings)]
        if pending:
            lines.append(
                f"{len(pending)} tables had no turn in this tick's {self.settings.sensor_budget_seconds:g} s: "
                f"next is {pending[0].name}"
            )
        if len(self.findings_by_table) == len(self.cards):
            mutes = find_active_mutes(list_mutes(context.instance, warehouse.names, wall_ms()), wall_ms())

            def record(states: Mapping[str, ChannelState]) -> None:
                _record_sent(context.instance, warehouse, cursor.tick + 1, states)

            origin = _message_digest(context.cursor or "")
            state = self._send_alerts(warehouse, policies, findings, mutes, state, lines, record, origin)
            self._sent = (cursor.tick + 1, state)
            write_metrics(warehouse.names, "alerts", alert_samples(findings, wall_ms()), self.environment)
        lines = self.tick_log.lines(lines)
        for line in lines:
            context.log.info(line)
        text = "\n".join(lines)
        return dg.SensorResult(
            skip_reason=text
            if len(text) <= _SKIP_TEXT
            else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)",
            cursor=_write_cursor(
                Cursor(cursor.tick + 1, pending[0].name if pending else None), state, awake, wall_ms()
            ),
            asset_events=list(self._events(warehouse, findings)),
        )

    def find_all(self, instance: dg.DagsterInstance, warehouse: WarehouseResource) -> list[Finding]:
        """Return all current findings without sending and changing anything; every table is visited.

        Args:
            instance: Dagster instance.
            warehouse: the warehouse.
        """
        policies = self.policies.current()
        sensors = {state.name: state.instigator_data for state in instance.all_instigator_state()}
        awake = self._awake_since(getattr(sensors.get(warehouse.names.definition(names.WATCH_SENSOR)), "cursor", None))
        findings = [finding for card in self.cards for finding in self._visit(warehouse, card, policies.of(card.name))]
        if policies.trouble:
            text = policies.trouble
            findings.append(Finding("the policy file", AlertCondition.POLICIES, Severity.ERROR, text))
        return [*self._find_in_dagster(instance, warehouse, awake), *findings]

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
                *find_iceberg_lag(table.name, table.health.iceberg, policy, now),
            ]
            return [*findings, *self._find_history(table, policy, now)]
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            return [Finding(card.name, AlertCondition.UNREADABLE, Severity.ERROR, f"{type(error).__name__}: {error}")]

    def _find_history(self, table: OpenTable, policy: Policy, now_ms: int) -> list[Finding]:
        """Return the findings about the history (snapshots, tags, consumers, manifests) of a table.

        If the last visit found nothing, the metadata are read again only after a commit or an hour. Otherwise they are
        read on every visit, because an expiry, a deleted tag or a repair can end the finding without a commit.
        """
        version = (table.health.snapshot, table.health.commit)
        known = self._debts.get(table.name)
        if known is not None and known[0] == version and 0 <= now_ms - known[1] < _DEBT_LASTS_MS:
            findings = list(find_history(table.name, known[2], policy, now_ms))
            if not findings:
                return findings
        debt = read_history(table)
        self._debts[table.name] = (version, now_ms, debt)
        return list(find_history(table.name, debt, policy, now_ms))

    def _awake_since(self, cursor: str | None) -> int:
        """Return since when `watch` ticks without a gap (epoch ms, wall clock); after a gap, the current time.

        While the daemon does not run, no sensor ticks. So a sensor counts as silent only if it does not tick while
        `watch` ticks.

        Args:
            cursor: cursor of the previous tick.
        """
        now = wall_ms()
        awake, ticked = _read_times(cursor)
        gap = max(_GAP_SECONDS, 3 * self.settings.watch_seconds) * 1000
        return awake if 0 <= now - ticked <= gap else now

    def _find_in_dagster(
        self, instance: dg.DagsterInstance, warehouse: WarehouseResource, awake_ms: int
    ) -> Iterator[Finding]:
        """Yield findings from Dagster's storage: failures, suspended tables, failed blocking checks, silent sensors.

        Args:
            instance: Dagster instance.
            warehouse: the warehouse.
            awake_ms: time since which this sensor ticks without a gap (epoch ms).
        """
        tables = {card.name for card in self.cards}
        yield from find_permanent_failures(iterate_lasting(instance, warehouse, tables))
        unreadable = read_unreadable_tables(instance, warehouse)
        yield from find_unmaintained({table: item.text for table, item in unreadable.items()}, tables)
        for table, suspended in sorted(list_suspensions(instance, warehouse.names).items()):
            yield Finding(table, AlertCondition.SUSPENDED, Severity.ERROR, suspended.text(), run_id=suspended.run_id)
        layouts = {card.name: warehouse.names.layout_key(card.name) for card in self.cards}
        for table, check in sorted(find_failed_checks(instance, layouts).items()):
            yield Finding(
                table,
                AlertCondition.BLOCKED,
                Severity.ERROR,
                f"{check.text}; since {utc_text(check.since_ms)[:16]} UTC; no run starts and nothing expires until the "
                "check passes again",
                run_id=check.run_id,
            )
        own_sensors = {warehouse.names.definition(name) for name in _OURS}
        now = wall_ms() / 1000
        for state in instance.all_instigator_state():
            ticked = getattr(state.instigator_data, "last_tick_timestamp", None)
            if state.name not in own_sensors or not state.is_running or ticked is None:
                continue
            limit = max(_SILENT_INTERVALS * (getattr(state.instigator_data, "min_interval", 0) or 0), _SILENT_SECONDS)
            if now - max(ticked, awake_ms / 1000) >= limit:
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
                warehouse.names.layout_key(card.name),
                description=description,
                metadata={
                    "watch": dg.MetadataValue.text(description),
                    "findings": dg.MetadataValue.int(len(table_findings)),
                },
            )

    def _send_alerts(
        self,
        warehouse: WarehouseResource,
        policies: Policies,
        findings: Sequence[Finding],
        mutes: Sequence[Mute],
        state: Mapping[str, ChannelState],
        lines: list[str],
        record: Callable[[Mapping[str, ChannelState]], None],
        origin: str,
    ) -> dict[str, ChannelState]:
        """Send each channel the new and ended findings that the channel did not get yet; add the results to `lines`.

        Args:
            warehouse: warehouse of the tables.
            policies: policies in force, with the routes and the owners of the tables.
            findings: all current findings.
            mutes: alerts that are snoozed or acknowledged now.
            state: earlier states of the channels by name.
            lines: lines of the tick's log.
            record: stores the states of the channels; called after each message.
            origin: digest of the cursor before this tick. A tick that is repeated has the same one.

        Returns:
            The new states of the channels by name.
        """
        rules = policies.content.alerts
        channels, problems = self._open_channels(rules)
        lines += problems
        current = {finding.key: finding for finding in findings if finding.severity is not Severity.INFO}
        tables = {card.name for card in self.cards}

        def owners_of(subject: str) -> Sequence[str]:
            return policies.of(subject).owners if subject in tables else ()

        # Alerts of a channel that cannot be used go to the channels of the environment, so that none is lost.
        usable = {name: {name} if name in channels else set(self.channels) for name in _names_in(rules)}
        routed: dict[str, dict[str, Finding]] = {name: {} for name in channels}
        for key, finding in current.items():
            chosen = channels_for(finding, rules.routes, owners_of(finding.subject), list(self.channels))
            for name in set().union(*(usable.get(name, {name}) for name in chosen)):
                routed[name][key] = finding
        states: dict[str, ChannelState] = {}
        for name, channel in channels.items():
            before = state.get(channel.name, ChannelState())
            message = _Message.make(before, routed[name], current, mutes)
            states[channel.name] = self._send(warehouse, channel, before, message, owners_of, lines, origin)
            if not message.is_empty:
                record({**state, **states})
        return states

    def _open_channels(self, rules: AlertRules) -> tuple[dict[str, Channel], list[str]]:
        """Return the channels of the environment and of the policy file by name, and a line per unusable channel."""
        channels, problems = dict(self.channels), []
        for name, rule in rules.channels.items():
            try:
                channels[name] = make_channel(rule.kind, rule.address_in, self.environment, name)
            except InvalidOption as error:
                problems.append(f"alert channel {name}: {error}; its alerts go to the channels of the environment")
        return channels, problems

    def _send(
        self,
        warehouse: WarehouseResource,
        channel: Channel,
        before: ChannelState,
        message: _Message,
        owners_of: Callable[[str], Sequence[str]],
        lines: list[str],
        origin: str,
    ) -> ChannelState:
        """Send a message to a channel, unless the message is empty or the channel failed lately; return the new state.

        Args:
            warehouse: warehouse of the tables.
            channel: channel that sends the message.
            before: state of the channel before the tick.
            message: findings and acknowledgements that were not sent to the channel yet.
            owners_of: returns the owners of a table.
            lines: lines of the tick's log; the result is added.
            origin: digest of the cursor before this tick.
        """
        now = wall_ms()
        causes = group_causes(message.new, owners_of)
        if message.is_empty:
            return replace(message.after, failures=before.failures, again_ms=before.again_ms)
        number = len(message.new) + len(message.over)
        if now < before.again_ms:
            lines.append(
                f"{channel.name}: {number} alerts wait until {utc_text(before.again_ms)} UTC: "
                f"it failed {before.failures} times"
            )
            return before
        first = before.origin or origin
        alert = Alert(
            warehouse.names.first,
            [cause.line() for cause in causes],
            group_ended(message.over),
            message.standing,
            [self._item(warehouse, cause) for cause in causes],
            [_acknowledged_line(mute) for mute in message.acknowledged],
            _message_digest(first, channel.name, *message.parts),
        )
        why = deliver(channel, alert)
        if why is None:
            acknowledged = f", {len(alert.acknowledged)} acknowledged" if alert.acknowledged else ""
            lines.append(f"{channel.name}: sent {len(alert.new)} new, {len(alert.over)} over{acknowledged}")
            return message.after
        wait = _WAITS_MS[min(before.failures, len(_WAITS_MS) - 1)]
        lines.append(f"{channel.name}: not sent: {why}; next try in {wait // 60_000} min")
        return replace(before, failures=before.failures + 1, again_ms=now + wait, origin=first)

    def _item(self, warehouse: WarehouseResource, cause: AlertCause) -> AlertItem:
        """Return the entry of an alert message for findings with one cause.

        It has links to the table's page in Dagster, the failed run, and the section of the runbook.
        """
        links: dict[str, str] = {}
        subject, base = cause.subjects[0], self.settings.ui_url
        if base and any(card.name == subject for card in self.cards):
            path = "/".join(quote(part, safe="") for part in warehouse.names.layout_key(subject).path)
            links["asset"] = f"{base}/assets/{path}"
        if base and cause.run_id:
            links["run"] = f"{base}/runs/{quote(cause.run_id, safe='')}"
        page = self.settings.runbook_url or _RUNBOOK_PAGE
        links["runbook"] = f"{page}#{runbook_section(cause.condition)}"
        return AlertItem(
            cause.line(),
            cause.severity.value,
            cause.condition.value,
            cause.owners,
            cause.subjects[:_MOST_TABLES],
            len(cause.findings),
            links,
        )


def _names_in(rules: AlertRules) -> set[str]:
    return {name for route in rules.routes for name in route.channels}


@dataclass(frozen=True)
class _Message:
    """Findings and acknowledgements that were not sent to a channel yet.

    Attributes:
        new: findings that were not sent to the channel, or that were snoozed or acknowledged until now.
        over: keys of findings that were sent and have ended.
        acknowledged: acknowledgements of findings of the channel that were not announced.
        standing: number of current findings of the channel.
        after: state of the channel after the message was sent.
    """

    new: Sequence[Finding]
    over: Sequence[str]
    acknowledged: Sequence[Mute]
    standing: int
    after: ChannelState

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.new and not self.over and not self.acknowledged

    @property
    def parts(self) -> list[str]:
        """Texts that are the same if and only if the message says the same, whatever the numbers in its lines are."""
        new, acknowledged = (finding.key for finding in self.new), (mute.run_id for mute in self.acknowledged)
        return [*sorted(new), "over", *sorted(self.over), "acknowledged", *sorted(acknowledged)]

    @staticmethod
    def make(
        before: ChannelState, routed: Mapping[str, Finding], current: Mapping[str, Finding], mutes: Sequence[Mute]
    ) -> _Message:
        """Return the message for a channel.

        Args:
            before: state of the channel.
            routed: current findings of the channel by key.
            current: all current findings by key.
            mutes: alerts that are snoozed or acknowledged now.
        """
        muted = {key for key, finding in routed.items() if any(mute.covers(finding) for mute in mutes)}
        ended_mutes = set(before.muted) - muted
        unknown = {*before.unknown(routed), *(key for key in routed if key in ended_mutes)}
        new = [finding for key, finding in routed.items() if key in unknown and key not in muted]
        over = [key for key in before.keys if key not in current]
        known = set(before.keys)
        acknowledged = [
            mute
            for mute in mutes
            if mute.acknowledged
            and mute.run_id not in before.announced
            and any(mute.covers(routed[key]) for key in muted)
        ]
        kept = [key for key in routed if key not in muted or key in known]
        announced = (*before.announced, *(mute.run_id for mute in acknowledged))[-_MOST_ACKNOWLEDGED:]
        after = replace(ChannelState.of(kept), muted=tuple(sorted(muted))[:_MOST_KEYS], announced=announced)
        return _Message(new, over, acknowledged, len(routed), after)


def _acknowledged_line(mute: Mute) -> str:
    reason = f": {mute.reason}" if mute.reason else ""
    return f"{mute.tables}, {mute.cause}: by {mute.by} until {utc_text(mute.until_ms)} UTC{reason}"


def _message_digest(*parts: str) -> str:
    text = json.dumps(parts)
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def _digest(key: str) -> str:
    return hashlib.blake2s(key.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _read_channels(text: str | None) -> dict[str, ChannelState]:
    """Return the states of the channels by name, from the cursor of the last tick.

    The result is empty before the first tick. It is also empty if the cursor is unreadable; then all findings are sent
    once more.
    """
    try:
        channels = parse_json(text or "{}").get("channels", {})
        return {
            str(name): ChannelState(
                tuple(map(str, state["told"])),
                int(state["failures"]),
                int(state["again_ms"]),
                str(state.get("more", "")),
                tuple(map(str, state.get("muted", ()))),
                tuple(map(str, state.get("announced", ()))),
                str(state.get("origin", "")),
            )
            for name, state in channels.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _record_key(warehouse: WarehouseResource) -> str:
    return f"dredge/watch/{warehouse.names.first}"


def _record_sent(
    instance: dg.DagsterInstance, warehouse: WarehouseResource, tick: int, states: Mapping[str, ChannelState]
) -> None:
    """Store what the channels were sent, for a process that starts after this one ended within its tick.

    Dagster stores the cursor only after the tick. Until then, the alerts would be sent again.
    """
    record = {_record_key(warehouse): _write_cursor(Cursor(tick), states)}
    instance.daemon_cursor_storage.set_cursor_values(record)


def _read_record(
    instance: dg.DagsterInstance, warehouse: WarehouseResource, tick: int, state: dict[str, ChannelState]
) -> dict[str, ChannelState]:
    """Return the states of the channels that a lost tick recorded, or the given states if no tick was lost.

    Args:
        instance: Dagster instance.
        warehouse: the warehouse.
        tick: number of the tick after the cursor. Records of any other tick are ignored, so that a person can reset the
            cursor.
        state: states of the cursor.
    """
    key = _record_key(warehouse)
    text = instance.daemon_cursor_storage.get_cursor_values({key}).get(key)
    return _read_channels(text) if text is not None and Cursor.read(text).tick == tick else state


def _read_times(text: str | None) -> tuple[int, int]:
    """Return since when `watch` ticked without a gap, and the time of its last tick (epoch ms); zeros if unknown."""
    try:
        document = parse_json(text or "{}")
        return int(document["awake_ms"]), int(document["ticked_ms"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0, 0


def _write_cursor(cursor: Cursor, state: Mapping[str, ChannelState], awake_ms: int = 0, ticked_ms: int = 0) -> str:
    document: dict[str, Any] = parse_json(cursor.write())
    document |= {"awake_ms": awake_ms, "ticked_ms": ticked_ms}
    document["channels"] = {
        name: {
            "told": list(channel_state.keys),
            "failures": channel_state.failures,
            "again_ms": channel_state.again_ms,
            "more": channel_state.digests,
            **({"muted": list(channel_state.muted)} if channel_state.muted else {}),
            **({"announced": list(channel_state.announced)} if channel_state.announced else {}),
            **({"origin": channel_state.origin} if channel_state.origin else {}),
        }
        for name, channel_state in state.items()
    }
    return json.dumps(document)


def watch_sensor(
    cards: Sequence[TableCard],
    warehouse_names: names.WarehouseNames,
    policies: PolicySource,
    settings: Settings,
    environment: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Return the sensor `watch` for all tables.

    Args:
        cards: descriptions of the tables in the loaded definitions.
        warehouse_names: names of the warehouse in Dagster.
        policies: source of the current policies.
        settings: intervals and budgets.
        environment: environment variables with the addresses of the channels, or None for those of this process.

    Raises:
        InvalidOption: the address of an alert channel is invalid.
    """
    values = os.environ if environment is None else environment
    watch = Watch(cards, policies, settings, default_channels(values), values)

    @dg.sensor(
        name=warehouse_names.definition(names.WATCH_SENSOR),
        # Dagster requires the assets that a sensor may report on; this one requests no run.
        asset_selection=dg.AssetSelection.key_prefixes([warehouse_names.first]),
        minimum_interval_seconds=settings.watch_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    @partial(rename_resources, warehouse_names=warehouse_names)
    @resolve_annotations
    def watch_tables(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return watch.tick(context, warehouse)

    return watch_tables
