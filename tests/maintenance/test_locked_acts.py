"""Acts on a table's history take its lock: while another has it they change nothing, and afterwards they are done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import LockTimeout
from lsm_core.locks import LockSettings, held, table_lock
from lsm_core.maintenance import apply_plan, read_trash
from tests.maintenance.tables import HOUR, NOW, content, keyed, on_disk, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Snapshots 1 to 4, a tag at 1, a branch, all of them old; a lock that is waited for a moment only."""
    made = keyed(tmp_path, dredge__lock="file", dredge__lock__acquire_timeout="20 ms", dredge__lock__lease="60 s")
    for number in range(4):
        made.write(rows([number], v=number))
    made.create_tag("a", 1)
    made.create_branch("dev", from_snapshot=2).write(rows([9]))
    return Catalog(tmp_path / "wh", clock=f"fixed:{NOW + 3 * HOUR}").table("db.t")


def _deleted_tag(table: Table) -> str:
    return str(table.delete_tag("a").trash_id)


ACTS: dict[str, Callable[[Table, str], tuple[str, dict[str, object]]]] = {
    "expiry": lambda _table, _trash: ("expire_snapshots", {"retain_max": 2}),
    "deletion of a tag": lambda _table, _trash: ("delete_tag", {"tag": "b"}),
    "fast-forward": lambda _table, _trash: ("fast_forward", {"branch": "dev"}),
    "restore": lambda _table, trash: ("restore", {"trash_id": trash}),
    "rollback": lambda _table, _trash: ("rollback", {"snapshot_id": 3}),
    "sweep": lambda _table, _trash: ("trash", {"now_ms": NOW + 90 * HOUR}),
}


@pytest.mark.parametrize("name", ACTS)
def test_while_another_has_the_lock_nothing_changes(table: Table, name: str) -> None:
    table.create_tag("b", 2)
    trash = _deleted_tag(table)
    action, arguments = ACTS[name](table, trash)
    plan = table.plan_maintenance(action, **arguments)
    assert plan.items or action == "trash"
    store = table.store
    other = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "another job")
    assert other is not None
    before, rows_before = on_disk(table, without=("dredge/",)), content(table)
    with held(other, LockSettings(lease=60_000)):
        with pytest.raises(LockTimeout, match="held by another job"):
            apply_plan(store, plan)
        assert content(table) == rows_before
        assert before.items() <= on_disk(table, without=("dredge/",)).items()
    apply_plan(store, table.plan_maintenance(action, **arguments))
    outcomes = [entry.outcome for entry in table.ledger() if entry.action == action]
    assert "failed" in outcomes and (name == "sweep" or "done" in outcomes)
    assert (trash in [record.trash_id for record in read_trash(store).records]) == (name not in ("sweep", "restore"))
