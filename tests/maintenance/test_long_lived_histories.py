"""Random lives of tables whose changelogs outlive snapshots: whatever expires, comes back or is swept, streams tell what they told."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.clock import FixedClock
from lsm_core.errors import PlanRefused
from lsm_core.maintenance import read_trash
from lsm_core.metadata import consumers
from lsm_core.read.changes.spans import earliest_kept
from tests.maintenance.tables import HOUR, assert_whole, content, keyed, rows, strays, tag
from tests.support.samples import one_in

SEED = int(os.environ.get("DREDGE_HISTORY_SEED", "0"))
LONGER = {"snapshot.num-retained.min": "1", "changelog.num-retained.min": "30"}
SHORT = {"changelog.num-retained.min": "1"}
CONSUMER = "job"


class Life:
    """One table, with what each snapshot told when it was new."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        producer = self.rng.choice(["none", "none", "input", "lookup"])
        self.table = keyed(root, **LONGER, **{"changelog-producer": producer})
        self.told: dict[int, list[tuple[object, ...]]] = {}
        self.tags = 0
        self.write()

    @property
    def clock(self) -> FixedClock:
        clock = self.table.store.clock
        assert isinstance(clock, FixedClock)
        return clock

    def write(self) -> None:
        start = self.rng.randrange(20)
        overwrite = self.rng.random() < 0.15
        self.table.write(rows(range(start, start + 4), v=self.rng.randrange(1000)), overwrite=overwrite or None)

    def compact(self) -> None:
        self.table.compact(full=self.rng.random() < 0.5)

    def chosen(self) -> Table:
        """The table with its options, or where changelogs are kept no longer, or where files go at once."""
        options = {**(SHORT if self.rng.random() < 0.2 else {})}
        if self.rng.random() < 0.3:
            options["dredge.delete-mode"] = "direct"
        return self.table.copy(options)

    def expire(self) -> None:
        kept = self.rng.randint(1, 4)
        self.chosen().expire_snapshots(retain_max=kept, retain_min=1, max_deletes=self.rng.choice([2, 50]))

    def expire_changelogs(self) -> None:
        table, kept = self.chosen(), self.rng.randint(1, 8)
        arguments = {"delete_all": True} if self.rng.random() < 0.2 else {"retain_max": kept, "retain_min": 1}
        table.apply(table.plan_maintenance("expire_changelogs", **arguments))

    def restore(self) -> None:
        records = read_trash(self.table.store).records
        with suppress(PlanRefused):
            if records:
                self.table.restore(self.rng.choice(records).trash_id)

    def sweep(self) -> None:
        self.clock.advance(self.rng.choice([HOUR // 2, 2 * HOUR]))
        self.table.sweep_trash()

    def tag(self) -> None:
        self.tags += 1
        tag(self.table, f"t{self.tags}", self.rng.choice([snapshot.id for snapshot in self.table.snapshots()]))

    def consume(self) -> None:
        if self.rng.random() < 0.5:
            self.table.forget_consumer(CONSUMER)
        else:
            first = earliest_kept(self.table.store)
            newest = self.table.snapshots()[-1].id
            consumers.write_consumer(self.table.store, CONSUMER, self.rng.randint(first or 1, newest))

    def step(self) -> str:
        self.clock.advance(1000)
        names = ["write", "write", "write", "compact", "expire", "expire", "expire_changelogs", "restore", "sweep"]
        name = self.rng.choice([*names, "sweep", "tag", "consume"])
        before = content(self.table)
        getattr(self, name)()
        if name != "write":
            assert content(self.table) == before
        return name

    def check(self) -> None:
        first = earliest_kept(self.table.store)
        wanted = consumers.read_consumer(self.table.store, CONSUMER)
        assert first is not None
        assert wanted is None or first <= wanted
        stream = self.table.new_stream_scan()
        stream.restore(first)
        found = {}
        while (batch := stream.next()) is not None:
            found[batch.snapshot_id] = [tuple(row.values()) for row in batch.to_arrow().to_pylist()]
        newest = max(self.told, default=0)
        assert {number: item for number, item in self.told.items() if number >= first} == {
            number: item for number, item in found.items() if number <= newest
        }
        self.told |= found
        assert_whole(self.table)

    def end(self) -> None:
        """All that may go goes: only what the newest snapshot and tags need is left."""
        self.table.forget_consumer(CONSUMER)
        table = self.table.copy(SHORT) if self.rng.random() < 0.5 else self.table
        for _ in range(2):  # what an overwrite dropped stays until its own changelog could go
            table.expire_snapshots(retain_max=1, retain_min=1)
            table.apply(table.plan_maintenance("expire_changelogs", delete_all=True))
            table.write(rows([1]))
        table.expire_snapshots(retain_max=1, retain_min=1)
        table.apply(table.plan_maintenance("expire_changelogs", delete_all=True))
        for _ in range(2):
            self.clock.advance(3 * HOUR)
            table.sweep_trash()
            self.check()
        assert not read_trash(self.table.store).records
        assert not strays(self.table)


@pytest.mark.parametrize("seed", one_in(40, range(SEED, SEED + 40), 3))
def test_streams_tell_what_they_told_and_nothing_is_left_in_the_end(seed: int, tmp_path: Path) -> None:
    life, story = Life(seed, tmp_path), []
    for _ in range(22):
        story.append(life.step())
        try:
            life.check()
        except Exception as error:
            raise AssertionError(f"after {story}") from error
    life.end()
