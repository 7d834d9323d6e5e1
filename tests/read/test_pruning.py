"""Pruning hides nothing and spares reading: equal answers on random tables and filters, and manifests counted."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.commit import Committer
from lsm_core.compact import run_bucket_task
from lsm_core.format.manifest import table_to_entries
from lsm_core.format.schema import DataField
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.read import Split, parse_filter, plan_scan, to_arrow
from lsm_core.read.prune import keeps_order
from lsm_core.types import parse
from tests.metadata import tables as metadata_tables
from tests.support.samples import examples
from tests.support.stores import full_tasks, make_store, read, unit_task, write

POOLS: dict[str, list[Any]] = {
    "INT": [-5, 0, 1, 2, 3, 50, 2**31 - 1, None],
    "BIGINT": [-(2**40), -1, 0, 7, 2**40, None],
    "STRING": ["", "a", "abc", "abd", "b", "zebra", "é", "\U0010ffff", "\U0010ffff\U0010ffffx", None],
    "VARCHAR(4)": ["", "a", "ab", "zzzz", None],
    "DOUBLE": [float("nan"), -0.0, 0.0, 1.5, -3.25, float("inf"), None],
    "FLOAT": [float("nan"), -0.0, 0.0, 1.5, -3.25, None],
    "BOOLEAN": [True, False, None],
    "DECIMAL(9, 2)": [Decimal("-1.25"), Decimal("0.00"), Decimal("7.50"), Decimal("9999999.99"), None],
    "DATE": [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2030, 1, 1), None],
    "TIMESTAMP(3)": [dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 2, 29, 1, 2, 3, 4000), None],
    "TIMESTAMP(6)": [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 2, 29), None],
}
WIDER = {
    "INT": "BIGINT",
    "FLOAT": "DOUBLE",
    "VARCHAR(4)": "VARCHAR(9)",
    "DECIMAL(9, 2)": "DECIMAL(12, 3)",
    "TIMESTAMP(3)": "TIMESTAMP(6)",
}
POOLS |= {
    "VARCHAR(9)": [*POOLS["VARCHAR(4)"], "zzzzz"],
    "DECIMAL(12, 3)": [*POOLS["DECIMAL(9, 2)"], Decimal("0.001")],
}
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


class Maker:
    """A random table, its history and random filters on it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = np.random.default_rng(seed)
        kinds = [str(kind) for kind in self.random.choice(list(POOLS), 4)]
        fields = {"p": "STRING", "k": "INT NOT NULL", "k2": "STRING NOT NULL"} | {
            f"v{i}": kind for i, kind in enumerate(kinds)
        }
        keyed, parted = bool(self.random.random() < 0.6), bool(self.random.random() < 0.5)
        partitions = ["p"] if parted else []
        keys = [*partitions, "k", "k2"] if keyed else []
        if keyed and parted:
            fields["p"] = "STRING NOT NULL"
        options = {
            "bucket": str(self.random.integers(1, 4)) if keyed else "-1",
            "metadata.stats-mode": self.pick(["none", "counts", "truncate(1)", "truncate(16)", "full"]),
            "metadata.stats-dense-store": self.pick(["true", "false"]),
            "source.split.target-size": self.pick(["1 b", "128 mb"]),
        }
        self.store = make_store(root, fields, keys, partitions, options)

    def pick(self, options: list[Any]) -> Any:
        return options[int(self.random.integers(0, len(options)))]

    def value(self, field: DataField) -> Any:
        pool = POOLS[str(field.type.with_nullable(nullable=True))]
        return self.pick([v for v in pool if v is not None] if not field.type.nullable else pool)

    def write(self) -> None:
        rows = int(self.random.integers(1, 8))
        columns = []
        for field in self.store.schema.fields:
            kind = self.store.schema.arrow_schema.field(field.name).type
            one_value = bool(self.random.random() < 0.4)  # narrow ranges are what prunes
            value = self.value(field)
            columns.append(pa.array([value if one_value else self.value(field) for _ in range(rows)], kind))
        kinds = None
        if self.store.schema.primary_keys:
            kinds = [self.pick(["+I", "+I", "+U", "-D"]) for _ in range(rows)]
        write(self.store, pa.table(columns, schema=self.store.schema.arrow_schema), kinds)

    def compact(self) -> None:
        if not self.store.schema.primary_keys or snapshots.latest(self.store) is None:
            return
        for task in full_tasks(self.store):
            names = [file.file_name for file in task.files]
            chosen = task if self.random.random() < 0.5 else None
            if chosen is None and all(file.level == 0 for file in task.files):
                chosen = unit_task(self.store, task.partition, task.bucket, names, int(self.random.integers(1, 5)))
            if chosen is not None:
                Committer(self.store).commit([run_bucket_task(self.store, chosen).message])

    def evolve(self) -> None:
        schema = self.store.schema
        at = int(self.random.integers(3, len(schema.fields))) if len(schema.fields) > 3 else None
        fields, highest = list(schema.fields), schema.highest_field_id
        what = self.pick(["add", "rename", "widen", "drop", "move"])
        if what == "add" or at is None:
            highest += 1
            fields.append(DataField(highest, f"n{highest}", parse(self.pick(list(POOLS)))))
        elif what == "rename":
            fields[at] = dataclasses.replace(fields[at], name=f"r{schema.id}")
        elif what == "widen":
            wider = WIDER.get(str(fields[at].type))
            fields[at] = dataclasses.replace(fields[at], type=parse(wider)) if wider else fields[at]
        elif what == "drop":
            del fields[at]
        else:
            fields.insert(3, fields.pop(at))
        following = dataclasses.replace(schema, id=schema.id + 1, fields=tuple(fields), highest_field_id=highest)
        assert write_schema(self.store.file_io, self.store.root, following)
        self.store = self.store.refresh()

    def filter(self) -> object:
        groups = [[self.test() for _ in range(self.random.integers(1, 3))] for _ in range(self.random.integers(1, 3))]
        if self.random.random() < 0.7:
            return groups
        predicate = parse_filter(groups, self.store.schema, "db.t")
        assert predicate is not None
        return ~predicate.expression if self.random.random() < 0.3 else predicate.expression

    def test(self) -> tuple[Any, ...]:
        field = self.pick(list(self.store.schema.fields))
        kind = str(field.type.with_nullable(nullable=True))
        choice = self.random.random()
        if choice < 0.15:
            return field.name, self.pick(["is null", "is not null"])
        values = [v for v in POOLS[kind] if v is not None]
        if choice < 0.3:
            return field.name, self.pick(["in", "not in"]), [self.pick(values) for _ in range(3)]
        if choice < 0.4 and kind in ("STRING", "VARCHAR(4)"):
            return field.name, "starts with", self.pick(["a", "ab", "z", "\U0010ffff"])
        return field.name, self.pick(list(OPERATORS)), self.pick(values)


def as_counter(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_pruned_reads_are_the_filtered_whole(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Random tables with random histories of writes, compactions and schema changes; random filters."""
    maker = Maker(seed, tmp_path_factory.mktemp("t"))
    for _ in range(int(maker.random.integers(2, 7))):
        step = maker.random.random()
        if step < 0.2:
            maker.evolve()
        elif step < 0.4:
            maker.compact()
        else:
            maker.write()
    for number in [None, *snapshots.list_ids(maker.store)][:3]:
        scan = plan_scan(maker.store, snapshot_id=number)
        whole = to_arrow(maker.store, scan)
        for _ in range(6):
            asked = maker.filter()
            try:
                predicate = parse_filter(asked, scan.schema, "db.t")
            except Exception:
                continue
            assert predicate is not None
            expected = whole.filter(predicate.expression)
            found = read(maker.store, filter=asked, snapshot_id=number)
            assert as_counter(found) == as_counter(expected), (asked, number)


def test_statistics_of_an_older_schema_prune_only_where_the_cast_keeps_the_order() -> None:
    kept = [("INT", "BIGINT"), ("TINYINT", "DOUBLE"), ("INT", "DECIMAL(12, 2)"), ("FLOAT", "DOUBLE"), ("CHAR(3)", "STRING"),
            ("DECIMAL(9, 2)", "DECIMAL(12, 3)"), ("TIMESTAMP(3)", "TIMESTAMP(6)"), ("VARCHAR(3)", "VARCHAR(4)"), ("INT", "INT NOT NULL")]  # fmt: skip
    lost = [("BIGINT", "INT"), ("INT", "STRING"), ("STRING", "INT"), ("BIGINT", "DOUBLE"), ("INT", "FLOAT"), ("INT", "DECIMAL(11, 2)"),
            ("DECIMAL(9, 2)", "DECIMAL(9, 3)"), ("DECIMAL(9, 2)", "DECIMAL(9, 1)"), ("TIMESTAMP(6)", "TIMESTAMP(3)"), ("VARCHAR(4)", "VARCHAR(3)"),
            ("DOUBLE", "FLOAT"), ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"), ("BOOLEAN", "INT"), ("STRING", "CHAR(9)"), ("DATE", "STRING")]  # fmt: skip
    assert [pair for pair in kept if not keeps_order(parse(pair[0]), parse(pair[1]))] == []
    assert [pair for pair in lost if keeps_order(parse(pair[0]), parse(pair[1]))] == []


def _files(store: TableStore, asked: object) -> int:
    return sum(split.file_count for split in plan_scan(store, filter=asked).splits)


def test_a_value_filter_never_hides_the_newer_version_of_a_row(tmp_path: Path) -> None:
    """An older file matches, the newer one does not: both must be read. Whole buckets go when no file matches."""
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    write(store, pa.table({"k": [1, 2], "v": [10, 20]}))
    write(store, pa.table({"k": [1], "v": [99]}))
    assert _files(store, [("v", "=", 10)]) == 2
    assert read(store, filter=[("v", "=", 10)]).num_rows == 0
    assert _files(store, [("v", "=", 1000)]) == 0
    assert _files(store, [("v", "=", 99), ("k", "=", 1)]) == 2
    assert _files(store, [("v", "=", 10), ("k", "=", 2)]) == 1, "the newer file has no key 2"


def test_a_bucket_of_one_level_is_pruned_file_by_file(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    for start in (0, 10):
        write(store, pa.table({"k": range(start, start + 10), "v": range(start, start + 10)}))
        newest = snapshots.latest(store)
        assert newest is not None
        fresh = [e for e in table_to_entries(manifests.live_entries(store, newest)) if e.file.level == 0]
        task = unit_task(store, fresh[0].partition, 0, [fresh[0].file.file_name], 5)
        Committer(store).commit([run_bucket_task(store, task).message])
    assert _files(store, None) == 2
    assert _files(store, [("v", ">", 12)]) == 1
    assert sorted(read(store, filter=[("v", ">", 17)]).column("v").to_pylist()) == [18, 19]


def test_planning_one_partition_reads_only_the_manifests_that_can_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 partitions in 40 manifests: whichever way the partition is named, one manifest is read."""
    store = metadata_tables.make_store(
        tmp_path, {"dt": "INT", "k": "BIGINT NOT NULL", "v": "INT"}, (), ("dt",), {"bucket": "-1"}
    )
    metas = []
    for number in range(40):
        made = [metadata_tables.entry(store, f"f{d}.parquet", 0, [d]) for d in range(number * 25, number * 25 + 25)]
        metas += manifests.write_manifests(store, metadata_tables.table_of(*made))
    snapshot = metadata_tables.publish(store, 1, None, metadata_tables.table_of())
    base, size = manifests.write_list(store, metas)
    listed = dataclasses.replace(snapshot, base_manifest_list=base, base_manifest_list_size=size)
    store.file_io.delete(store.snapshot_path(1))
    assert store.file_io.write_exclusive(store.snapshot_path(1), listed.to_json())
    opened: list[str] = []
    reads = type(store.file_io).read_bytes
    monkeypatch.setattr(
        type(store.file_io), "read_bytes", lambda io, path, *rest: opened.append(path) or reads(io, path, *rest)
    )
    wanted: list[dict[str, object]] = [
        {"filter": [("dt", "=", 500)]},
        {"filter": [("dt", "in", [500, 501])]},
        {"filter": [("dt", ">", 499), ("dt", "<=", 503)]},
        {"filter": (pc.field("dt") >= 500) & (pc.field("dt") < 501) & (pc.field("v") > 3)},
        {"partitions": [{"dt": 500}]},
    ]
    for choice in wanted:
        opened.clear()
        scan = plan_scan(store, **choice)  # type: ignore[arg-type]
        assert scan.splits
        assert len([path for path in opened if "/manifest-" in path and "/manifest-list-" not in path]) == 1, choice
    opened.clear()
    assert plan_scan(store, filter=[("dt", "=", 5_000)]).splits == ()
    assert not [path for path in opened if "/manifest-" in path and "/manifest-list-" not in path]


def test_many_files_are_cut_without_making_an_object_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = metadata_tables.make_store(tmp_path, {"k": "BIGINT NOT NULL", "v": "INT"}, ("k",))
    made = [metadata_tables.entry(store, f"f{n}.parquet", 0, (), n % 2, n % 3, (n, n + 3)) for n in range(60)]
    metadata_tables.publish(store, 1, None, metadata_tables.table_of(*made))
    from lsm_core.format import entry_files

    loads: list[int] = []
    make = entry_files.columns_to_files
    monkeypatch.setattr(entry_files, "columns_to_files", lambda part: loads.append(part.num_rows) or make(part))
    splits = plan_scan(store).splits
    sent = [split.to_bytes() for split in splits]
    assert loads == []
    assert sum(split.file_count for split in splits) == 60
    assert len({file.file_name for split in splits for file in split.files}) == sum(loads) == 60
    assert [Split.from_bytes(data) for data in sent] == list(splits)
