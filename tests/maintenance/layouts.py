"""Random histories of a table with empty files; the needed files are recorded at creation, not read from metadata."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from lsm_core import Table
from lsm_core.clock import FixedClock
from lsm_core.errors import CorruptFile, PlanRefused
from lsm_core.format.binary_row import EMPTY_ROW, encode_row
from lsm_core.format.manifest import (
    DataFileMeta,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    entries_to_table,
)
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.storage import FileStatus
from lsm_core.types import parse
from tests.support.memory_file_io import MemoryFileIO

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_700_000_000_000
ROOT = "/memory/db.db/t"


@dataclass(frozen=True)
class Placed:
    """Data file of a layout.

    Attributes:
        partition: serialised partition.
        folder: folder of the file.
        bucket: number of the bucket.
        name: name of the file.
        beside: names of extra files in the same folder.
        external: external path of the file, or None.
        level: level in the LSM tree.
    """

    partition: bytes
    folder: str
    bucket: int
    name: str
    beside: tuple[str, ...]
    external: str | None
    level: int = 0

    @property
    def paths(self) -> list[str]:
        return [f"{self.folder}/{name}" for name in (self.name, *self.beside)]


@dataclass
class State:
    """Snapshot of a layout: live data files by name, paths of metadata, manifests, and changelog files (``told``)."""

    snapshot: Snapshot
    live: dict[str, Placed]
    metadata: set[str]
    manifests: list[ManifestFileMeta]
    told: list[Placed]
    told_metadata: set[str]

    @property
    def needed(self) -> set[str]:
        data = {path for file in (*self.live.values(), *self.told) for path in file.paths}
        return self.metadata | data


@dataclass
class Layout:
    """Random table in memory, with everything that references files, and with planted orphan files.

    With ``plain``, files are deleted in two phases, no external folder is used, and no commit is in progress.
    """

    seed: int
    plain: bool = False
    rng: Random = field(init=False)
    io: MemoryFileIO = field(init=False)
    snapshots: dict[int, State] = field(default_factory=dict)
    tags: dict[str, State] = field(default_factory=dict)
    branches: dict[str, list[State]] = field(default_factory=dict)
    kept_changelogs: dict[int, State] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)
    stays: set[str] = field(default_factory=set)
    flying: list[Placed] = field(default_factory=list)
    flying_since: int = 0

    def __post_init__(self) -> None:
        rng = self.rng = Random(self.seed)
        self.io = MemoryFileIO(START)
        self.partitioned, self.tells = rng.random() < 0.3, rng.random() < 0.3
        self.external = "/outside/t" if rng.random() < 0.2 else None
        self.shared = self.external is not None and rng.random() < 0.5
        self.direct = rng.random() < 0.2
        if self.plain:
            self.external, self.shared, self.direct = None, False, False
        fields = (DataField(0, "k", parse("INT NOT NULL")), DataField(1, "v", parse("INT")))
        options = {"bucket": "2"}
        if self.tells:
            options |= {"changelog-producer": "input"}
        if self.external:
            options["data-file.external-paths"] = self.external
        if self.direct:
            options["dredge.delete-mode"] = "direct"
        if rng.random() < 0.2:
            options["data-file.prefix"] = "part-"
        keys = ("k",) if self.partitioned else ()
        schema = TableSchema(0, fields, 1, keys, ("k",), options, None, START)
        write_schema(self.io, ROOT, schema)  # type: ignore[arg-type]
        self.prefix = options.get("data-file.prefix", "data-")
        if self.shared:
            write_schema(self.io, ROOT[:-1] + "u", replace(schema, id=0))  # type: ignore[arg-type]
            self.stays.add(f"{self.external}/bucket-0/data-{self._uuid()}-0.parquet")
            for path in self.stays:
                self.io.put(path, b"", START)
        self.clock = FixedClock(START)
        self.store = TableStore.open(self.io, ROOT, "db.t", self.clock)  # type: ignore[arg-type]
        for _ in range(rng.randint(1, 6)):
            self.commit()
            self._pass(rng.choice((1, 10, 30)))
        for change in rng.choices((self.tag, self.branch, self.consume, self.expire, self.commit), k=rng.randint(0, 5)):
            change()
        self.plant()

    # -- what happens to it ----------------------------------------------------------------------------------------------

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def _pass(self, hours: float) -> None:
        self.io.now_ms += int(hours * HOUR)

    def _new_file(self, age_ms: int = 0, prefix: str | None = None) -> Placed:
        bucket = self.rng.randrange(2)
        partition, below = EMPTY_ROW, f"bucket-{bucket}"
        if self.partitioned:
            value = self.rng.randrange(2)
            partition, below = encode_row((value,), self.store.schema.partition_types), f"k={value}/bucket-{bucket}"
        name = f"{prefix or self.prefix}{self._uuid()}-{self.rng.randrange(9)}.parquet"
        external = None
        folder = f"{ROOT}/{below}"
        if self.external and not self.shared and self.rng.random() < 0.5:
            folder = f"{self.external}/{below}"
            external = f"{folder}/{name}"
        beside = (f"{name}.index",) if self.rng.random() < 0.2 else ()
        file = Placed(partition, folder, bucket, name, beside, external)
        for path in file.paths:
            self.io.put(path, b"", self.io.now_ms - age_ms)
        return file

    def _entry(self, kind: int, file: Placed) -> ManifestEntry:
        meta = DataFileMeta(
            file.name, 0, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, file.level, file.beside,
            file_source=0, external_path=file.external, delete_row_count=0,
        )  # fmt: skip
        return ManifestEntry(kind, file.partition, file.bucket, 2, meta)

    def commit(
        self, files: list[Placed] | None = None, before: State | None = None, number: int | None = None
    ) -> State:
        """Commit new files (or ``files``) and delete some old files, on main or after ``before`` on a branch."""
        rng, store = self.rng, self.store
        on_main = before is None
        if on_main and self.snapshots:
            before = self.snapshots[max(self.snapshots)]
        number = number or (before.snapshot.id + 1 if before else 1)
        live = dict(before.live) if before else {}
        dropped = [live.pop(name) for name in rng.sample(sorted(live), min(len(live), rng.choice((0, 0, 1, 3))))]
        added = [self._new_file() for _ in range(rng.randint(1, 3))] if files is None else files
        entries = [self._entry(0, file) for file in added] + [self._entry(1, file) for file in dropped]
        if live and rng.random() < 0.2:  # an upgrade: dropped and added again
            name = min(live)
            higher = replace(live[name], level=live[name].level + 1)
            entries += [self._entry(1, live[name]), self._entry(0, higher)]
            live[name] = higher
        live |= {file.name: file for file in added}
        base = list(before.manifests) if before else []
        delta = manifests.write_manifests(store, entries_to_table(entries))
        if base and rng.random() < 0.2:  # manifests are merged
            base = manifests.write_manifests(store, entries_to_table([self._entry(0, f) for f in before.live.values()]))  # type: ignore[union-attr]
        changes = [self._new_file(prefix="changelog-")] if self.tells else []
        base_name, base_size = manifests.write_list(store, base)
        delta_name, delta_size = manifests.write_list(store, delta)
        metadata = {base_name, delta_name, *(meta.file_name for meta in (*base, *delta))}
        told_name = told_size = index_name = None
        told_metadata: set[str] = set()
        if changes:
            metas = manifests.write_manifests(store, entries_to_table([self._entry(0, file) for file in changes]))
            told_name, told_size = manifests.write_list(store, metas)
            told_metadata = {f"{ROOT}/manifest/{name}" for name in (told_name, *(meta.file_name for meta in metas))}
        paths = told_metadata | {f"{ROOT}/manifest/{name}" for name in metadata}
        if rng.random() < 0.3:
            index = IndexFileMeta("HASH", f"index-{self._uuid()}-0", 0, 0)
            self.io.put(f"{ROOT}/index/{index.file_name}", b"")
            entry = IndexManifestEntry.of(0, EMPTY_ROW, 0, index)
            index_name = manifests.write_index_manifest(store, None, [], [entry])
            paths |= {f"{ROOT}/index/{index.file_name}", f"{ROOT}/manifest/{index_name}"}
        statistics = None
        if rng.random() < 0.2:
            statistics = f"stat-{self._uuid()}-0"
            self.io.put(f"{ROOT}/statistics/{statistics}", b"{}")
            paths.add(f"{ROOT}/statistics/{statistics}")
        snapshot = Snapshot(
            number, 0, base_name, delta_name, "test", number, CommitKind.APPEND, self.io.now_ms, base_size, delta_size,
            changelog_manifest_list=told_name, changelog_manifest_list_size=told_size, index_manifest=index_name,
            statistics=statistics,
        )  # fmt: skip
        state = State(snapshot, live, paths, [*base, *delta], changes, told_metadata)
        if on_main:
            self.io.put(f"{ROOT}/snapshot/snapshot-{number}", snapshot.to_json())
            self.io.put(f"{ROOT}/snapshot/LATEST", str(number).encode())
            self.snapshots[number] = state
        return state

    def tag(self) -> None:
        if self.snapshots:
            name, state = f"t{len(self.tags)}", self.snapshots[self.rng.choice(sorted(self.snapshots))]
            self.io.put(f"{ROOT}/tag/tag-{name}", state.snapshot.to_json())
            self.tags[name] = state

    def branch(self) -> None:
        """Create a branch from a snapshot of main, with up to two commits and sometimes a tag."""
        name, first = f"b{len(self.branches)}", self.snapshots[self.rng.choice(sorted(self.snapshots))]
        folder = f"{ROOT}/branch/branch-{name}"
        self.io.put(f"{folder}/schema/schema-0", self.io.read_bytes(f"{ROOT}/schema/schema-0"))
        states = [first]
        for _ in range(self.rng.randint(0, 2)):
            states.append(self.commit(before=states[-1]))
        for state in states:
            self.io.put(f"{folder}/snapshot/snapshot-{state.snapshot.id}", state.snapshot.to_json())
        if self.rng.random() < 0.3:
            self.io.put(f"{folder}/tag/tag-inner", first.snapshot.to_json())
        self.branches[name] = states

    def consume(self) -> None:
        self.io.put(f"{ROOT}/consumer/consumer-c", b'{"nextSnapshot": %d}' % self.rng.choice(sorted(self.snapshots)))

    def expire(self) -> None:
        """Expire the oldest snapshots as Paimon does; some files stay, as after a crash, and some changelogs."""
        going = sorted(self.snapshots)[: self.rng.randint(0, len(self.snapshots) - 1)]
        gone = [self.snapshots.pop(number) for number in going]
        for state in gone:
            self.io.delete(f"{ROOT}/snapshot/snapshot-{state.snapshot.id}")
            if self.tells and self.rng.random() < 0.5:
                self.io.put(f"{ROOT}/changelog/changelog-{state.snapshot.id}", state.snapshot.to_json())
                self.kept_changelogs[state.snapshot.id] = state
        needed = self.needed()
        for path in sorted({path for state in gone for path in state.needed} - needed):
            if self.rng.random() < 0.7:
                self.io.delete(path)

    def plant(self) -> None:
        """Create orphan files of every kind and age, files with unknown names, and files of a commit in progress."""
        self._pass(30)
        places = {
            "manifest": (
                f"manifest-{self._uuid()}-0",
                f"manifest-list-{self._uuid()}-1",
                f"index-manifest-{self._uuid()}-0",
            ),
            "index": (f"index-{self._uuid()}-0",),
            "statistics": (f"stat-{self._uuid()}-0",),
            "snapshot": (f".snapshot-77.{self._uuid()}.tmp",),
        }
        for _ in range(self.rng.randint(1, 6)):
            age = self.rng.choice((1, 20, 30, 60, 100)) * HOUR
            if self.rng.random() < 0.5:
                paths = self._new_file(age).paths
            else:
                place = self.rng.choice(sorted(places))
                paths = [f"{ROOT}/{place}/{self.rng.choice(places[place])}"]
                self.io.put(paths[0], b"", self.io.now_ms - age)
            self.strays.update(paths)
        for name in self.rng.sample(("notes.txt", "bucket-0/data.parquet", "manifest/list", "snapshot/old", "x/y"), 2):
            self.io.put(f"{ROOT}/{name}", b"", self.io.now_ms - 9 * DAY)
            self.stays.add(f"{ROOT}/{name}")
        # Files of a commit that takes longer than the age that is asked for are lost in direct mode, as Paimon loses them.
        age = 20 if self.direct else self.rng.choice((1, 20, 50, 200))
        self.flying = [self._new_file(age * HOUR) for _ in range(0 if self.plain else self.rng.randint(0, 2))]

    def land(self) -> None:
        """Complete the commit in progress."""
        if self.flying:
            files, self.flying = self.flying, []
            self.commit(files)

    # -- what is true of it ----------------------------------------------------------------------------------------------

    def needed(self) -> set[str]:
        """Return the paths of all files that must stay.

        These are the files of snapshots, tags, branches and changelogs, files with unknown names, and files of the
        commit in progress unless files are deleted directly.
        """
        states = [
            *self.snapshots.values(),
            *self.tags.values(),
            *(item for line in self.branches.values() for item in line),
        ]
        found = {path for state in states for path in state.needed}
        for state in self.kept_changelogs.values():
            found |= state.told_metadata | {path for file in state.told for path in file.paths}
        found |= {path for file in self.flying for path in file.paths} if not self.direct else set()
        return found | self.stays

    def named(self) -> set[str]:
        """Return the bare file names in used manifests, including deleted entries; cleaning keeps these files."""
        states = [*self.snapshots.values(), *self.tags.values(), *self.kept_changelogs.values()]
        states += [item for line in self.branches.values() for item in line]
        names = {path.rpartition("/")[2] for path in self.needed()}
        for state in states:
            names |= {path.rpartition("/")[2] for path in state.needed}
            present = [meta for meta in state.manifests if self.io.exists(f"{ROOT}/manifest/{meta.file_name}")]
            for entries in manifests.iter_entries(self.store, present):
                names |= set(entries.column("file_name").to_pylist())
                names |= {name for beside in entries.column("extra_files").to_pylist() for name in beside}
        return names


def check(layout: Layout) -> str:
    """Remove the orphans of a layout during concurrent changes; return the outcome of the first plan.

    Asserts that no needed file is deleted and that no orphan file remains.
    """
    rng, io = layout.rng, layout.io
    skew = rng.choice((0, 0, rng.randint(-2 * DAY, 2 * DAY)))
    layout.clock.advance(io.now_ms + skew - layout.clock.now_ms())
    table = Table(layout.store)

    def whole(when: str) -> None:
        missing = layout.needed() - io.files.keys()
        assert not missing, f"seed {layout.seed}, {when}: {sorted(missing)} gone"

    whole("made")
    outcome = "planned"
    _disturb(layout)
    try:
        plan = table.plan_maintenance("orphans", max_share=100)
    except (PlanRefused, CorruptFile) as refused:
        outcome = refused.rule.value if isinstance(refused, PlanRefused) else "unreadable"
        _calm(io)
        plan = table.plan_maintenance("orphans", max_share=100)
    _calm(io)
    if rng.random() < 0.5:
        rng.choice((layout.land, layout.tag, layout.branch, layout.commit))()
    table.apply(plan)
    whole("applied")
    if rng.random() < 0.5:
        rng.choice((layout.land, layout.tag, layout.commit))()
    layout.land()
    for _ in range(2):
        layout._pass(50)
        layout.clock.advance(50 * HOUR)
        table.sweep_trash()
        whole("swept")
        table.apply(table.plan_maintenance("orphans", max_share=100))
        whole("applied again")
    layout._pass(50)
    layout.clock.advance(50 * HOUR)
    table.sweep_trash()
    whole("swept at last")
    kept = layout.named()
    left = {path for path in layout.strays & io.files.keys() if path.rpartition("/")[2] not in kept}
    reachable = {path for path in left if not (layout.shared and path.startswith("/outside/"))}
    assert not reachable, f"seed {layout.seed}: {sorted(reachable)} stay"
    strays = {path for path in io.files if "/bucket-" in path and path.rpartition("/")[2] not in kept}
    assert not {path for path in strays if path.startswith(ROOT)}, f"seed {layout.seed}: {sorted(strays)} stay"
    return outcome


def _disturb(layout: Layout) -> None:
    """Prepare a disturbance of planning: a concurrent change of the table, or an incomplete listing."""
    rng, io = layout.rng, layout.io
    chance = rng.random()
    if chance < 0.25:
        when = rng.randint(1, 60)
        events: list[Callable[[], object]] = [rng.choice((layout.land, layout.commit, layout.tag, layout.branch))]

        def before(step: str, _path: str) -> None:
            nonlocal when
            when -= 1
            if when <= 0 and events:
                events.pop()()

        io.before = before
    elif chance < 0.5 and not layout.direct:
        ending = rng.choice(("/snapshot", "/tag", "/branch", "/manifest", "/bucket-0", "/bucket-1", "/changelog", ROOT))
        times, everything = rng.choice((1, 2, 99)), rng.random() < 0.5

        def lie(path: str, truth: list[FileStatus]) -> list[FileStatus]:
            nonlocal times
            if not path.endswith(ending) or times <= 0:
                return truth
            times -= 1
            return [] if everything or not truth else truth[:-1]

        io.lie = lie


def _calm(io: MemoryFileIO) -> None:
    io.before = lambda _step, _path: None
    io.lie = lambda _path, truth: truth


__all__ = ["Layout", "check"]
