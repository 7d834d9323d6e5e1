"""Advice: which preset fits a table, told from its options, its health and its newest commits, with what to change and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance import BucketHealth
from lsm_core.maintenance.action import size_text
from lsm_core.options.changing import check_change
from lsm_core.options.registry import REGISTRY, canonical, parse_value
from orchestration.policies.presets import PRESETS, PresetName

_HOUR_MS: Final = 3_600_000
_OFTEN: Final = 30
"""Commits an hour from which on writers should not wait for compactions."""
_SELDOM: Final = 2
_SMALL_BYTES: Final = 1 << 30
_LARGE_BYTES: Final = 1 << 40
_DV: Final = "deletion-vectors.enabled"
_MODIFIABLE: Final = "deletion-vectors.modifiable"


@dataclass(frozen=True)
class TableFacts:
    """What the advice is made from. ``options`` are those that the table sets; ``commits`` its newest snapshots, in any order."""

    name: str
    primary_keys: Sequence[str]
    options: Mapping[str, str]
    buckets: Sequence[BucketHealth]
    commits: Sequence[Snapshot]

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(bucket.total_bytes for bucket in self.buckets)

    @property
    def appends(self) -> list[Snapshot]:
        """The commits of writers."""
        return [one for one in self.commits if one.commit_kind is CommitKind.APPEND]

    @property
    def commits_an_hour(self) -> float:
        """How often writers commit; 0 where two commits do not tell."""
        times = [one.time_millis for one in self.appends]
        if len(times) < 2 or max(times) == min(times):
            return 0.0
        return (len(times) - 1) * _HOUR_MS / (max(times) - min(times))


@dataclass(frozen=True)
class OptionChange:
    """One option of the table: what it is (None: unset), what the preset wants and why, or why that cannot be (``refused``, else "")."""

    key: str
    now: str | None
    wanted: str
    why: str
    refused: str = ""


@dataclass(frozen=True)
class Advice:
    """The preset that fits, for which ``reasons``; the options to change, as a table and as ``statements`` of Spark SQL; the entry of the policy file."""

    table: str
    preset: PresetName
    reasons: Sequence[str]
    changes: Sequence[OptionChange]

    @property
    def entry(self) -> str:
        """What to write into the policy file."""
        return f'tables:\n  "{self.table}": {{preset: {self.preset}}}'

    @property
    def statements(self) -> list[str]:
        """The changes that the table takes, as Spark SQL."""
        possible = [one for one in self.changes if not one.refused]
        if not possible:
            return []
        pairs = ", ".join(f"'{one.key}' = '{one.wanted}'" for one in possible)
        name = ".".join(f"`{part.replace('`', '``')}`" for part in self.table.split(".", 1))
        first = [f"ALTER TABLE {name} SET TBLPROPERTIES ('{_MODIFIABLE}' = 'true')"]
        needs = any(one.key == _DV for one in possible)
        return [*(first if needs else []), f"ALTER TABLE {name} SET TBLPROPERTIES ({pairs})"]


def advise(facts: TableFacts) -> Advice:
    """Return the preset that fits the table best. Raises InvalidOption for an option of the table that says nothing possible."""
    preset, reasons = _preset_of(facts)
    own = canonical(facts.options)
    changes = []
    for key, chosen in PRESETS[preset].options.items():
        if key in own and parse_value(REGISTRY[key], own[key]) == parse_value(REGISTRY[key], chosen.value):
            continue
        if not facts.primary_keys and key == "target-file-size" and key in own:
            continue  # somebody thought about it
        changes.append(OptionChange(key, own.get(key), chosen.value, chosen.why, _refusal(facts, key, chosen.value)))
    return Advice(facts.name, preset, reasons, changes)


def _preset_of(facts: TableFacts) -> tuple[PresetName, list[str]]:
    own = canonical(facts.options)
    write_only = own.get("write-only", "false").lower() == "true"
    size, rate = facts.total_bytes, facts.commits_an_hour
    if not facts.primary_keys:
        told = ["it has no primary key: rows are appended, and never merged"]
        if own.get("clustering.columns"):
            return "large-z-ordered", [*told, f"it is to be sorted by {own['clustering.columns']} (clustering.columns)"]
        if size >= _LARGE_BYTES:
            return "large-z-ordered", [*told, f"it holds {size_text(size)}: readers need files that they can pass over"]
        if write_only:
            return "log-write-only", [
                *told,
                "its writers only write (write-only): nobody gathers small files but Dredge",
            ]
        return "log", [*told, "its writers gather their small files themselves (write-only is not set)"]
    told = [f"it has a primary key ({', '.join(facts.primary_keys)})"]
    if own.get(_DV, "false").lower() == "true":
        return "merge-on-write-gentle", [*told, f"its readers go by deletion vectors ({_DV})"]
    if own.get("full-compaction.delta-commits") == "1":
        return "copy-on-write", [
            *told,
            "every commit is followed by a full compaction (full-compaction.delta-commits = 1)",
        ]
    writers = {one.commit_user for one in facts.appends}
    many = f"{len(writers)} writers made its newest {len(facts.appends)} commits"
    if rate >= _OFTEN:
        often = f"its writers commit {rate:,.0f} times an hour: they should not wait for compactions"
        return "high-throughput-asynchronous", [*told, often]
    if _at_once(facts.appends):
        return "multi-writer", [*told, f"{many}, and took turns: they are at work at the same time"]
    if write_only:
        return "multi-writer", [*told, "its writers only write (write-only): nobody compacts but Dredge"]
    if rate <= _SELDOM and size <= _SMALL_BYTES:
        seldom = f"its writers commit {rate:.1g} times an hour" if rate else "its writers commit seldom"
        return "copy-on-write", [*told, f"{seldom} and it holds {size_text(size)}: to rewrite it each time is cheap"]
    worst = max((bucket.read_amplification for bucket in facts.buckets), default=0.0)
    merging = f"; readers merge {worst:.0f} sorted runs now" if worst > 1 else ""
    rated = f"its writers commit {rate:.1f} times an hour" if rate else "how often its writers commit is not known"
    return "merge-on-write-gentle", [*told, f"{rated}, and it holds {size_text(size)}{merging}"]


def _at_once(commits: Sequence[Snapshot]) -> bool:
    """Whether a writer commits again after another one did: jobs that follow each other, each a user of its own, do not."""
    users = [one.commit_user for one in sorted(commits, key=lambda one: one.id)]
    runs = [user for number, user in enumerate(users) if number == 0 or users[number - 1] != user]
    return len(runs) > len(set(runs))


def _refusal(facts: TableFacts, key: str, value: str) -> str:
    """Why the table does not take the option any more, "" when it does."""
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


__all__ = ["Advice", "OptionChange", "TableFacts", "advise"]
