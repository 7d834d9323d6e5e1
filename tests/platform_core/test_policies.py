"""A policy file means what it says, inherits from general to particular, and errors name file and place."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from dredge.platform_core import names
from dredge.platform_core.policies import Policies, load_policies
from dredge.platform_core.policies.policy import BUILT_IN, PolicyFile
from dredge.platform_core.policies.policy_files import parse_policies, read_policies
from lsm_core.errors import InvalidOption
from tests.support.platform import append_table, commit, keyed_table, open_house

TEXT = """
defaults:
  idle_after: 20 d
tables:
  nyc.*: {level0_warn: 20, level0_critical: 40}
  nyc.first_seen: {level0_warn: 10, level0_critical: 20, paused: "storage move, since 2013-09-30"}
  nyc.first_*: {idle_min_files: 7, paused: "never seen: the exact name wins"}
"""


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policies.yaml"
    path.write_text(TEXT)
    return path


def test_the_exact_name_wins_over_globs_and_globs_over_defaults(policy_file: Path) -> None:
    policy = read_policies(policy_file).of("nyc.first_seen")
    assert policy.idle_after_ms == 20 * 24 * 60 * 60 * 1000
    assert (policy.level0_warn, policy.level0_critical, policy.idle_min_files) == (10, 20, 7)
    assert policy.paused == "storage move, since 2013-09-30"


def test_every_value_tells_where_it_comes_from(policy_file: Path) -> None:
    policies = read_policies(policy_file)
    policy = policies.of("nyc.planes")
    assert policy.origin("level0_warn") == "policies.yaml:5, nyc.*"
    assert policy.origin("idle_after_ms") == "policies.yaml:3, defaults"
    assert policy.origin("idle_min_runs") == BUILT_IN
    assert policies.of("other.t").level0_warn == 1_000


def test_false_ends_an_inherited_pause(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("defaults: {paused: everything rests}\ntables: {a.b: {paused: false}}")
    policies = read_policies(path)
    assert policies.of("a.c").paused == "everything rests"
    assert policies.of("a.b").paused is None


def test_a_pause_has_a_reason_and_a_date(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("tables:\n  a.b: {paused: {reason: storage move, since: 2013-09-30}}\n  a.c: {paused: {reason: x}}")
    policies = read_policies(path)
    assert policies.of("a.b").paused == "storage move, since 2013-09-30"
    assert policies.of("a.c").paused == "x"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tables: {a.b: {level0_warm: 3}}", "tables.a.b.level0_warm"),
        ("defaults: {idle_after: 20 moons}", "defaults.idle_after"),
        ("defaults: {level0_warn: 5, level0_critical: 4}", "above level0_critical"),
        ("defaults: {paused: true}", "needs a reason"),
        ("defaults: {paused: {since: 2013-09-30}}", "reason"),
        ("defaults: {paused: {reason: ' '}}", "needs a reason"),
        ("defaults: {paused: {reason: move, since: soon}}", "since"),
        ("defaults: {idle_min_runs: 1}", "idle_min_runs"),
        ("defaults: {slo: fast}", "defaults.slo (line 1)' cannot be 'fast'; accepted: keys with values"),
        (
            "tables:\n  a.b:\n    level0_warm: 3",
            r"tables.a.b.level0_warm (line 3)' cannot be 3; accepted: unknown here; did you mean 'level0_warn'?",
        ),
        ("defaults: {paused: {reson: move}}", "did you mean 'reason'?"),
        ("defaults: {retention: {snapshots: {retain_mni: 3}}}", "retention.snapshots.retain_mni (line 1)"),
        (
            "defaults: {retention: {orphans: {older_than: 1 h}}}",
            "orphans.older_than (line 1)' cannot be '1 h'; accepted: 1 h is below the deletion floor of 24 h",
        ),
        ("defaults: {retention: {snapshots: {older_than: 59 min}}}", "below the deletion floor of 1 h"),
        ("defaults: {retention: {changelogs: {older_than: 0}}}", "below the deletion floor of 1 h"),
        ("defaults: {retention: {tags: {older_than: 23 h}}}", "below the deletion floor of 24 h"),
        ("defaults: {retention: {partitions: {older_than: 23 h}}}", "below the deletion floor of 24 h"),
        ("defaults: {retention: {orphans: {max_share: 21}}}", "max_share"),
        (
            "defaults: {retention: {snapshots: {retain_min: 3, retain_max: 2}}}",
            "retain_min (3) is above retain_max (2)",
        ),
        (
            "defaults: {off_peak: {time_zone: Mars/Olympus, windows: [{from: '1:00', to: '2:00'}]}}",
            "unknown time zone 'Mars/Olympus'",
        ),
        (
            "defaults: {off_peak: {time_zone: ../../etc/passwd, windows: [{from: '1:00', to: '2:00'}]}}",
            "unknown time zone",
        ),
        ("defaults: {off_peak: {time_zone: UTC, windows: [{from: '2:00', to: '02:00'}]}}", "has no length"),
        ("defaults: {off_peak: {time_zone: UTC, windows: [{from: 25:00, to: 26:00}]}}", "from"),
        ("defaults: {off_peak: {time_zone: UTC, windows: [{from: '24:01', to: '1:00'}]}}", "from"),
        ("defaults: {off_peak: {time_zone: UTC, windows: []}}", "windows"),
        ("defaults: {checks: {level0_backlgo: off}}", "did you mean 'level0_backlog'?"),
        ("defaults: {approval: {compat: required}}", "did you mean 'compact'?"),
        ("defaults: {expectations: [{type: no_such}]}", "expectations.0.type"),
        ("tables: {a.b: {partitions: [{idle_after: 3 d}]}}", "partitions.0.older_than"),
        ("tables: {a.b: {partitions: [{older_than: 1 d}, {older_than: 24 h}]}}", "the same older_than"),
        ("budget: {bytes_an_hour: 0}", "budget.bytes_an_hour"),
        ("budget: {concurrent_tables: 0}", "budget.concurrent_tables"),
        ("- defaults", "the file"),
        ("\0", "YAML"),
        ("tables: {null: {}}", "tables"),
        (
            "defaults: {off_peak: {time_zone: Europe, windows: [{from: '1:00', to: '2:00'}]}}",
            "unknown time zone 'Europe'",
        ),
        ("a: &a [*a]", "deeper than 64 levels"),
        (
            "a: &a [1, 2, 3, 4, 5, 6, 7]\n"
            + "\n".join(f"{x}: &{x} [{', '.join([f'*{y}'] * 9)}]" for y, x in zip("abcde", "bcdef", strict=True)),
            "more than 200,000 values",
        ),
        ("defaults: [", "YAML"),
        ("just text", "p.yaml"),
    ],
)
def test_a_malformed_file_is_refused_naming_the_place(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(InvalidOption) as caught:
        read_policies(path)
    assert place in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tables:\n  db.pz: {paused: move}\n  db.pz: {level0_warn: 5}", "db.pz"),
        ("tables: {}\ndefaults: {}\ntables: {}", "tables"),
    ],
)
def test_what_is_there_twice_is_refused_so_that_no_pause_is_lost(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(InvalidOption, match=f"line 3, column .*'{key}' occurs twice"):
        read_policies(path)
    path.write_text("tables:\n  db.a: &quiet {paused: move}\n  db.b: {<<: *quiet, level0_warn: 5}")
    assert read_policies(path).of("db.b").paused == read_policies(path).of("db.a").paused == "move"


def test_names_that_fit_no_table_are_told_with_what_was_probably_meant(policy_file: Path) -> None:
    policies = read_policies(policy_file)
    assert policies.unmatched(["nyc.first_seen"]) == []
    assert policies.unmatched(["nyc.first_sen"]) == [
        "policies.yaml: 'nyc.first_seen' fits no table of the warehouse (did you mean 'nyc.first_sen'?)",
    ]
    assert [line.split("'")[1] for line in policies.unmatched([])] == ["nyc.*", "nyc.first_seen", "nyc.first_*"]
    assert load_policies({}).unmatched(["a.b"]) == []


def test_a_misspelt_table_is_told_when_definitions_load_and_on_ticks_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("tables: {shop.ordres: {paused: move}, shop.*: {idle_after: 1 d}}")
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    result = "p.yaml: 'shop.ordres' fits no table of the warehouse (did you mean 'shop.orders'?)"
    with caplog.at_level(logging.WARNING), open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        assert [record.getMessage() for record in caplog.records if "p.yaml" in record.getMessage()] == [result]
        assert house.lines(house.tick(names.CATALOG_SENSOR)) == ["1 tables, as loaded", result]
        assert len(house.tick(names.SORTED_RUN_SENSOR).run_requests) == 1
        keyed_table(tmp_path / "wh", "shop.ordres")
        assert result not in house.lines(house.tick(names.CATALOG_SENSOR))


def test_a_missing_file_is_refused_and_no_file_means_defaults(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="DREDGE_POLICIES"):
        read_policies(tmp_path / "none.yaml")
    with pytest.raises(InvalidOption, match="DREDGE_POLICIES"):
        read_policies(tmp_path)
    assert load_policies({}).of("a.b").level0_critical == 10_000


def test_the_file_has_a_json_schema_for_editors() -> None:
    schema = PolicyFile.model_json_schema()
    assert set(schema["properties"]) == {"defaults", "databases", "tables", "budget", "alerts"}
    assert "idle_after" in str(schema)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch {mark}']", "!!python/name:os.system", "!!python/module:os"]
)
def test_a_policy_file_runs_no_code(tmp_path: Path, tag: str) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "policies.yaml"
    path.write_text(f"defaults:\n  idle_after: {tag.format(mark=mark)}\n")
    with pytest.raises(InvalidOption, match=r"YAML .*python"):
        read_policies(path)
    assert not mark.exists()


def test_owners_groups_tags_and_lineage_are_declared(tmp_path: Path) -> None:
    root, policies = tmp_path / "wh", tmp_path / "policies.yaml"
    policies.write_text(
        """
defaults: {owners: ["team:shop"]}
tables:
  shop.orders: {group: sales, tags: {tier: gold}, fresh_within: 6 h, upstream: [raw/orders_csv], downstream: [reports/revenue, wh/shop/log]}
  shop.log: {owners: [ann@example.org], downstream: [reports/revenue]}
"""
    )
    keyed_table(root)
    append_table(root)
    with open_house(root, DREDGE_POLICIES=str(policies)) as house:
        specs = {spec.key.to_user_string(): spec for spec in house.defs.resolve_all_asset_specs()}
        graph = house.defs.resolve_asset_graph()
    data, layout, log = specs["wh/shop/orders"], specs["wh/shop/orders_layout"], specs["wh/shop/log"]
    assert (data.owners, data.group_name, data.tags["tier"]) == (["team:shop"], "sales", "gold")
    assert (layout.owners, layout.group_name, layout.tags["tier"]) == (["team:shop"], "sales", "gold")
    assert data.tags["dredge/table"] == "shop.orders", "what the platform says stays"
    assert (log.owners, log.group_name) == (["ann@example.org"], "shop")
    assert data.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=6))
    assert layout.freshness_policy is None, "what needs no work is fresh however long nothing was done"
    assert [dep.asset_key.to_user_string() for dep in data.deps] == ["raw/orders_csv"]
    assert [dep.asset_key for dep in layout.deps] == [data.key]
    assert [dep.asset_key for dep in log.deps] == [data.key], "a table of the warehouse is there already"
    assert graph.get(specs["reports/revenue"].key).parent_keys == {data.key, log.key}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tables: {shop.orders: {downstream: [wh/shop/orders_layout], group: sales}}", "p.yaml: downstream.*wh/shop/orders_layout"),
        ("tables: {shop.orders: {upstream: [wh/shop/log]}, shop.log: {upstream: [wh/shop/orders]}}", "p.yaml: lineage.*wh/shop/"),
        ("tables: {shop.orders: {upstream: [a/b], downstream: [a/b]}}", "p.yaml: lineage.*a/b"),
    ],
)  # fmt: skip
def test_lineage_that_cannot_be_is_told_and_stops_no_sensor(tmp_path: Path, text: str, told: str) -> None:
    place = tmp_path / "p.yaml"
    place.write_text(text)
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    append_table(tmp_path / "wh")
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        (line,) = house.lines(house.tick(names.CATALOG_SENSOR))[1:]
        assert re.search(told, line)
        assert line.endswith("all asset declarations of the file are ignored")
        assert len(house.tick(names.SORTED_RUN_SENSOR).run_requests) == 1
        groups = {spec.group_name for spec in house.defs.resolve_all_asset_specs()}
        assert "sales" not in groups


def test_a_database_that_the_warehouse_does_not_hold_is_told() -> None:
    policies = parse_policies("databases: {shopp: {idle_min_runs: 3}, shop: {idle_min_runs: 3}}", "p.yaml")
    assert policies.unmatched(["shop.orders"]) == [
        "p.yaml: 'shopp' fits no database of the warehouse (did you mean 'shop'?)"
    ]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("owners: [nobody]", "owners"),
        ("group: 'a b'", "group"),
        ("fresh_within: 1 min", "fresh_within"),
        ("tags: {tier: 'a b'}", "tags"),
        ("upstream: ['raw//orders']", "upstream"),
        ("downstream: ['']", "downstream"),
    ],
)
def test_a_declaration_that_dagster_could_not_hold_is_refused_by_place(tmp_path: Path, entry: str, place: str) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(f"tables: {{shop.orders: {{{entry}}}}}")
    with pytest.raises(InvalidOption, match=rf"policies.yaml: tables.shop.orders.{place}"):
        read_policies(path)


def test_limits_of_the_watch_inherit_one_by_one_and_a_pause_tells_since_when(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "defaults: {watch: {stalled_after: 6 h, tags: 7}, level0_emergency: 50000}\n"
        "tables: {a.b: {watch: {stalled_after: 2 d}, paused: {reason: move, since: 2024-05-30}}}"
    )
    policies = read_policies(path)
    general, exact = policies.of("a.c"), policies.of("a.b")
    assert (general.watch.stalled_after_ms, general.watch.tags, general.level0_emergency) == (6 * 3_600_000, 7, 50_000)
    assert (exact.watch.stalled_after_ms, exact.watch.tags, exact.watch.small_manifests) == (48 * 3_600_000, 7, 500)
    assert exact.paused_since_ms == 1_717_027_200_000 and general.paused_since_ms is None
    assert exact.origin("watch.stalled_after") == "p.yaml:2, a.b"
    path.write_text("defaults: {level0_critical: 10, level0_emergency: 9}")
    with pytest.raises(InvalidOption, match="above level0_emergency"):
        read_policies(path)
    path.write_text("defaults: {watch: {stalled_after: soon}}")
    with pytest.raises(InvalidOption, match="stalled_after"):
        read_policies(path)


def test_level_0_limits_that_were_not_said_give_way_to_those_that_were() -> None:
    text = """
defaults: {level0_critical: 50}
databases: {big: {level0_warn: 20000}}
tables:
  big.worst: {level0_emergency: 30}
"""
    policies = parse_policies(text, "p.yaml")
    limits = {
        name: (found.level0_warn, found.level0_critical, found.level0_emergency)
        for name in ("a.b", "big.c", "big.worst")
        for found in [policies.of(name)]
    }
    assert limits == {"a.b": (50, 50, 100_000), "big.c": (20_000, 20_000, 100_000), "big.worst": (30, 30, 30)}
    warn = policies.of("a.b").origins["level0_warn"]
    assert (str(warn), warn.why) == ("p.yaml:2, defaults", "level0_critical is 50, and 1,000 would be above it")
    with pytest.raises(
        InvalidOption, match=r"p.yaml: defaults \(line 1\).*level0_warn \(9\) is above level0_critical \(8\)"
    ):
        parse_policies("defaults: {level0_warn: 9, level0_critical: 8}", "p.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tables:\n\tdb.a: {paused: x}", r"line 2, column 1: .*'\\t'.*; tabs are no indentation"),
        ("tables: {db.a: {paused: x}", "line 1, column 27: "),
        ("a: &a {b: *a}", "nested deeper than 64 levels"),
        ("? {a: b}\n: c", "unhashable key"),
        ("- a", "the file"),
    ],
)
def test_what_is_no_policy_file_is_refused_in_one_line_that_says_where(text: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said) as caught:
        parse_policies(text, "p.yaml")
    assert "\n" not in str(caught.value) and "unicode string" not in str(caught.value)


def test_headings_below_which_nothing_stands_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfdefaults:\ndatabases:\n  shop:\ntables:\n  shop.a:\n  # idle_after: 9 d\nbudget:\n")
    assert read_policies(path).of("shop.a") == Policies().of("shop.a")
    path.write_text("tables:\n")
    assert read_policies(path).of("shop.a") == Policies().of("shop.a")
