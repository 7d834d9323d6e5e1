"""Choice of the tags that expire: by the tag's own retention, by creation time, and automatic tags by number.

Source: Java `TagTimeExpire`, `TagAutoCreation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lsm_core.clock import local_offset_ms, utc_text
from lsm_core.format.side_files import Tag
from lsm_core.maintenance.action import Declined, MaintenancePlan
from lsm_core.maintenance.actions import delete_tag
from lsm_core.maintenance.actions.delete_tag import with_tags
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number

_YEAR_10000_MS: Final = 253_402_300_800_000


def plan_tag_expiry(
    store: TableStore, older_than_ms: int | None = None, now_ms: int | None = None, *, by_time: bool = True
) -> MaintenancePlan:
    """Plan which tags expire, and which files nothing needs afterwards. Only metadata is read.

    A tag expires if it is older than its own retention (unless `tag.time-expire-enabled` = false), or was created
    before ``older_than_ms``. If there are more automatic tags than `tag.num-retained-max`, the oldest automatic tags
    expire too. With `tag.automatic-creation` = batch, all tags count as automatic.

    Args:
        store: the table.
        older_than_ms: creation time before which tags expire (epoch ms), None for no such limit. For a tag that does
            not record its creation time, the change time of the tag file is used.
        now_ms: time of planning (epoch ms), None for the table's clock.
        by_time: False to expire tags by number alone.

    Raises:
        CorruptFile: a snapshot, changelog, tag or branch cannot be read.
        InvalidOption: ``older_than_ms`` is no time.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    if older_than_ms is not None:
        older_than_ms = whole_number(older_than_ms, "older_than_ms", store.name, most=_YEAR_10000_MS - 1)
    arguments = {"older_than_ms": older_than_ms, "by_time": by_time}
    plan = MaintenancePlan.begin("expire_tags", store, snapshots.latest_id(store), arguments, now)
    tag_details = tags.list_details(store)
    expiring = _expire_by_time(store, tag_details, older_than_ms, now) if by_time else {}
    expiring |= _expire_by_number(store, tag_details, expiring)
    if expiring:
        return with_tags(store, plan, expiring)
    text = f"the time of none of its {len(tag_details)} tags is over" if tag_details else "the table has no tag"
    return replace(
        plan, declined=(Declined("tags", "retained" if tag_details else "empty", text, {"tags": len(tag_details)}),)
    )


def _expire_by_time(
    store: TableStore, details: Mapping[str, Tag], older_than_ms: int | None, now: int
) -> dict[str, str]:
    """Return the tags that expire by retention or creation time: the reason by tag name.

    ``older_than_ms`` and ``now`` are epoch ms. Tags record local wall-clock times, which are converted for comparison.
    """
    reasons, wall_clock = {}, now + local_offset_ms(now)
    ages = {}
    if older_than_ms is not None:
        listed = store.file_io.list_dir(tags.tag_dir(store))
        ages = {f.name.removeprefix(tags.PREFIX): f.mtime_ms for f in listed if f.name.startswith(tags.PREFIX)}
    for name, tag in sorted(details.items(), key=lambda entry: (entry[1].snapshot.id, entry[0])):
        ends, created = tag.expires_ms, tag.create_time_ms
        if ends is not None and wall_clock > ends and store.options.get("tag.time-expire-enabled"):
            reasons[name] = f"it is kept until {utc_text(ends)}"
        elif older_than_ms is not None:
            since = ages.get(name, now) if created is None else created - local_offset_ms(created)
            if since < older_than_ms:
                reasons[name] = f"made at {utc_text(since)} UTC, before {utc_text(older_than_ms)} UTC"
    return reasons


def _expire_by_number(store: TableStore, details: Mapping[str, Tag], going: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that exceed `tag.num-retained-max`, those of the oldest snapshots: the reason by tag name.

    Tags in ``going`` expire for a different reason and are not counted.
    """
    most, periods = store.options.tag_retained_max, tags.periods(store)
    if most is None or (periods is None and store.options.tag_creation != "batch"):
        return {}
    counted = [name for name in details if name not in going and (periods is None or periods.time_of(name) is not None)]
    counted.sort(key=lambda name: (details[name].snapshot.id, name))
    why = f"more than tag.num-retained-max = {most} {'tags' if periods is None else 'automatic tags'}"
    return dict.fromkeys(counted[: max(0, len(counted) - max(0, most))], why)


WORK: Final = replace(delete_tag.WORK, plan=plan_tag_expiry)
