"""Random lives of a long-lived writer among others: whatever interleaves, the table says what a dictionary says, and no file is left."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage
from lsm_core.metadata import manifests
from tests.support.samples import examples
from tests.support.stores import data_files_on_disk

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
ENGINES = {
    "deduplicate": {},
    "sums": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
}
OWN = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9), st.booleans()), min_size=1, max_size=6)
FOREIGN = st.lists(st.tuples(st.integers(100, 103), st.integers(1, 9), st.booleans()), min_size=1, max_size=3)
STEP = st.one_of(
    st.tuples(st.just("write"), OWN),
    st.tuples(st.just("write"), OWN),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("prepare"), st.booleans()),
    st.tuples(st.just("prepare"), st.booleans()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("others compact"), st.booleans()),
    st.tuples(st.just("others write"), FOREIGN),
    st.tuples(st.just("reopen"), st.none()),
)
Changes = list[tuple[int, int, bool]]


@dataclass
class Life:
    """A table, its stream writer, and what the table must say."""

    table: Table
    sums: bool
    model: dict[int, int] = field(default_factory=dict)
    buffered: Changes = field(default_factory=list)
    pending: dict[int, tuple[list[CommitMessage], Changes]] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.writer = self.table.new_stream_write("job")

    def run(self, what: str, given: Any) -> None:
        """One step, and whether the table still says what it must."""
        getattr(self, what.replace(" ", "_"))(given)
        found = self.table.to_arrow()
        assert dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True)) == self.model

    def write(self, changes: Changes) -> None:
        data, kinds = self.rows(changes)
        self.writer.write(data, kinds)
        self.buffered += changes

    def compact(self, full: bool) -> None:
        self.writer.compact({}, 0, full=full)

    def prepare(self, wait: bool) -> None:
        self.number += 1
        messages = self.writer.prepare_commit(wait_compaction=wait, commit_identifier=self.number)
        self.pending[self.number] = (messages, self.buffered)
        self.buffered = []

    def commit(self, _: None) -> None:
        commit = self.table.new_stream_commit("job")
        commit.filter_and_commit({number: messages for number, (messages, _) in self.pending.items()})
        for _, changes in self.pending.values():
            self.apply(changes)
        self.pending.clear()

    def others_compact(self, full: bool) -> None:
        self.table.compact(full=full)

    def others_write(self, changes: Changes) -> None:
        data, kinds = self.rows(changes)
        self.table.write(data, row_kinds=kinds)
        self.apply(changes)

    def reopen(self, _: None) -> None:
        self.writer.close()
        self.buffered = []
        self.commit(None)
        self.writer = self.table.new_stream_write("job")

    def rows(self, changes: Changes) -> tuple[pa.Table, pa.Array]:
        keys, values, gone = zip(*changes, strict=True)
        kinds = ["-D" if deleted and not self.sums else "+I" for deleted in gone]
        return pa.table([pa.array(keys), pa.array(values)], schema=FIELDS), pa.array(kinds)

    def apply(self, changes: Changes) -> None:
        for key, value, deleted in changes:
            if self.sums:
                self.model[key] = self.model.get(key, 0) + value
            elif deleted:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    def end(self) -> None:
        """Everything is committed; no file lies about that no snapshot named."""
        self.reopen(None)
        self.writer.close()
        names: set[str] = set()
        for snapshot in self.table.snapshots():
            names |= set(manifests.delta_entries(self.table.store, snapshot).column("file_name").to_pylist())
        assert {Path(path).name for path in data_files_on_disk(self.table.store)} <= names


@pytest.mark.parametrize("engine", sorted(ENGINES))
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=3, max_size=14))
def test_any_life_among_others_reads_like_a_dictionary(engine: str, steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog(folder)
        catalog.create_database("db")
        options = {
            "bucket": "1",
            "num-sorted-run.compaction-trigger": "2",
            "target-file-size": "1 kb",
            **ENGINES[engine],
        }
        catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options=options))
        life = Life(catalog.table("db.t"), sums=engine == "sums")
        try:
            for what, given_ in steps:
                life.run(what, given_)
            life.end()
        finally:
            life.writer.close()
