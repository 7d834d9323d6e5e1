"""The verbs `ledger`, `undo` and `maintain`."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog
from tests.cli.shell import Shell
from tests.maintenance.tables import content, keyed, rows


def test_a_compaction_is_found_in_the_ledger_and_undone(shell: Shell) -> None:
    assert shell("ledger", "db.t").out == "db.t: nothing was maintained yet\n"
    table = Catalog(shell.place).table("db.t")
    before = content(table)
    assert shell("compact", "db.t").code == 0
    (entry,) = shell("ledger", "db.t", "--json").json
    run_id = entry["run_id"]
    assert (entry["outcome"], entry["snapshot_id"]) == ("done", 7)
    shown = shell("ledger", "db.t").out
    assert run_id in shown and "5 files in" in shown
    first = shell("ledger", "db.t", run_id)
    assert "report.files_in" in first.out and "compacted" in first.out
    assert shell("ledger", "db.t", run_id, "--json").json["lines"][0]["bucket"] == "dt=a/bucket-0"
    planned = shell("undo", "db.t", run_id, "--dry-run")
    assert "would undo" in planned.out and Catalog(shell.place).table("db.t").latest_snapshot().id == 7
    undone = shell("undo", "db.t", run_id)
    assert undone.code == 0 and "snapshot 8 undoes snapshot 7" in undone.out
    assert content(Catalog(shell.place).table("db.t")) == before
    again = shell("undo", "db.t", run_id)
    assert again.code == 1 and "already-undone" in again.err
    assert shell("undo", "db.t", "nope").code == 1
    assert [first["action"] for first in shell("ledger", "db.t", "--limit", "1", "--json").json] == ["undo"]
    assert shell("show", "db.t$dredge_ledger", "--json").json[0]["run_id"] == run_id
    (Path(table.store.ledger_dir) / "9999999999999-compact-00000000.jsonl").write_text("{}")
    damaged = shell("ledger", "db.t")
    assert damaged.code == 0 and "unreadable" in damaged.out and "9999999999999-compact-00000000.jsonl" in damaged.out
    assert shell("ledger", "db.t", "x").code == 1


def test_plans_and_ledger_name_files_that_are_kept(shell: Shell) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    options = {"bucket": "1", "write-only": "true", "dredge.compaction.exact-keys": "always"}
    table = Catalog(shell.place).create_table("db.kept", columns, primary_keys=["k"], options=options)
    for keys in ([5, 6], [1, 9]):
        table.write({"k": keys})
    bound = "files in whose key range no other file has a key are kept: the estimate is an upper bound"
    assert bound in shell("plan", "db.kept", "--full").out
    assert bound not in shell("plan", "db.kept", "--full", "--set", "dredge.compaction.exact-keys=never").out
    assert shell("compact", "db.kept", "--full").code == 0
    assert "2 files out, 1 files kept, 2 rows in" in shell("ledger", "db.kept").out


def test_maintain_keeps_what_the_policy_file_says(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    (value,) = declared["project"]["entry-points"]["dredge.retention"].values()
    monkeypatch.setattr(
        "importlib.metadata.entry_points",  # as this checkout declares it, whatever was installed
        lambda group: [EntryPoint("policies", value, group)] if group == "dredge.retention" else [],
    )
    policies = tmp_path / "policies.yaml"
    policies.write_text("tables: {db.t: {retention: {snapshots: {retain_min: 2}}}}")
    monkeypatch.setenv("DREDGE_POLICIES", str(policies))
    planned = shell("maintain", "db", "--dry-run", "--json", "--action", "expire_snapshots").json
    (item,) = planned["items"]
    assert item["table"] == "db.t" and item["action"] == "expire_snapshots"
    assert shell("maintain", "db", "--action", "expire_snapshots").code == 0
    assert [snapshot.id for snapshot in Catalog(shell.place).table("db.t").snapshots()] == [5, 6]
    policies.write_text("tables: {db.t: {retention: {snapshots: {retain_min: never}}}}")
    refused = shell("maintain", "db")
    assert refused.code == 1 and "retain_min" in refused.err and "policies.yaml" in refused.err
    policies.write_text("tables: {db.t: {paused: storage move, approval: {manifests: required}}}")
    paused = shell("maintain", "db", "--action", "compact")
    assert paused.code == 0 and "paused by policy: storage move" in " ".join(paused.out.split())
    assert "approval of manifests is required" in shell("maintain", "db", "--json", "--action", "manifests").out
    approved = shell("maintain", "db", "--json", "--action", "manifests", "--approved-by", "ann")
    assert "approval" not in approved.out
    monkeypatch.delenv("DREDGE_POLICIES")
    assert "nothing to do" in shell("maintain", "db", "--dry-run", "--json", "--action", "expire_snapshots").out


def test_a_database_is_maintained_by_one_plan(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = keyed(tmp_path, name="db.u")
    for number in range(6):
        other.write(rows(range(number, number + 9), v=number))
    planned = shell("maintain", "db", "--dry-run", "--action", "compact")
    assert "would do, in this order" in planned.out and planned.out.index("db.u") < planned.out.index("db.t")
    assert Catalog(shell.place).table("db.u").latest_snapshot().id == 6
    done = shell("maintain", "db.*", "--action", "compact", "--max-tables", "1")
    assert done.code == 0 and "db.u: compact: done: snapshot 7" in done.out and "1 tables come first" in done.out
    plan = done.out.split()[1].rstrip(":")
    again = shell("maintain", "--resume", plan)
    assert again.code == 0 and "db.u: compact: already" in again.out
    rest = shell("maintain", "db", "--json", "--action", "compact").json
    assert [(line["table"], line["outcome"]) for line in rest["lines"]] == [("db.t", "done")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    assert "nothing that is installed reads policies" in shell("maintain", "db", "--unattended").err
    assert shell("maintain").code == 2 and shell("maintain", "db", "--resume", plan).code == 2
    assert "DatabaseNotFound" not in shell("maintain", "nope").err and shell("maintain", "nope").code == 1
    Path(Catalog(shell.place).table("db.u").store.snapshot_path(7)).write_text("damaged")
    failed = shell("maintain", "db", "--action", "compact")
    assert failed.code == 1 and "db.u: compact: CorruptFile" in failed.err
