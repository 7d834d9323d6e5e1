"""The command line makes, lists, renames, deletes and expires tags, and rolls back; each says what it would free before it does."""

from __future__ import annotations

from typing import Any

from lsm_core import Catalog
from lsm_core.options import duration
from tests.cli.shell import Shell
from tests.maintenance.tables import HOUR, content


def _table(shell: Shell) -> Any:
    return Catalog(shell.place, clock=f"fixed:{shell.clock}").table("db.t")


def test_tags_from_the_shell(shell: Shell) -> None:
    assert shell("tag", "create", "db.t", "v1", "--snapshot", "2").out == "tag v1 of db.t names snapshot 2\n"
    shown = shell("tag", "create", "db.t", "v2", "--time-retained", "1 h", "--dry-run").out
    assert "create_tag db.t" in shown and "would tag" in shown and set(_table(shell).tags()) == {"v1"}
    made = shell("tag", "create", "db.t", "v2", "--time-retained", "1 h", "--json").json
    assert (made["tag"], made["tagged"], made["trash_id"]) == ("v2", 6, None)
    listed = shell("tag", "list", "db.t", "--json").json
    assert [(row["name"], row["snapshot"], row["time_retained_ms"]) for row in listed] == [
        ("v1", 2, None),
        ("v2", 6, HOUR),
    ]
    text = shell("tag", "list", "db.t").out
    assert "always" in text and "1 h" in text
    assert shell("tag", "rename", "db.t", "v1", "v0", "--dry-run").out == "tag v1 of db.t would be called v0\n"
    assert shell("tag", "rename", "db.t", "v1", "v0").out == "tag v1 of db.t is called v0 now\n"
    shell("expire", "db.t", "--retain-max", "1", "--retain-min", "1", "--older-than", "0 ms")
    shell.clock += 3 * HOUR
    shell("trash", "db.t", "--sweep")
    plan = shell("tag", "delete", "db.t", "v0", "--dry-run")
    assert "would delete" in plan.out and "would free" in plan.out and "a sweep deletes them from" in plan.out
    assert "tag v0" in shell("tag", "delete", "db.t", "v0").out
    trash = shell("trash", "db.t", "--json").json
    assert trash[0]["others"] == ["tag/tag-v0"] and "tag v0" in shell("trash", "db.t").out
    assert shell("restore", "db.t", trash[0]["trash_id"]).out.startswith("tag v0 can be read again; ")
    assert shell("tag", "expire", "db.t").out.startswith("deleted tag v2 of db.t")
    shell.clock += duration("40 d")
    assert "no tag was deleted" in shell("tag", "expire", "db.t", "--older-than", "36500 d").out


def test_what_does_not_fit_is_one_line(shell: Shell) -> None:
    for words, text in {
        (
            "burn",
            "db.t",
        ): "option 'WHAT' of table db.t cannot be 'burn'; accepted: list, create, delete, rename, expire",
        ("create", "db.t"): "dredge tag create db.t takes the name of the tag, and was given 0 names",
        ("rename", "db.t", "a"): "takes the tag's name and the new one, and was given 1 names",
        ("list", "db.t", "a"): "takes no name",
        ("delete", "db.t", "a"): "table db.t has no tag 'a'; it has: none",
        ("list", "db.t", "--snapshot", "3"): "option '--snapshot' of table db.t cannot be 3; accepted: nothing with",
        ("expire", "db.t", "--older-than", "soon"): "option '--older-than' cannot be 'soon'",
        ("create", "db.t", "a/b"): "is not a plain name",
    }.items():
        answer = shell("tag", *words)
        assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
        assert text in answer.err


def test_a_rollback_from_the_shell(shell: Shell) -> None:
    before, at_two = content(_table(shell)), content(_table(shell), 2)
    shown = shell("rollback", "db.t", "--snapshot", "2", "--dry-run").out
    assert "would take back" in shown and "the newest snapshot will be 2" in shown and "a sweep deletes" in shown
    assert content(_table(shell)) == before
    done = shell("rollback", "db.t", "--snapshot", "2")
    assert done.out.startswith("db.t is back at snapshot 2; gone: snapshots 3 to 6\n")
    assert content(_table(shell)) == at_two
    (record,) = shell("trash", "db.t", "--json").json
    assert shell("restore", "db.t", record["trash_id"]).code == 0 and content(_table(shell)) == before
    plan = shell("plan", "db.t", "--action", "rollback", "--snapshot", "5", "--json").json
    assert shell("apply", "db.t", plan["hash"], "--json").json["snapshots"] == [6]
    assert "nothing was rolled back" in shell("rollback", "db.t", "--snapshot", "5").out
    refused = shell("rollback", "db.t")
    assert refused.code == 2 and "exactly one of --snapshot, --tag, --timestamp" in refused.err
