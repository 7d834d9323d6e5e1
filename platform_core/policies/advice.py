"""Advice on the preset that fits a table, and on the trigger of its compactions. Pure.

The preset follows from the table's options, health and newest commits. The trigger follows from a replay of its newest
commits under several triggers (`lsm_core.maintenance.simulation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dredge.platform_core.policies.presets import PRESETS, PresetName
from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance import BucketHealth
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.simulation import AS_IT_IS
from lsm_core.options.table_options import REGISTRY, canonical, check_change, parse_value

_HOUR_MS: Final = 3_600_000
_LEAST_SPREAD_MS: Final = 60_000
"""Time between the oldest and the newest commit below which a rate would mean nothing, as after a first load."""
_OFTEN: Final = 30
"""Commits per hour at or above which writers should not wait for compactions."""
_SELDOM: Final = 2
_SMALL_BYTES: Final = 1 << 30
_LARGE_BYTES: Final = 1 << 40
_DV: Final = "deletion-vectors.enabled"
_ICEBERG: Final = "metadata.iceberg.storage"
_ICEBERG_LAG: Final = "1 h"
"""Proposed limit for the lag of Iceberg readers."""
_MODIFIABLE: Final = "deletion-vectors.modifiable"


@dataclass(frozen=True)
class AdviceFacts:
    """Facts about a table that the advice is based on.

    Attributes:
        name: full name of the table.
        primary_keys: primary key columns; empty for an append table.
        options: options that are set on the table.
        buckets: health of the table's buckets.
        commits: newest snapshots of the table, in any order.
    """

    name: str
    primary_keys: Sequence[str]
    options: Mapping[str, str]
    buckets: Sequence[BucketHealth]
    commits: Sequence[Snapshot]

    @property
    def total_bytes(self) -> int:
        """Total bytes of the data files."""
        return sum(bucket.total_bytes for bucket in self.buckets)

    @property
    def appends(self) -> list[Snapshot]:
        """Snapshots of kind APPEND, that is, commits of writers."""
        return [commit for commit in self.commits if commit.commit_kind is CommitKind.APPEND]

    @property
    def commits_an_hour(self) -> float | None:
        """Commits of writers per hour; 0 for fewer than two commits, None if they are all of one minute."""
        times = [commit.time_millis for commit in self.appends]
        if len(times) < 2:
            return 0.0
        if max(times) - min(times) < _LEAST_SPREAD_MS:
            return None
        return (len(times) - 1) * _HOUR_MS / (max(times) - min(times))


@dataclass(frozen=True)
class OptionChange:
    """Change of one table option that a preset recommends.

    Attributes:
        key: key of the option.
        now: current value, or None if the option is not set.
        wanted: value that the preset recommends.
        why: reason for the recommended value.
        refused: why the table cannot accept the change, or "".
    """

    key: str
    now: str | None
    wanted: str
    why: str
    refused: str = ""


@dataclass(frozen=True)
class Advice:
    """Recommended preset of a table.

    Attributes:
        table: full name of the table.
        preset: name of the preset.
        reasons: facts for which the preset was chosen.
        changes: changes of table options that the preset recommends.
        iceberg_lag: limit for the lag of Iceberg readers, as in the policy file; "" for tables without such readers.
    """

    table: str
    preset: PresetName
    reasons: Sequence[str]
    changes: Sequence[OptionChange]
    iceberg_lag: str = ""

    @property
    def entry(self) -> str:
        """YAML entry for the table in the policy file."""
        lag = f", iceberg_lag: {self.iceberg_lag}" if self.iceberg_lag else ""
        return f'tables:\n  "{self.table}": {{preset: {self.preset}{lag}}}'

    @property
    def statements(self) -> list[str]:
        """Spark SQL statements for the changes that the table accepts."""
        accepted = [change for change in self.changes if not change.refused]
        if not accepted:
            return []
        pairs = ", ".join(f"'{change.key}' = '{change.wanted}'" for change in accepted)
        name = _quoted(self.table)
        first = [f"ALTER TABLE {name} SET TBLPROPERTIES ('{_MODIFIABLE}' = 'true')"]
        needs = any(change.key == _DV for change in accepted)
        return [*(first if needs else []), f"ALTER TABLE {name} SET TBLPROPERTIES ({pairs})"]


def advise(facts: AdviceFacts) -> Advice:
    """Return the preset that fits the table best.

    Raises:
        InvalidOption: an option of the table has an invalid value.
    """
    preset, reasons = _preset_of(facts)
    own = canonical(facts.options)
    changes = []
    for key, chosen in PRESETS[preset].options.items():
        if key in own and parse_value(REGISTRY[key], own[key]) == parse_value(REGISTRY[key], chosen.value):
            continue
        if not facts.primary_keys and key == "target-file-size" and key in own:
            continue  # the size was set on purpose
        changes.append(OptionChange(key, own.get(key), chosen.value, chosen.why, _refusal(facts, key, chosen.value)))
    if not facts.primary_keys or own.get(_ICEBERG, "disabled").strip().lower() == "disabled":
        return Advice(facts.name, preset, reasons, changes)
    rewritten = size_text(sum(bucket.cost_full for bucket in facts.buckets))
    reason = (
        "it publishes Iceberg metadata, whose readers see new rows after a full compaction: iceberg_lag starts one "
        f"when rows are older than {_ICEBERG_LAG}; one now reads {rewritten}"
    )
    return Advice(facts.name, preset, [*reasons, reason], changes, _ICEBERG_LAG)


TRIGGER: Final = "num-sorted-run.compaction-trigger"
LEAST_FILES: Final = "compaction.min.file-num"
_TRIGGERS: Final = (2, 3, 5, 8, 12, 20)
_FILE_NUMBERS: Final = (3, 5, 10, 20, 50)
_CLOSE: Final = 0.9
"""Most bytes that a proposal may rewrite to be worth a change, as a share of those that the current options rewrite."""


@dataclass(frozen=True)
class ReplayProposal:
    """Proposal from a replay of the table's commits.

    Attributes:
        policy: name of the proposed policy of the replay, or "" to leave the table as it is.
        options: proposed table options.
        text: the proposal with its figures.
        statements: Spark SQL statements for the proposal.
    """

    policy: str
    options: Mapping[str, str]
    text: str
    statements: Sequence[str] = ()


def replay_candidates(facts: AdviceFacts) -> dict[str, dict[str, str]]:
    """Return the compaction policies to replay: the table's current options, then each candidate trigger.

    Args:
        facts: facts about the table.

    Returns:
        The table options that each policy changes, by the name of the policy.
    """
    keyed = bool(facts.primary_keys)
    key, numbers = (TRIGGER, _TRIGGERS) if keyed else (LEAST_FILES, _FILE_NUMBERS)
    own = canonical(facts.options)
    current = own.get(key) or REGISTRY[key].default
    stop = own.get("num-sorted-run.stop-trigger", "")
    most = int(stop) if keyed and stop.isdecimal() else max(numbers) + 1  # at the stop trigger, writers would wait
    others = [str(number) for number in numbers if str(number) != str(current) and number < most]
    return {AS_IT_IS: {}, **{f"{key} = {number}": {key: number} for number in others}}


def propose(
    facts: AdviceFacts,
    candidates: Mapping[str, Mapping[str, str]],
    rows: Sequence[Mapping[str, Any]],
    *,
    most_runs: int,
    source: str,
) -> ReplayProposal:
    """Propose the policy that rewrites the fewest bytes and stays within a limit of sorted runs.

    If no policy stays within the limit, the policy with the fewest sorted runs in its worst week is proposed. Otherwise
    the table is left as it is, unless its current options exceed the limit or the proposal rewrites at least a tenth
    less.

    Args:
        facts: facts about the table.
        candidates: table options of each replayed policy, by its name.
        rows: result of the replay, a mapping per policy; the policy `AS_IT_IS` has the current options.
        most_runs: most sorted runs (append tables: files) of a bucket, as mean of the worst week and as 95th
            percentile.
        source: name of the value that set the limit.
    """
    noun = "sorted runs" if facts.primary_keys else "files"
    current = next(row for row in rows if row["policy"] == AS_IT_IS)
    within = [row for row in rows if max(row["worst_week_runs"], row["p95_runs"]) <= most_runs]
    if within:
        best = min(within, key=lambda row: (row["bytes_rewritten"], row["worst_week_runs"], row["policy"] != AS_IT_IS))
    else:
        best = min(rows, key=lambda row: (row["worst_week_runs"], row["bytes_rewritten"], row["policy"] != AS_IT_IS))
    limit = f"limit {most_runs} {noun} ({source})"
    now = f"as it is: {_figures(current, noun)}"
    keeps = any(row is current for row in within)
    saves = best["bytes_rewritten"] <= _CLOSE * current["bytes_rewritten"]
    helps = best["worst_week_runs"] < current["worst_week_runs"] if not within else not keeps or saves
    if best is current or not helps:
        verdict = "keep it" if keeps else "no replayed trigger keeps the limit, nor comes clearly closer"
        return ReplayProposal("", {}, f"{verdict}; {now}; {limit}")
    options = dict(candidates[best["policy"]])
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    statement = f"ALTER TABLE {_quoted(facts.name)} SET TBLPROPERTIES ({pairs})"
    text = f"{best['policy']}: {_figures(best, noun)}; {now}; {limit}"
    return ReplayProposal(best["policy"], options, text, [statement])


def _figures(row: Mapping[str, Any], noun: str) -> str:
    return (
        f"{size_text(row['bytes_rewritten'])} rewritten, {row['mean_runs']:.1f} {noun} in the mean, "
        f"{row['worst_week_runs']:.1f} in the worst week"
    )


def _quoted(table: str) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in table.split(".", 1))


def _preset_of(facts: AdviceFacts) -> tuple[PresetName, list[str]]:
    own = canonical(facts.options)
    write_only = own.get("write-only", "false").lower() == "true"
    size, rate = facts.total_bytes, facts.commits_an_hour
    if not facts.primary_keys:
        reasons = ["it has no primary key: rows are appended and never merged"]
        if own.get("clustering.columns"):
            return "large-z-ordered", [
                *reasons,
                f"it is to be sorted by {own['clustering.columns']} (clustering.columns)",
            ]
        if size >= _LARGE_BYTES:
            return "large-z-ordered", [*reasons, f"it holds {size_text(size)}: readers need files that they can skip"]
        if write_only:
            return "log-write-only", [
                *reasons,
                "its writers do not compact (write-only = true): only Dredge merges small files",
            ]
        return "log", [*reasons, "its writers merge their small files themselves (write-only is not set)"]
    reasons = [f"it has a primary key ({', '.join(facts.primary_keys)})"]
    if own.get(_DV, "false").lower() == "true":
        return "merge-on-write-gentle", [*reasons, f"its readers use deletion vectors ({_DV} = true)"]
    if own.get("full-compaction.delta-commits") == "1":
        return "copy-on-write", [
            *reasons,
            "every commit is followed by a full compaction (full-compaction.delta-commits = 1)",
        ]
    writers = {commit.commit_user for commit in facts.appends}
    many = f"{len(writers)} writers made its newest {len(facts.appends)} commits"
    if rate is not None and rate >= _OFTEN:
        often = f"its writers commit {rate:,.0f} times an hour: they should not wait for compactions"
        return "high-throughput-asynchronous", [*reasons, often]
    if _writers_alternate(facts.appends):
        return "multi-writer", [*reasons, f"{many} in alternation: several writers commit at the same time"]
    if write_only:
        return "multi-writer", [*reasons, "its writers do not compact (write-only = true): only Dredge compacts"]
    if rate is not None and rate <= _SELDOM and size <= _SMALL_BYTES:
        seldom = f"its writers commit {rate:.1g} times an hour" if rate else "its writers commit seldom"
        return "copy-on-write", [
            *reasons,
            f"{seldom}, and it holds {size_text(size)}: rewriting it at each commit is cheap",
        ]
    worst = max((bucket.read_amplification for bucket in facts.buckets), default=0.0)
    merging = f"; readers merge {worst:.0f} sorted runs now" if worst > 1 else ""
    rated = f"its writers commit {rate:.1f} times an hour" if rate else "the commit rate of its writers is unknown"
    return "merge-on-write-gentle", [*reasons, f"{rated}, and it holds {size_text(size)}{merging}"]


def _writers_alternate(commits: Sequence[Snapshot]) -> bool:
    """Return whether a writer commits again after a commit of another writer.

    Jobs that run in sequence, each with its own user, do not alternate.
    """
    users = [commit.commit_user for commit in sorted(commits, key=lambda commit: commit.id)]
    runs = [user for number, user in enumerate(users) if number == 0 or users[number - 1] != user]
    return len(runs) > len(set(runs))


def _refusal(facts: AdviceFacts, key: str, value: str) -> str:
    """Return why the table cannot accept an option, or "". A table without commits accepts every option.

    Args:
        facts: facts about the table.
        key: name of the option.
        value: proposed value of the option.
    """
    if not facts.commits:
        return ""
    options = {**facts.options, _MODIFIABLE: "true"} if key == _DV else facts.options
    try:
        check_change(options, key, value, facts.name)
        if key == _DV:
            check_change(facts.options, _MODIFIABLE, "true", facts.name)
    except InvalidOption as error:
        return error.accepted or str(error)
    return ""
