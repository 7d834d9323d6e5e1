"""The verbs `branch`, `consumers` and `analyze`."""

from __future__ import annotations

from lsm_core import Catalog
from tests.cli.shell import Shell
from tests.maintenance.tables import content, rows


def test_branches_are_made_used_forwarded_and_deleted(shell: Shell) -> None:
    assert "db.t$branch_dev is there" in shell("branch", "create", "db.t", "dev", "--from-snapshot", "5").out
    assert shell("branch", "create", "db.t", "b", "--json").json == {"branch": "b", "table": "db.t$branch_b"}
    assert "now c" in shell("branch", "rename", "db.t", "b", "--to", "c").out
    assert [item["branch"] for item in shell("branch", "list", "db.t", "--json").json] == ["c", "dev"]
    assert "dev" in shell("branch", "list", "db.t").out
    dev = Catalog(shell.place).table("db.t$branch_dev")
    dev.write(rows([50], dt="c"))
    assert shell("compact", "db.t$branch_dev", "--full").code == 0
    assert [item["id"] for item in shell("snapshots", "db.t$branch_dev", "--json").json] == [5, 6, 7]
    planned = shell("branch", "fast-forward", "db.t", "dev", "--dry-run").out
    assert "would drop" in planned and "snapshot-6" in planned
    assert shell("branch", "fast-forward", "db.t", "dev", "--dry-run", "--json").json["action"] == "fast_forward"
    assert "as branch dev: snapshot 7" in shell("branch", "fast-forward", "db.t", "dev").out
    assert content(Catalog(shell.place).table("db.t")) == content(dev)
    deleted = shell("branch", "delete", "db.t", "dev", "--json").json
    assert "branch dev" in shell("trash", "db.t").out
    assert "branch dev can be read again" in shell("restore", "db.t", deleted["trash_id"]).out
    assert "branch dev is deleted" in shell("branch", "delete", "db.t", "dev").out
    plan = shell("plan", "db.t", "--action", "delete_branch", "--branch", "c", "--json").json
    assert "branch c is deleted" in shell("apply", "db.t", plan["hash"]).out


def test_consumers_are_listed_moved_and_forgotten(shell: Shell) -> None:
    assert "reads snapshot 2 next" in shell("consumers", "reset", "db.t", "job", "--next-snapshot", "2").out
    assert [
        (item["consumer"], item["next_snapshot"]) for item in shell("consumers", "list", "db.t", "--json").json
    ] == [("job", 2)]
    listed = shell("consumers", "list", "db.t").out
    assert "unread" in listed and "job" in listed
    assert shell("consumers", "reset", "db.t", "job", "--next-snapshot", "3", "--json").json == {"job": 3}
    assert "forgotten" in shell("consumers", "delete", "db.t", "job").out
    gone = shell("consumers", "delete", "db.t", "job")
    assert gone.code == 1 and "no consumer at all" in gone.err


def test_analyze_tells_what_it_counted(shell: Shell) -> None:
    assert "would analyze" in shell("analyze", "db.t", "--dry-run").out
    report = shell("analyze", "db.t", "--columns", "k,v", "--json").json
    assert (report["rows"], report["columns"], report["snapshot_id"]) == (23, ["k", "v"], 7)
    [result] = shell("show", "db.t$statistics", "--json").json
    assert (result["snapshot_id"], result["mergedRecordCount"]) == (6, 23)
    assert "analyzed snapshot 7" in shell("analyze", "db.*").out


def test_what_cannot_be_done_is_one_clear_line(shell: Shell) -> None:
    for arguments, message in (
        (["branch", "prune", "db.t"], "list, create, delete, rename, fast-forward"),
        (["branch", "create", "db.t"], "the name of the branch"),
        (["branch", "create", "db.t", "main"], "main"),
        (["branch", "delete", "db.t", "none"], "no branch 'none'"),
        (["branch", "rename", "db.t", "none"], "the new name"),
        (["branch", "create", "db.t", "x", "--dry-run"], "have a plan"),
        (["consumers", "reset", "db.t", "job"], "the snapshot that it reads next"),
        (["consumers", "reset", "db.t"], "the consumer"),
        (["consumers", "sell", "db.t"], "list, reset, delete"),
        (["analyze", "db.t", "--columns", "zz"], "zz"),
    ):
        answer = shell(*arguments)
        assert answer.code == 1 and message in answer.err and answer.err.count("\n") == 1, arguments
