"""`dredge policy` and `dredge advise` say what holds and where it is written, and what a table's design should be, with reasons."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from jsonschema import Draft202012Validator

from dredge.orchestration.verbs.policies import explain_values, schema_text
from dredge.platform_core.policies.advice import AdviceFacts, advise, propose, replay_candidates
from dredge.platform_core.policies.policy_files import parse_policies
from dredge.platform_core.policies.presets import PRESETS
from lsm_core import Catalog
from lsm_core.cli.app import run
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.options.table_options import check_change
from lsm_core.sql.commands import Session, execute_command
from lsm_core.sql.parsing import parse_statement
from tests.support.platform import append_table, bucket_health, commit, keyed_table

_ROOT = Path(__file__).resolve().parents[2]
_HOUR_MS = 3_600_000


@pytest.fixture
def dredge(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command with the verbs that this checkout declares, whichever were installed; exit code and what was printed."""
    declared = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [EntryPoint(name, value, group) for name, value in declared.get(group, {}).items()],
    )
    monkeypatch.delenv("DREDGE_POLICIES", raising=False)

    def call(*words: str) -> tuple[int, str]:
        code = run(words)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def test_explain_names_file_and_line_of_every_value(tmp_path: Path, dredge: Callable[..., tuple[int, str]]) -> None:
    place = tmp_path / "p.yaml"
    place.write_text(
        """\
defaults: {idle_after: 9 d}
tables:
  shop.*:
    preset: log
    off_peak: {time_zone: UTC, windows: [{from: 22:00, to: 6:00}]}
    checks: {level0_backlog: off}
  shop.log:
    retention: {snapshots: {older_than: 2 h}}
    partitions: [{older_than: 30 d, idle_after: 1 d}]
budget: {concurrent_tables: 3}
"""
    )
    code, printed = dredge("policy", "explain", "shop.log", "--policies", str(place), "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(printed)}
    assert {
        name: (row["text"], row["origin"]) for name, row in rows.items() if row["origin"] != "built-in default"
    } == {
        "preset": ("log", "p.yaml:4, shop.*"),
        "idle_after": ("7 d", "preset log, p.yaml:4, shop.*"),
        "idle_min_files": ("10", "preset log, p.yaml:4, shop.*"),
        "off_peak": ("22:00-06:00 (UTC)", "p.yaml:5, shop.*"),
        "checks.level0_backlog": ("off", "p.yaml:6, shop.*"),
        "retention.snapshots.older_than": ("2 h", "p.yaml:8, shop.log"),
        "partitions older than 30 d: idle_after": ("1 d", "p.yaml:9, shop.log, older than 30 d"),
        "budget.concurrent_tables": ("3", "p.yaml:10, the whole warehouse"),
    }
    assert rows["idle_after"]["why"] == "late rows still arrive for some days; over p.yaml:1, defaults"
    code, printed = dredge("policy", "explain", "shop.log", "--policies", str(place))
    assert code == 0 and "p.yaml:8, shop.log" in printed
    assert {row["origin"] for row in explain_values(parse_policies("", ""), "a.b")} == {"built-in default"}
    assert dredge("policy", "explain", "log", "--policies", str(place))[0] == 1


def test_check_says_what_is_wrong_and_where(tmp_path: Path, dredge: Callable[..., tuple[int, str]]) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("tables:\n  shop.log: {preset: lok}\n")
    code, printed = dredge("policy", "check", str(place))
    assert code == 1
    assert printed.count("\n") == 1
    assert "p.yaml: tables.shop.log.preset (line 2)' cannot be 'lok'" in printed
    place.write_text("tables:\n  shop.log: {preset: log}\n")
    assert dredge("policy", "check", str(place)) == (0, f"{place}: valid: defaults, 0 databases, 1 tables and globs\n")
    assert dredge("policy", "check", str(tmp_path / "none.yaml"))[0] == 1


def test_the_schema_is_published(dredge: Callable[..., tuple[int, str]]) -> None:
    assert dredge("policy", "schema") == (0, schema_text())
    assert (_ROOT / "docs" / "policies.schema.json").read_text("utf-8") == schema_text()
    entry = json.loads(schema_text())["$defs"]["PolicyEntry"]["properties"]
    assert all("description" in value for value in entry.values())
    assert "compact" in entry["approval"]["propertyNames"]["enum"]
    assert entry["preset"]["anyOf"][0]["enum"] == list(PRESETS)
    validator = Draft202012Validator(json.loads(schema_text()))
    for page in (_ROOT / "assets" / "demo" / "policies.yaml", _ROOT / "docs" / "platform.md"):
        text = page.read_text("utf-8")
        text = (
            text
            if page.suffix == ".yaml"
            else text.split("```yaml\ndefaults:", 1)[1].split("```", 1)[0].join(["defaults:", ""])
        )
        parse_policies(text, page.name)
        validator.validate(json.loads(json.dumps(yaml.safe_load(text), default=str)))
    for wrong in (
        {"table": {}},
        {"tables": {"a.b": {"preset": "lok"}}},
        {"defaults": {"approval": {"compat": "none"}}},
    ):
        assert not validator.is_valid(wrong)


def test_status_says_that_the_policy_file_is_broken(
    tmp_path: Path, dredge: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed_table(tmp_path / "wh")
    place = tmp_path / "p.yaml"
    place.write_text("defaults: {idle_aftr: 1 d}")
    monkeypatch.setenv("DREDGE_POLICIES", str(place))
    code, printed = dredge("status", "-w", str(tmp_path / "wh"))
    assert code == 0
    assert "warning: policies: option 'p.yaml: defaults.idle_aftr (line 1)' cannot be '1 d'" in printed
    place.write_text("defaults: {idle_after: 1 d}")
    assert "policies" not in dredge("status", "-w", str(tmp_path / "wh"))[1]


def test_advise_proposes_a_preset_with_reasons_and_ddl(tmp_path: Path, dredge: Callable[..., tuple[int, str]]) -> None:
    root = str(tmp_path / "wh")
    commit(append_table(tmp_path / "wh"), 1)
    code, printed = dredge("advise", "-w", root, "shop.log")
    assert code == 0
    assert "shop.log: preset log-write-only" in printed
    assert '"shop.log": {preset: log-write-only}' in printed
    assert "its options already match the preset" in printed
    keyed_table(tmp_path / "wh", **{"write-only": "false"})
    code, printed = dredge("advise", "-w", root, "shop.orders", "--json")
    found = json.loads(printed)
    assert found["preset"] == "copy-on-write"
    assert found["statements"] == [
        "ALTER TABLE `shop`.`orders` SET TBLPROPERTIES ('full-compaction.delta-commits' = '1')"
    ]
    assert dredge("sql", f"{found['statements'][0]};", "-w", root)[0] == 0
    assert json.loads(dredge("advise", "-w", root, "shop.orders", "--json")[1])["statements"] == []
    assert dredge("advise", "-w", root, "shop.none")[0] == 1


def test_advise_replays_the_commits_and_proposes_a_trigger(
    tmp_path: Path, dredge: Callable[..., tuple[int, str]]
) -> None:
    root, policies = str(tmp_path / "wh"), tmp_path / "p.yaml"
    table = keyed_table(tmp_path / "wh", partitioned=False)
    for _ in range(4):
        commit(table, rows=10)
    found = json.loads(dredge("advise", "-w", root, "shop.orders", "--json")[1])
    assert found["proposal"] is None and "4 commits of writers, and a replay needs 5" in found["no_replay"]
    for _ in range(20):
        commit(table, rows=10)
    policies.write_text("defaults: {slo: {sorted_runs_p95: 2}}")
    code, printed = dredge("advise", "-w", root, "shop.orders", "--policies", str(policies))
    assert code == 0 and "num-sorted-run.compaction-trigger = 12" in printed
    assert "replay of its newest 24 commits: num-sorted-run.compaction-trigger = 2: " in printed
    assert "limit 2 sorted runs (slo.sorted_runs_p95)" in printed
    statement = "ALTER TABLE `shop`.`orders` SET TBLPROPERTIES ('num-sorted-run.compaction-trigger' = '2')"
    assert f"{statement};" in printed
    assert dredge("sql", f"{statement};", "-w", root)[0] == 0
    found = json.loads(dredge("advise", "-w", root, "shop.orders", "--policies", str(policies), "--json")[1])
    assert found["proposal"]["policy"] == "" and "as it is: " in found["proposal"]["text"]


def replayed(policy: str, rewritten: int, worst: float) -> dict[str, Any]:
    """One row of a replay."""
    return {
        "policy": policy,
        "bytes_rewritten": rewritten,
        "mean_runs": worst / 2,
        "worst_week_runs": worst,
        "p95_runs": 3,
    }


@pytest.mark.parametrize(
    ("rows", "policy", "words"),
    [
        ([("as it is", 100, 4.0), ("a", 50, 7.9), ("b", 20, 8.1)], "a", "limit 8 sorted runs"),
        ([("as it is", 100, 4.0), ("a", 95, 7.9)], "", "keep it"),
        ([("as it is", 100, 9.0), ("a", 500, 7.0)], "a", "9.0 in the worst week"),
        ([("as it is", 100, 9.0), ("a", 500, 8.5)], "a", "8.5 in the worst week"),
        ([("as it is", 100, 9.0), ("a", 10, 9.5)], "", "no replayed trigger keeps the limit"),
        ([("as it is", 0, 1.0), ("a", 0, 1.0)], "", "keep it"),
    ],
)  # fmt: skip
def test_the_cheapest_trigger_whose_worst_week_keeps_the_limit_is_proposed(
    rows: list[tuple[str, int, float]], policy: str, words: str
) -> None:
    candidates = {"as it is": {}, "a": {"num-sorted-run.compaction-trigger": "8"}, "b": {"x": "y"}}
    found = propose(facts(), candidates, [replayed(*row) for row in rows], most_runs=8, source="s")
    assert (found.policy, dict(found.options)) == (policy, candidates[policy] if policy else {})
    assert words in found.text and bool(found.statements) == bool(policy)
    again = propose(facts(), candidates, [replayed(*row) for row in reversed(rows)], most_runs=8, source="s")
    assert again == found


def test_candidates_leave_out_the_current_trigger_and_those_at_which_writers_wait() -> None:
    triggers = [*replay_candidates(facts())]
    assert triggers == ["as it is", *(f"num-sorted-run.compaction-trigger = {n}" for n in (2, 3, 8, 12, 20))]
    assert len(replay_candidates(facts({"num-sorted-run.stop-trigger": "8"}))) == 3
    assert "compaction.min.file-num = 3" in replay_candidates(facts(keys=False))


def facts(
    options: dict[str, str] | None = None,
    *,
    keys: bool = True,
    size: int = 1 << 20,
    users: str = "a",
    minutes: int = 600,
) -> AdviceFacts:
    """A table of one bucket whose writers (a letter a commit) commit every so many minutes."""
    commits = [
        Snapshot(n, 0, "", "", user, n, CommitKind.APPEND, n * minutes * 60_000) for n, user in enumerate(users, 1)
    ]
    buckets = [bucket_health(bytes_per_level={5: size})]
    return AdviceFacts("shop.t", ["id"] if keys else [], options or {}, buckets, commits)


@pytest.mark.parametrize(
    ("given", "preset", "words"),
    [
        (facts(keys=False), "log", "write-only is not set"),
        (facts({"write-only": "true"}, keys=False), "log-write-only", "only Dredge merges small files"),
        (facts({"write.compaction-skip": "true"}, keys=False), "log-write-only", "only Dredge merges small files"),
        (facts(keys=False, size=2 << 40), "large-z-ordered", "2.0 TiB"),
        (facts({"sink.clustering.by-columns": "a,b"}, keys=False), "large-z-ordered", "a,b"),
        (facts({"deletion-vectors.enabled": "true"}), "merge-on-write-gentle", "deletion vectors"),
        (facts({"full-compaction.delta-commits": "1"}, users="aaaa", minutes=1), "copy-on-write", "full compaction"),
        (facts(users="aaaa", minutes=1), "high-throughput-asynchronous", "60 times an hour"),
        (facts(users="abab"), "multi-writer", "2 writers made its newest 4 commits"),
        (facts(users="abcd"), "copy-on-write", "is cheap"),
        (facts({"write-only": "true"}), "multi-writer", "only Dredge compacts"),
        (facts(users="aa", size=2 << 30), "merge-on-write-gentle", "2.0 GiB"),
        (facts(users="aaa", minutes=10), "merge-on-write-gentle", "6.0 times an hour"),
        (facts(users=""), "copy-on-write", "seldom"),
        (facts(users="aaaaaa", minutes=0), "merge-on-write-gentle", "the commit rate of its writers is unknown"),
    ],
)  # fmt: skip
def test_the_preset_follows_from_options_size_and_commits(
    given: AdviceFacts, preset: str, words: str, tmp_path: Path
) -> None:
    found = advise(given)
    assert found.preset == preset
    assert words in "; ".join(found.reasons)
    assert parse_policies(found.entry, "p.yaml").of("shop.t").preset == preset
    for change in found.changes:
        assert change.why
        assert change.refused or change.wanted != given.options.get(change.key)
    possible = {change.key: change.wanted for change in found.changes if not change.refused}
    options: dict[str, Any] = dict(given.options)
    if "deletion-vectors.enabled" in possible:
        assert found.statements[0].endswith("('deletion-vectors.modifiable' = 'true')")
        options["deletion-vectors.modifiable"] = "true"
    for key, value in possible.items():
        check_change(options, key, value, "shop.t")
        assert f"'{key}' = '{value}'" in found.statements[-1]
    assert bool(possible) == bool(found.statements)
    catalog = Catalog(tmp_path)
    catalog.create_database("shop")
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.int64())])
    keys = given.primary_keys
    made = catalog.create_table(
        "shop.t", fields, primary_keys=keys, options={**({"bucket": "1"} if keys else {}), **given.options}
    )
    made.write(pa.table({"id": [1], "a": [1], "b": [1]}))
    for statement in found.statements:
        execute_command(parse_statement(statement), Session(catalog))
    assert {key: catalog.table("shop.t").options.get(key) for key in possible} == possible


def test_of_two_globs_that_fit_it_is_said_which_one_counts() -> None:
    text = """
defaults: {level0_warn: 3}
tables:
  shop.o*: {level0_warn: 5, paused: a}
  "*.orders": {level0_warn: 7}
  shop.orders: {level0_warn: 9}
"""
    rows = {row["name"]: row for row in explain_values(parse_policies(text, "p.yaml"), "shop.orders")}
    warn = rows["level0_warn"]
    assert (warn["value"], warn["origin"], rows["paused"]["why"]) == (9, "p.yaml:6, shop.orders", "")
    assert warn["why"] == (
        "over p.yaml:5, *.orders; over p.yaml:4, shop.o* (of two globs the later one counts); over p.yaml:2, defaults"
    )
    other = {row["name"]: row for row in explain_values(parse_policies(text, "p.yaml"), "my.orders")}
    assert (other["level0_warn"]["value"], other["level0_warn"]["why"]) == (7, "over p.yaml:2, defaults")
