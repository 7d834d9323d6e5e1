"""Random histories written, compacted and read by the real Java Paimon, and merged by Dredge's kernels: one answer."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from lsm_core.errors import DredgeError
from lsm_core.maintenance.reference import Row, key_order, merge_by_key
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.versions import sort_in_merge_order
from lsm_core.merge import RunInput, merge_function, merge_streams
from lsm_core.options.table_options import PAIMON_VERSION, PaimonVersion
from lsm_core.types import to_json
from tests.interop.histories.left_out import later_version, rule_of
from tests.interop.histories.values import from_json_value, to_json_value
from tests.merge.random_histories import arrow_schema, to_batch, to_rows
from tests.merge.random_tables import JAVA_POOLS, NESTED, Pool, RandomTable, random_table
from tests.support.peers import java_paimon
from tests.support.samples import sample

Java = Callable[..., dict[str, Any]]
Choose = Callable[[random.Random, dict[str, Pool]], RandomTable]
KEYS = 40
KINDS = ("+I", "-U", "+U", "-D")


class Story:
    """One table and what is written to it, in order of arrival; ``compact_after`` that many writes everything is compacted."""

    def __init__(self, seed: int, left_out: Counter[str], choose: Choose = random_table) -> None:
        rng = random.Random(seed)
        table = choose(rng, JAVA_POOLS)
        later = later_version(table)
        left_out.update(later.values())
        self.columns_left_out, self.columns = len(later), len(table.names)
        while later:
            table = choose(rng, JAVA_POOLS)
            later = later_version(table)
        self.table, self.seed = table, seed
        self.ignores = table.options.get("ignore-delete") == "true"
        count = rng.randint(2, 5)
        self.compact_after = rng.randint(1, count)
        chosen = [tuple(table.pools[name](rng) for name in table.keys) for _ in range(KEYS)]
        keys = list({key_order(key): key for key in chosen}.values())
        number = 0
        self.writes: list[list[Row]] = []
        for _ in range(count):
            rows = []
            for key in rng.choices(keys, k=rng.randint(KEYS // 2, 2 * KEYS)):
                rows.append(_row(rng, table, key, number))
                number += 1
            self.writes.append(rows)

    def shown(self, write: Sequence[Row]) -> list[Row]:
        """Rows that reach the write buffer: ignored deletes do not."""
        return [row for row in write if not (self.ignores and row.retracts)]

    def only(self, keys: set[Any]) -> None:
        """Forget all other keys."""
        self.writes = [[row for row in write if key_order(row.key) in keys] for write in self.writes]

    # -- by the reference and by the kernels ---------------------------------------------------------------------------

    def wanted(self, key: Any) -> Row | type[DredgeError] | None:
        """The answer for one key, step by step as rows travel, or the error."""
        schema, options = self.table.schema, self.table.options

        def merge(rows: Sequence[Row], *, drop: bool) -> list[Row]:
            return [row for row in merge_by_key(rows, schema, options, drop).values() if row is not None]

        try:
            mine = [[row for row in self.shown(write) if key_order(row.key) == key] for write in self.writes]
            files = [merge(rows, drop=False) for rows in mine]
            bottom = merge([row for file in files[: self.compact_after] for row in file], drop=True)
            last = merge([*bottom, *(row for file in files[self.compact_after :] for row in file)], drop=True)
        except DredgeError as error:
            return type(error)
        return last[0] if last else None

    def merged(self) -> dict[Any, Row]:
        """The answers of the kernels."""
        schema, shape = self.table.schema, arrow_schema(self.table.schema)
        function = merge_function(schema, self.table.options)

        def merge(batches: Sequence[pa.RecordBatch], *, drop: bool) -> pa.RecordBatch:
            inputs = [RunInput(iter((batch,)), 0, age) for age, batch in enumerate(batches)]
            found = pa.Table.from_batches(merge_streams(inputs, function, drop_delete=drop), shape).combine_chunks()
            return (found.to_batches() or [to_batch((), schema)])[0]

        files = [merge([to_batch(self._sorted(self.shown(write)), schema)], drop=False) for write in self.writes]
        bottom = merge(files[: self.compact_after], drop=True)
        return {key_order(r.key): r for r in to_rows(merge([bottom, *files[self.compact_after :]], drop=True), schema)}

    def _sorted(self, rows: Sequence[Row]) -> list[Row]:
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault(key_order(row.key), []).append(row)
        return [row for key in sorted(groups) for row in sort_in_merge_order(groups[key], self.table.descending)]

    # -- by Java -------------------------------------------------------------------------------------------------------

    def told(self, java: Java) -> list[dict[Any, Row]]:
        """What Java reads after all writes, and after compacting everything once more."""
        table, name = self.table, f"db.h{abs(self.seed)}"
        schema = table.schema
        fields = [{"name": f.name, "type": to_json(f.type)} for f in schema.fields]
        options = {**table.options, "bucket": "1", "write-only": "true"}
        java("create", table=name, schema={"fields": fields, "primaryKeys": table.keys, "options": options})
        for number, write in enumerate(self.writes, 1):
            if write:
                java("write", table=name, rows=[self._json(row) for row in write])
            if number == self.compact_after:
                self._compact(java, name)
        answers = []
        if table.options["merge-engine"] != "first-row":  # which is only read once it is compacted
            answers.append(self._read(java, name))
        self._compact(java, name)
        return [*answers, self._read(java, name)]

    def _compact(self, java: Java, name: str) -> None:
        java("compact", table=name, full=True, options={"write-only": "false"})

    def _json(self, row: Row) -> dict[str, Any]:
        fields = zip(self.table.schema.fields, row.values, strict=True)
        return {"_kind": KINDS[row.kind], **{f.name: to_json_value(value, f.type) for f, value in fields}}

    def _read(self, java: Java, name: str) -> dict[Any, Row]:
        schema, found = self.table.schema, {}
        for row in java("read", table=name)["rows"]:
            values = tuple(from_json_value(row.get(f.name), f.type) for f in schema.fields)
            key = tuple(values[schema.field_names.index(k)] for k in self.table.keys)
            found[key_order(key)] = Row(key, (), 0, 0, values)
        return found


def _row(rng: random.Random, table: RandomTable, key: tuple[Any, ...], number: int) -> Row:
    held = {name: table.value(rng, name) for name in table.names}
    held.update(zip(table.keys, key, strict=True))
    ordering = [name for name in table.options.get("sequence.field", "").split(",") if name]
    return Row(
        key,
        tuple(held[name] for name in ordering),
        number,
        rng.choice(table.kinds),
        tuple(held[name] for name in table.names),
    )


def _differences(story: Story, mine: dict[Any, Row], theirs: dict[Any, Row]) -> list[str]:
    answers = ResultComparison(story.table.schema, story.table.options)
    wrong = []
    for key in mine.keys() | theirs.keys():
        ours, java = mine.get(key), theirs.get(key)
        if ours is None or java is None or not answers.same(ours._replace(sequence=0, kind=0), java):
            versions = [
                f"  write {i}: {KINDS[row.kind]} {row.values}"
                for i, write in enumerate(story.writes, 1)
                for row in write
                if key_order(row.key) == key
            ]
            wrong.append("\n".join([*versions, f"dredge {ours and ours.values}", f"java   {java and java.values}"]))
    return wrong


def compare(seed: int, java: Java, left_out: Counter[str], counts: Counter[str], choose: Choose = random_table) -> None:
    """One table through both; what the rules leave out is counted."""
    story = Story(seed, left_out, choose)
    keys = {key_order(row.key) for write in story.writes for row in write}
    counts.update(columns=story.columns, columns_left_out=story.columns_left_out, histories=len(keys))
    kept = set()
    for key in keys:
        mine = [[row for row in story.shown(write) if key_order(row.key) == key] for write in story.writes]
        rule = rule_of(story.table, mine, story.wanted(key))
        if rule is None:
            kept.add(key)
        else:
            left_out[rule] += 1
    counts.update(compared=len(kept))
    story.only(kept)
    ours = story.merged()
    columns = ", ".join(f"{name} {story.table.types[name]}" for name in story.table.names)
    head = f"{columns}\n{story.table.options}\ncompacted after write {story.compact_after}\n{command(seed)}"
    for theirs in story.told(java):
        wrong = _differences(story, ours, theirs)
        assert not wrong, f"{len(wrong)} keys differ\n{head}\n{wrong[0]}"


def command(seed: int) -> str:
    return f"again: DREDGE_HISTORY_SEED={seed} python -m pytest tests/interop/histories"


@pytest.mark.paimon_java
@pytest.mark.parametrize("tables", sample((10, 100), (10).__eq__))
def test_java_gives_the_same_answers_to_random_histories(java: Java, tables: int) -> None:
    first = int(os.environ.get("DREDGE_HISTORY_SEED", "1"))
    left_out, counts = Counter[str](), Counter[str]()
    for seed in range(first, first + tables):
        compare(seed, java, left_out, counts)
    share = 1 - (1 - counts["columns_left_out"] / counts["columns"]) * (counts["compared"] / counts["histories"])
    print(f"{counts['compared']} of {counts['histories']} histories of {tables} tables; left out {share:.1%}:")
    for rule, count in left_out.most_common():
        print(f"  {count:4} {rule}")
    assert counts["compared"] >= 8 * tables
    assert share <= 0.2


def _of_several_versions(rng: random.Random, values: dict[str, Pool], version: PaimonVersion) -> RandomTable:
    """A table of the functions that later versions of Paimon changed, with all that 1.4 knows of their options."""
    grouped = rng.random() < 0.5
    table = RandomTable({"merge-engine": "partial-update" if grouped else "aggregation"}, values=values, refusals=False)
    table.column("k", "INT NOT NULL", lambda rng: rng.randint(0, 10_000))
    table.keys.append("k")
    limits = ("1", "2", "3", "5", None)
    made = [("nested_update", limit, "") for limit in limits]
    made += [("nested_update", limit, keys) for limit in ((None,) if grouped else limits) for keys in ("k", "k,v")]
    made += [("nested_partial_update", None, "k"), ("listagg", None, ""), ("merge_map_with_keytime", None, "")]
    for number, (function, limit, keys) in enumerate(rng.sample(made, 6)):
        name, prefix = f"c{number}", f"fields.c{number}."
        table.function(rng, name, (function,), retracts=True)
        given = {"count-limit": limit, "nested-key": keys or None}
        table.options = {
            key: value
            for key, value in table.options.items()
            if not key.startswith(prefix)
            or table.types[name] != NESTED
            or key.endswith(("-function", "ignore-retract"))
        } | {prefix + key: value for key, value in given.items() if value is not None}
        if function != "nested_update":
            table.options[prefix + "ignore-retract"] = "true"
    table.kinds = (0, 0, 0, 2, 1)
    if grouped:
        protected = [name for name in table.names if name != "k"]
        table.column("g", "INT", lambda rng: rng.randint(1, 4))
        table.options["fields.g.sequence-group"] = ",".join(protected)
    table.options[PAIMON_VERSION] = version
    return table


@pytest.mark.paimon_java
def test_java_gives_the_same_answers_where_later_versions_do_not(java: Java) -> None:
    first = int(os.environ.get("DREDGE_HISTORY_SEED", "1"))
    left_out, counts = Counter[str](), Counter[str]()
    choose = partial(_of_several_versions, version=java_paimon())
    for seed in range(first, first + 5):
        compare(seed, java, left_out, counts, choose)
    print(counts, left_out)
    assert counts["compared"] >= 80
