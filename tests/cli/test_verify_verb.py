"""`dredge verify`: what two snapshots say, and exit codes that scripts can go by."""

from __future__ import annotations

from lsm_core import Catalog
from tests.cli.shell import Shell
from tests.support.platform import sabotage


def test_the_newest_compaction_is_compared_and_a_difference_exits_1(shell: Shell) -> None:
    none = shell("verify", "db.t")
    assert none.code == 1 and "db.t has no compaction whose snapshot" in none.err
    assert shell("compact", "db.t", "--full").code == 0
    answer = shell("verify", "db.t")
    assert answer.code == 0 and "db.t: snapshots 6 and 7 say the same (V1" in answer.out
    assert "compared by content" in answer.out
    report = shell("verify", "db.t", "7", "--json").json
    assert (report["snapshot_a"], report["snapshot_b"], report["ok"]) == (6, 7, True)
    changed = shell("verify", "db.t", "5", "7", "--json")
    assert changed.code == 1 and changed.json["ok"] is False
    assert "snapshots 5 and 7 differ in 1 places: dt=b/bucket-0" in changed.err
    assert shell("verify", "db.t", "9").code == 1


def test_a_row_lost_behind_everybodys_back_is_found(shell: Shell) -> None:
    assert shell("compact", "db.t", "--full").code == 0
    sabotage(Catalog(str(shell.place)).table("db.t"), "drop")
    answer = shell("verify", "db.t")
    assert answer.code == 1 and "corrupt file" in answer.err
