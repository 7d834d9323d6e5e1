"""What holds for a table is what the nearest entry of the file says, value by value, whatever the file looks like."""

from __future__ import annotations

import datetime
import fnmatch
from dataclasses import replace
from typing import Any, get_args

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dredge.platform_core.policies import Policy
from dredge.platform_core.policies.partition_age import partition_age_ms
from dredge.platform_core.policies.policy import DAY_MS
from dredge.platform_core.policies.policy_files import parse_policies
from dredge.platform_core.policies.presets import PRESETS, PresetName
from lsm_core.options import TableOptions
from lsm_core.options.keys import Effect
from lsm_core.options.table_options import REGISTRY, parse_value
from tests.support.samples import examples

_TABLES = ("shop.orders", "shop.log", "hr.people")
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "idle_min_runs": st.integers(2, 9),
    "idle_min_files": st.integers(2, 9),
    "group": st.sampled_from(["a", "b"]),
    "retention": st.fixed_dictionaries(
        {}, optional={"snapshots": st.fixed_dictionaries({}, optional={"retain_min": st.integers(1, 9), "older_than": st.integers(1, 9).map(lambda n: f"{n} h")})}
    ),
    "checks": st.dictionaries(st.sampled_from(["merged_view_unchanged", "level0_backlog"]), st.sampled_from(["error", "warn", "off", False])),
    "paused": st.sampled_from(["move", False]),
}  # fmt: skip
_ENTRIES = st.fixed_dictionaries({}, optional=_VALUES)
_FILES = st.fixed_dictionaries(
    {},
    optional={
        "defaults": _ENTRIES,
        "databases": st.dictionaries(st.sampled_from(["shop", "hr"]), _ENTRIES),
        "tables": st.dictionaries(st.sampled_from(["*", "shop.*", "*.log", "shop.o?ders", *_TABLES]), _ENTRIES, max_size=6),
    },
)  # fmt: skip


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    """The values of an entry by the dotted path that leads to each."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if not isinstance(value, dict):
            found[key] = value
            continue
        for inner, more in value.items():
            leaves = more.items() if isinstance(more, dict) else [("", more)]
            found |= {".".join(filter(None, (key, inner, last))): leaf for last, leaf in leaves}
    return found


def _held(policy: Policy, path: str) -> Any:
    first, *rest = path.split(".")
    value: Any = getattr(policy, first)
    for step in rest:
        value = value.get("older_than_ms" if step == "older_than" else step, {})
    return value


def _meant(path: str, value: Any) -> Any:
    if path.endswith("older_than"):
        return int(value.split()[0]) * 3_600_000
    return {"paused": value or None}.get(path, "off" if value is False else value)


@settings(max_examples=examples(150), deadline=None)
@given(_FILES, st.sampled_from(_TABLES))
def test_the_nearest_entry_that_says_something_is_what_holds(file: dict[str, Any], table: str) -> None:
    policies = parse_policies(yaml.safe_dump(file, sort_keys=False), "p.yaml")
    tables = file.get("tables", {})
    layers = [("defaults", file.get("defaults", {}))]
    database = table.split(".")[0]
    layers += [(f"database {database}", file.get("databases", {}).get(database, {}))]
    layers += [(name, entry) for name, entry in tables.items() if name != table and fnmatch.fnmatchcase(table, name)]
    layers += [(table, tables.get(table, {}))]
    expected: dict[str, tuple[str, Any]] = {}
    for name, entry in layers:
        expected |= {path: (name, value) for path, value in _told(entry).items()}
    policy = policies.of(table)
    for path, (name, value) in expected.items():
        assert _held(policy, path) == _meant(path, value), path
        assert policy.origin(path).endswith(f", {name}"), path
    assert set(policy.origins) == set(expected)
    untouched = Policy()
    for name in ("idle_min_runs", "idle_min_files", "group", "paused"):
        if name not in expected:
            assert getattr(policy, name) == getattr(untouched, name)


def test_every_value_names_the_line_it_was_written_on() -> None:
    text = """\
defaults:
  off_peak: {time_zone: UTC, windows: [{from: 22:00, to: 6:00}]}
databases:
  shop:
    level0_warn: 9
tables:
  shop.*: &quiet
    retention:
      snapshots: {retain_min: 5,
                  older_than: 2 h}
  shop.orders:
    <<: *quiet
    approval:
      orphans: required
    partitions:
      - older_than: 30 d
        idle_after: 1 d
"""
    policy = parse_policies(text, "p.yaml").of("shop.orders")
    assert {name: policy.origin(name) for name in policy.origins} == {
        "off_peak": "p.yaml:2, defaults",
        "level0_warn": "p.yaml:5, database shop",
        "retention.snapshots.retain_min": "p.yaml:9, shop.orders",
        "retention.snapshots.older_than": "p.yaml:10, shop.orders",
        "approval.orphans": "p.yaml:14, shop.orders",
    }
    assert policy.at_age(31 * DAY_MS).origin("idle_after_ms") == "p.yaml:17, shop.orders, older than 30 d"
    assert policy.needs_approval("orphans")
    assert not policy.needs_approval("compact")


def test_of_rules_for_old_partitions_the_oldest_that_fits_counts_most() -> None:
    text = """
tables:
  shop.log:
    idle_after: 9 d
    paused: move
    partitions:
      - {older_than: 365 d, idle_min_files: 9, paused: false}
      - {older_than: 30 d, idle_min_files: 3, idle_after: 1 d}
"""
    policy = parse_policies(text, "p.yaml").of("shop.log")
    young, old, ancient = (policy.at_age(days * DAY_MS) for days in (29, 30, 400))
    assert policy.at_age(None) is policy
    assert (young.idle_min_files, young.idle_after_ms, young.paused) == (5, 9 * DAY_MS, "move")
    assert (old.idle_min_files, old.idle_after_ms, old.paused) == (3, DAY_MS, "move")
    assert (ancient.idle_min_files, ancient.idle_after_ms, ancient.paused) == (9, DAY_MS, None)


def test_the_age_of_a_partition_is_told_by_its_values_or_by_its_newest_file() -> None:
    now = 1_704_067_200_000  # 2024-01-01
    day = now - 5 * DAY_MS
    plain = TableOptions({})
    assert partition_age_ms({"dt": "2023-12-30"}, plain, day, now) == 2 * DAY_MS
    assert partition_age_ms({"dt": datetime.date(2023, 12, 30)}, plain, day, now) == 2 * DAY_MS
    assert partition_age_ms({"region": "north"}, plain, day, now) == 5 * DAY_MS
    assert partition_age_ms({"region": None}, plain, 0, now) is None
    formed = TableOptions({"partition.timestamp-pattern": "$dt $h", "partition.timestamp-formatter": "yyyyMMdd HH"})
    assert partition_age_ms({"dt": "20231231", "h": "12"}, formed, 0, now) == DAY_MS // 2


def test_a_preset_counts_as_if_it_were_written_where_it_is_chosen() -> None:
    text = """
defaults: {idle_after: 9 d, idle_min_files: 7}
tables:
  shop.*: {preset: log-write-only}
  shop.orders:
    preset: copy-on-write
    level0_critical: 9
"""
    policies = parse_policies(text, "p.yaml")
    log, orders = policies.of("shop.log"), policies.of("shop.orders")
    assert (log.preset, log.idle_after_ms, log.idle_min_files) == ("log-write-only", DAY_MS // 4, 5)
    assert log.origin("idle_after_ms") == "preset log-write-only, p.yaml:4, shop.*"
    assert log.origins["idle_after"].why
    assert (orders.preset, orders.idle_after_ms, orders.level0_warn, orders.level0_critical) == (
        "copy-on-write",
        DAY_MS,
        2,
        9,
    )
    assert orders.idle_min_files == 5, "of the glob's preset"
    assert orders.retention == {"snapshots": {"retain_max": 50}}


def test_every_preset_says_only_what_a_file_could_say_and_options_that_tables_take() -> None:
    assert set(PRESETS) == set(get_args(PresetName))
    for name, preset in PRESETS.items():
        entry: dict[str, Any] = {}
        for path, chosen in preset.values.items():
            inner = entry
            for step in path[:-1]:
                inner = inner.setdefault(step, {})
            inner[path[-1]] = chosen.value
            assert chosen.why
        spelled = parse_policies(yaml.safe_dump({"defaults": entry}), "p.yaml").of("a.b")
        assert replace(
            parse_policies(f"defaults: {{preset: {name}}}", "p.yaml").of("a.b"), preset="", origins={}
        ) == replace(spelled, origins={})
        for key, chosen in preset.options.items():
            assert REGISTRY[key].effect is Effect.ACTED_ON
            parse_value(REGISTRY[key], chosen.value)
            assert chosen.why
