"""Which tags expire: by the time each is kept, by a given age, and automatic ones by number (Java `TagTimeExpire`, `TagAutoCreation`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lsm_core.clock import local_offset_ms, utc_text
from lsm_core.format.side_files import Tag
from lsm_core.maintenance.action import Declined, MaintenancePlan
from lsm_core.maintenance.actions.delete_tag.tag_deletion import with_tags
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number

_YEAR_10000_MS: Final = 253_402_300_800_000


def plan_tag_expiry(
    store: TableStore, older_than_ms: int | None = None, now_ms: int | None = None, *, by_time: bool = True
) -> MaintenancePlan:
    """Plan which tags expire, and which files nothing needs afterwards.

    A tag goes when it is older than the time it is kept (both are in its file; not with `tag.time-expire-enabled` = false), when it was
    made before ``older_than_ms`` (epoch ms; a tag that does not say when it was made is as old as its file), and, of automatic tags (in
    batch mode: of all), when there are more than `tag.num-retained-max`, the oldest first. ``by_time`` False: by number alone.
    Reads metadata only. Raises CorruptFile when a snapshot, changelog, tag or branch cannot be read, InvalidOption for no time.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    if older_than_ms is not None:
        older_than_ms = whole_number(older_than_ms, "older_than_ms", store.name, most=_YEAR_10000_MS - 1)
    arguments = {"older_than_ms": older_than_ms, "by_time": by_time}
    plan = MaintenancePlan.begun("expire_tags", store, snapshots.latest_id(store), arguments, now)
    found = tags.list_details(store)
    going = _by_time(store, found, older_than_ms, now) if by_time else {}
    going |= _by_number(store, found, going)
    if going:
        return with_tags(store, plan, going)
    text = f"the time of none of its {len(found)} tags is over" if found else "the table has no tag"
    return replace(plan, declined=(Declined("tags", "retained" if found else "empty", text, {"tags": len(found)}),))


def _by_time(store: TableStore, found: Mapping[str, Tag], older_than_ms: int | None, now: int) -> dict[str, str]:
    """Name -> why. Tags tell wall-clock time."""
    going, wall_clock = {}, now + local_offset_ms(now)
    ages = {}
    if older_than_ms is not None:
        listed = store.file_io.list_dir(tags.tag_dir(store))
        ages = {f.name.removeprefix(tags.PREFIX): f.mtime_ms for f in listed if f.name.startswith(tags.PREFIX)}
    for name, tag in sorted(found.items(), key=lambda one: (one[1].snapshot.id, one[0])):
        ends, made = tag.expires_ms, tag.create_time_ms
        if ends is not None and wall_clock > ends and store.options.get("tag.time-expire-enabled"):
            going[name] = f"it is kept until {utc_text(ends)}"
        elif older_than_ms is not None:
            since = ages.get(name, now) if made is None else made - local_offset_ms(made)
            if since < older_than_ms:
                going[name] = f"made at {utc_text(since)} UTC, before {utc_text(older_than_ms)} UTC"
    return going


def _by_number(store: TableStore, found: Mapping[str, Tag], going: Mapping[str, str]) -> dict[str, str]:
    """Name -> why: of the tags that count and are not ``going`` those beyond the number kept, the oldest snapshots first."""
    most, periods = store.options.tag_retained_max, tags.periods(store)
    if most is None or (periods is None and store.options.tag_creation != "batch"):
        return {}
    counted = [name for name in found if name not in going and (periods is None or periods.time_of(name) is not None)]
    counted.sort(key=lambda name: (found[name].snapshot.id, name))
    why = f"more than tag.num-retained-max = {most} {'tags' if periods is None else 'automatic tags'}"
    return dict.fromkeys(counted[: max(0, len(counted) - max(0, most))], why)


__all__ = ["plan_tag_expiry"]
