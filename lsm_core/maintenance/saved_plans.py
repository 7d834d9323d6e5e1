"""Plans kept in the table's own folder, so that another process can apply one by its hash."""

from __future__ import annotations

import re

from lsm_core.errors import CorruptFile, InvalidOption, PlanStale
from lsm_core.maintenance.action import MaintenancePlan
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name


def save_plan(store: TableStore, plan: MaintenancePlan) -> str:
    """Keep ``plan`` under `<table>/dredge/plans/`, so that another process can apply it by its hash; returns the hash."""
    store.file_io.write_exclusive(_path(store, plan.hash), plan.to_json().encode())
    return plan.hash


def saved_plan_hashes(store: TableStore) -> list[str]:
    """The hashes of all plans that are kept, in their order."""
    names = [status.name for status in store.file_io.list_dir(f"{store.root}/dredge/plans") if not status.is_dir]
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def load_plan(store: TableStore, plan_hash: str) -> MaintenancePlan:
    """The saved plan of that hash (or of the only hash that starts so).

    Raises PlanStale when there is none, or several, or when it no longer fits (`MaintenancePlan.from_json`), CorruptFile naming its
    file, InvalidOption for what is no hash.
    """
    if not isinstance(plan_hash, str) or not re.fullmatch("[0-9a-f]+", plan_hash):
        raise InvalidOption("plan hash", plan_hash, "the hash of a saved plan, or its beginning", store.name)
    found = [name for name in saved_plan_hashes(store) if name.startswith(plan_hash)]
    if len(found) != 1:
        raise PlanStale(
            f"there {'are' if found else 'is'} {len(found) or 'no'} saved plan{'s'[: len(found)]} with hash {plan_hash}",
            store.name,
        )
    path = _path(store, found[0])
    try:
        plan = MaintenancePlan.from_json(store.file_io.read_bytes(path).decode(errors="replace"))
    except CorruptFile as error:
        raise CorruptFile(path, error.reason) from error
    if plan.hash != found[0]:
        raise PlanStale(f"the file {path} holds plan {plan.hash}", store.name)
    return plan


def _path(store: TableStore, plan_hash: str) -> str:
    return f"{store.root}/dredge/plans/{check_name(plan_hash)}.json"
