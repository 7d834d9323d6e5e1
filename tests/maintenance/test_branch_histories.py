"""Random lives of a table and its branches: every snapshot and tag says what it said when it was new, and in the end no file is left over."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.clock import FixedClock
from lsm_core.errors import PlanRefused, TableExists
from lsm_core.maintenance import read_trash
from lsm_core.metadata import branches, manifests, snapshots, tags
from tests.maintenance.tables import HOUR, content, keyed, on_disk, rows, tag
from tests.support.references import file_names, metadata_references
from tests.support.samples import sample

SEED = int(os.environ.get("DREDGE_HISTORY_SEED", "0"))
_STEPS = 22


class Life:
    """A table and its branches; ``said``: the rows of each snapshot when it was new, by the bytes of its file."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        self.table = keyed(root, bucket="1", changelog_producer=self.rng.choice(["none", "input"]))
        self.said: dict[bytes, list[tuple[Any, ...]]] = {}
        self.made = 0
        self.write()

    @property
    def clock(self) -> FixedClock:
        clock = self.table.store.clock
        assert isinstance(clock, FixedClock)
        return clock

    def all(self) -> list[Table]:
        return [Table(store) for store in branches.all_stores(self.table.store)]

    def one(self) -> Table:
        """Main or a branch, with or without a grace."""
        chosen = self.rng.choice(self.all())
        return chosen.copy({"dredge.delete-mode": "direct"}) if self.rng.random() < 0.2 else chosen

    def write(self) -> None:
        start = self.rng.randrange(12)
        replacing = True if self.rng.random() < 0.1 else None
        self.one().write(rows(range(start, start + 3), v=self.rng.randrange(1000)), overwrite=replacing)

    def compact(self) -> None:
        self.one().compact(full=self.rng.random() < 0.6)

    def expire(self) -> None:
        self.one().expire_snapshots(retain_max=self.rng.randint(1, 3), retain_min=1)

    def sweep(self) -> None:
        self.clock.advance(self.rng.choice([0, HOUR, 25 * HOUR]))
        self.one().sweep_trash()

    def tag(self) -> None:
        latest = self.table.latest_snapshot()
        assert latest is not None
        tag(self.table, f"t{latest.id}", latest.id)

    def branch(self) -> None:
        if len(self.all()) > 3:
            return
        self.made += 1
        source = self.one()
        tagged = sorted(tags.list_tags(source.store))
        if tagged and self.rng.random() < 0.5:
            source.create_branch(f"b{self.made}", from_tag=self.rng.choice(tagged))
        else:
            source.create_branch(f"b{self.made}", from_snapshot=self.rng.choice(snapshots.list_ids(source.store)))

    def delete(self) -> None:
        names = self.table.branches()
        if names:
            chosen = self.table.copy({"dredge.delete-mode": "direct"}) if self.rng.random() < 0.2 else self.table
            chosen.delete_branch(self.rng.choice(names))

    def forward(self) -> None:
        names = self.table.branches()
        if names:
            with suppress(PlanRefused):
                self.table.fast_forward(self.rng.choice(names))

    def restore(self) -> None:
        records = read_trash(self.table.store).records
        if records:
            with suppress(PlanRefused, TableExists, LookupError):
                record = self.rng.choice(records)
                if (
                    record.branch == "main"
                    or record.action == "delete_branch"
                    or record.branch in self.table.branches()
                ):
                    self.one().restore(record.trash_id)

    def step(self) -> str:
        act = self.rng.choice(
            [
                *([self.write] * 4 + [self.expire] * 2 + [self.branch] * 2),
                *(self.compact, self.sweep, self.tag, self.delete, self.forward, self.restore),
            ]
        )
        act()
        return act.__name__

    def check(self) -> None:
        for table in self.all():
            for snapshot in table.snapshots():
                path = table.store.snapshot_path(snapshot.id)
                data = table.store.file_io.read_bytes(path)
                found = content(table, snapshot.id)
                assert self.said.setdefault(data, found) == found, (table.name, snapshot.id)
            there = {path.name for path in Path(table.store.root).rglob("*")}
            for name, tagged in tags.list_tags(table.store).items():
                wanted = metadata_references(table.store, tagged)
                wanted |= file_names(manifests.live_entries(table.store, tagged))
                assert wanted <= there, (table.name, name)

    def end(self) -> set[str]:
        """All branches and tags go, all expires: what is left is what the newest snapshot needs, and what tags held, whose names are returned."""
        held = set[str]()
        for tagged in tags.list_tags(self.table.store).values():
            held |= metadata_references(self.table.store, tagged)
            held |= file_names(manifests.live_entries(self.table.store, tagged))
            held |= file_names(manifests.changelog_entries(self.table.store, tagged))
        for name in self.table.branches():
            self.table.delete_branch(name)
        for path in (Path(self.table.store.root) / "tag").glob("tag-*"):
            path.unlink()
        for _ in range(3):
            self.table.write(rows([1]))
            self.table.expire_snapshots(retain_max=1, retain_min=1, max_deletes=1000)
            self.clock.advance(100 * HOUR)
            self.table.sweep_trash()
        return held


@pytest.mark.parametrize("number", sample(range(60), range(1).__contains__))
def test_every_branch_keeps_what_it_needs_and_nothing_is_left(tmp_path: Path, number: int) -> None:
    seed = SEED + number
    life = Life(seed, tmp_path)
    done = []
    for _ in range(_STEPS):
        done.append(life.step())
        try:
            life.check()
        except Exception as error:
            raise AssertionError(f"seed {seed} after {done}: DREDGE_HISTORY_SEED={seed}") from error
    held = life.end()
    assert content(life.table)
    store = life.table.store
    wanted = set[str]()
    for snapshot in snapshots.iterate(store):
        wanted |= metadata_references(store, snapshot) | file_names(manifests.live_entries(store, snapshot))
        wanted |= file_names(manifests.changelog_entries(store, snapshot))
    there = {name.rpartition("/")[2] for name in on_disk(life.table) if "manifest/" in name or "bucket-" in name}
    print(f"seed {seed}: {done}; left over: {sorted(there - wanted - held)}")
    assert wanted <= there
    assert there - wanted <= held
