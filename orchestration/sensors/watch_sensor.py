"""watch: the sensor that starts nothing, and tells people what no compaction mends or nobody looks after: once, until it changes."""

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
from lsm_core.json_reader import parse_json
from lsm_core.maintenance import CheckLimits
from lsm_core.maintenance.checks.layout_condition import Condition, judge_file_size, judge_small_files
from lsm_core.maintenance.debts import HistoryDebt, history_debt
from orchestration import names
from orchestration.blocked import failed_checks, suspensions
from orchestration.policies import Decision, Policy, PolicySource, Reason
from orchestration.policies.decisions import due_work
from orchestration.policies.watching import (
    Finding,
    Severity,
    Trouble,
    find_backlog,
    find_history,
    find_late_data,
    find_pause,
    find_small_files,
    find_stall,
)
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.alert_channels import Alert, Channel, channels_from, deliver
from orchestration.sensors.looks import OpenTable, open_table, wall_ms
from orchestration.sensors.table_sweep import Cursor
from orchestration.table_card import TableCard

DESCRIPTION: Final = (
    "Starts nothing. Looks for level-0 piles, maintenance that stands still, long pauses, suspended tables, failed blocking checks, histories that do not "
    "shrink and sensors that are silent; alerts by webhook and e-mail where DREDGE_ALERT_WEBHOOK or DREDGE_ALERT_EMAIL names one, all in one message, once until it changes."
)
_DEBT_LASTS_MS: Final = 60 * 60 * 1000
"""How long the history of a table that did not move is believed to owe the same."""
_EVENTS_A_TICK: Final = 200
_SKIP_TEXT: Final = 12_000
_MOST_TOLD: Final = 2_000
"""Findings that a channel is remembered to have been told of."""
_MOST_DIGESTS: Final = 20_000
"""And so many more by a digest of 8 characters."""
_WAITS_MS: Final = (15 * 60_000, 60 * 60_000, 4 * 60 * 60_000)
"""How long a channel that takes nothing is left alone, after its first failure, its second, and all later ones."""
_SILENT_INTERVALS: Final = 10
_SILENT_SECONDS: Final = 15 * 60
_OURS: Final = frozenset({names.SORTED_RUN_SENSOR, names.IDLE_SENSOR, names.CATALOG_SENSOR, names.FAILURE_SENSOR})


def _small_files(table: OpenTable, policy: Policy, now_ms: int) -> list[Finding]:
    """Return the alerts of an append table's files."""
    options, watch = table.store.options, policy.watch
    target = options.target_file_size(has_primary_key=False)
    condition = Condition(
        table.health.buckets, now_ms, keyed=False, file_bytes=target, trigger=options.compaction_trigger
    )
    limits = CheckLimits(pile_warn=watch.small_files, pile_critical=max(watch.small_files_critical, watch.small_files))
    return find_small_files(table.name, judge_small_files(condition, limits), judge_file_size(condition, limits))


@dataclass(frozen=True)
class ToldChannel:
    """What a channel knows: the keys of findings that it was told, how often in a row it failed since, and when to try again (epoch ms).

    ``more``: digests of those past the first 2,000, one after the other: that these are over is not told, but they are not told twice.
    """

    told: tuple[str, ...] = ()
    failures: int = 0
    again_ms: int = 0
    more: str = ""

    @staticmethod
    def of(keys: Sequence[str]) -> ToldChannel:
        """Return what a channel knows that was told all of ``keys``."""
        rest = keys[_MOST_TOLD : _MOST_TOLD + _MOST_DIGESTS]
        return ToldChannel(tuple(keys[:_MOST_TOLD]), more="".join(map(_digest, rest)))

    def unknown(self, keys: Iterable[str]) -> list[str]:
        """Return those of ``keys`` that it was not told."""
        told, size = set(self.told), len(_digest(""))
        more = {self.more[at : at + size] for at in range(0, len(self.more), size)}
        return [key for key in keys if key not in told and not (more and _digest(key) in more)]


@dataclass
class Watch:
    """What one process knows of the tables: findings of each by its last look, and what its history owed then.

    Nobody is alerted before all tables were looked at once: what was not looked at yet would seem to be over.
    """

    cards: Sequence[TableCard]
    policies: PolicySource
    settings: Settings
    channels: Sequence[Channel] = ()
    found: dict[str, list[Finding]] = field(default_factory=dict)
    _debts: dict[str, tuple[object, int, HistoryDebt]] = field(default_factory=dict)
    _shown: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Look at as many tables as the budget allows, at least one, and tell what is new."""
        state = _read(context.cursor)
        stopped = warehouse.replaying()
        if stopped is None:
            try:
                warehouse.time()
            except InvalidOption as error:
                stopped = str(error)
        if stopped is not None:
            return dg.SensorResult(skip_reason=stopped, cursor=context.cursor)
        cursor, policies = Cursor.read(context.cursor), self.policies.current()
        start = next((index for index, card in enumerate(self.cards) if card.name == cursor.next_table), 0)
        waiting = deque([*self.cards[start:], *self.cards[:start]])
        began = time.monotonic()
        visited = 0
        while waiting and (not visited or time.monotonic() - began < self.settings.sensor_budget_seconds):
            card = waiting.popleft()
            self.found[card.name] = self._look_at(warehouse, card, policies.of(card.name))
            visited += 1
        trouble = (
            [Finding("the policy file", Trouble.POLICIES, Severity.ERROR, policies.trouble)] if policies.trouble else []
        )
        of_tables = [one for card in self.cards for one in self.found.get(card.name, ())]
        findings = [*trouble, *self._of_dagster(context.instance, warehouse), *of_tables]
        lines = [f"{visited} tables looked at: {len(findings)} findings", *(one.line() for one in findings)]
        if waiting:
            lines.append(
                f"{len(waiting)} tables had no turn in this tick's {self.settings.sensor_budget_seconds:g} s: next is {waiting[0].name}"
            )
        if len(self.found) == len(self.cards):
            state = self._alert(warehouse, findings, state, lines)
        for line in lines:
            context.log.info(line)
        text = "\n".join(lines)
        return dg.SensorResult(
            skip_reason=text
            if len(text) <= _SKIP_TEXT
            else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)",
            cursor=_written(Cursor(cursor.tick + 1, waiting[0].name if waiting else None), state),
            asset_events=list(self._events(warehouse, findings)),
        )

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look_at(self, warehouse: WarehouseResource, card: TableCard, policy: Policy) -> list[Finding]:
        """What is to be told of one table, by its metadata."""
        table = open_table(warehouse, card, policy)
        if isinstance(table, Decision):
            if table.reason is not Reason.UNREADABLE:
                return []
            return [Finding(card.name, Trouble.UNREADABLE, Severity.ERROR, table.text)]
        now = table.store.clock.now_ms()
        states, append_only = table.health.partitions, table.facts.append_only
        try:
            found = [
                *(_small_files(table, policy, now) if append_only else find_backlog(table.name, states, policy)),
                *find_stall(table.name, due_work(table.facts, table.policy_of, table.now), policy, now),
                *find_pause(table.name, policy, now),
                *find_late_data(table.name, states, policy),
            ]
            return [*found, *find_history(table.name, self._debt(table, now), policy, now)]
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            return [Finding(card.name, Trouble.UNREADABLE, Severity.ERROR, f"{type(error).__name__}: {error}")]

    def _debt(self, table: OpenTable, now_ms: int) -> HistoryDebt:
        moved = (table.health.snapshot, table.health.commit)
        known = self._debts.get(table.name)
        if known is not None and known[0] == moved and 0 <= now_ms - known[1] < _DEBT_LASTS_MS:
            return known[2]
        debt = history_debt(table.store, grace_ms=table.policy.watch.overdue_after_ms)
        self._debts[table.name] = (moved, now_ms, debt)
        return debt

    def _of_dagster(self, instance: dg.DagsterInstance, warehouse: WarehouseResource) -> Iterator[Finding]:
        """What Dagster itself knows: suspended tables, failed blocking checks, sensors that do not tick."""
        for table, suspended in sorted(suspensions(instance).items()):
            yield Finding(table, Trouble.SUSPENDED, Severity.ERROR, suspended.text())
        layouts = {card.name: names.layout_key(warehouse.path, card.name) for card in self.cards}
        for table, text in sorted(failed_checks(instance, layouts).items()):
            yield Finding(
                table,
                Trouble.BLOCKED,
                Severity.ERROR,
                f"{text}; nothing is started or expired there until it passes again",
            )
        now = wall_ms() / 1000
        for state in instance.all_instigator_state():
            ticked = getattr(state.instigator_data, "last_tick_timestamp", None)
            if state.name not in _OURS or not state.is_running or ticked is None:
                continue
            limit = max(_SILENT_INTERVALS * (getattr(state.instigator_data, "min_interval", 0) or 0), _SILENT_SECONDS)
            if now - ticked >= limit:
                text = f"its last tick was at {utc_text(int(ticked * 1000))} UTC, more than {limit // 60:.0f} min ago"
                yield Finding(f"sensor {state.name}", Trouble.SENSOR, Severity.ERROR, text)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _events(self, warehouse: WarehouseResource, findings: Sequence[Finding]) -> Iterator[dg.AssetObservation]:
        """An observation of every layout whose findings are others than this process showed last: a search for the table leads to them."""
        by_table: dict[str, list[Finding]] = {}
        for finding in findings:
            by_table.setdefault(finding.subject, []).append(finding)
        changed = 0
        for card in self.cards:
            mine = by_table.get(card.name, [])
            keys = tuple(finding.key for finding in mine)
            if self._shown.get(card.name, ()) == keys or changed >= _EVENTS_A_TICK:
                continue
            self._shown[card.name] = keys
            changed += 1
            said = "; ".join(f"{one.trouble}: {one.text}" for one in mine) or "nothing any more"
            yield dg.AssetObservation(
                names.layout_key(warehouse.path, card.name),
                description=said,
                metadata={"watch": dg.MetadataValue.text(said), "findings": dg.MetadataValue.int(len(mine))},
            )

    def _alert(
        self,
        warehouse: WarehouseResource,
        findings: Sequence[Finding],
        state: Mapping[str, ToldChannel],
        lines: list[str],
    ) -> dict[str, ToldChannel]:
        """Tell each channel once what it does not know; returns what each knows then, and adds to ``lines`` what was sent or not."""
        bad = {one.key: one for one in findings if one.severity is not Severity.INFO}
        now = wall_ms()
        after: dict[str, ToldChannel] = {}
        for channel in self.channels:
            known = state.get(channel.name, ToldChannel())
            new = [bad[key].line() for key in known.unknown(bad)]
            over = [key for key in known.told if key not in bad]
            if not new and not over:
                after[channel.name] = known
                continue
            if now < known.again_ms:
                after[channel.name] = known
                lines.append(
                    f"{channel.name}: {len(new) + len(over)} alerts wait until {utc_text(known.again_ms)} UTC: it failed {known.failures} times"
                )
                continue
            why = deliver(channel, Alert(names.warehouse_name(warehouse.path), new, over, len(bad)))
            if why is None:
                after[channel.name] = ToldChannel.of(list(bad))
                lines.append(f"{channel.name}: told {len(new)} new, {len(over)} over")
            else:
                wait = _WAITS_MS[min(known.failures, len(_WAITS_MS) - 1)]
                after[channel.name] = replace(known, failures=known.failures + 1, again_ms=now + wait)
                lines.append(f"{channel.name}: not told: {why}; tried again in {wait // 60_000} min")
        return after


def _digest(key: str) -> str:
    return hashlib.blake2s(key.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _read(text: str | None) -> dict[str, ToldChannel]:
    """What the channels were told, by their names; a cursor that cannot be read tells everything once more."""
    try:
        channels = parse_json(text or "{}").get("channels", {})
        return {
            str(name): ToldChannel(
                tuple(map(str, one["told"])), int(one["failures"]), int(one["again_ms"]), str(one.get("more", ""))
            )
            for name, one in channels.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _written(cursor: Cursor, state: Mapping[str, ToldChannel]) -> str:
    kept: dict[str, Any] = parse_json(cursor.write())
    kept["channels"] = {
        name: {"told": list(one.told), "failures": one.failures, "again_ms": one.again_ms, "more": one.more}
        for name, one in state.items()
    }
    return json.dumps(kept)


def watch_sensor(
    cards: Sequence[TableCard], policies: PolicySource, settings: Settings, environment: Mapping[str, str] | None = None
) -> dg.SensorDefinition:
    """Return the sensor over all tables. Raises InvalidOption for an address of an alert channel that cannot be one."""
    watch = Watch(cards, policies, settings, channels_from(environment))

    @dg.sensor(
        name=names.WATCH_SENSOR,
        # Dagster wants to know what a sensor may start or report on; it requests no run.
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=settings.watch_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def look_for_trouble(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return watch.tick(context, warehouse)

    return look_for_trouble


__all__ = ["Watch", "watch_sensor"]
