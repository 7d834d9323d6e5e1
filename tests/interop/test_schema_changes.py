"""The same steps by Dredge and by Java Paimon: the same schema files, or both refuse. One JVM for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import SchemaChange
from lsm_core.errors import InvalidSchema
from lsm_core.options.table_options import PaimonVersion
from tests.interop.schema_twins import COLUMNS, DEEP, NESTED, ROW, TYPES, Both, C, Java, RandomSteps, Step, as_change
from tests.support.peers import java_paimon, refusal_of
from tests.support.samples import one_in


@pytest.fixture(autouse=True)
def _any_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about schemas, whatever readers and writers can do with them."""
    monkeypatch.setattr("lsm_core.table.catalog.require_possible", lambda store, purpose: None)
    monkeypatch.setattr("lsm_core.table.catalog.unsupported", lambda store, purpose: [])


@pytest.fixture
def both(java: Java, tmp_path: Path) -> Both:
    return Both(java, tmp_path)


HISTORIES: dict[str, list[list[Step]]] = {
    "columns come and go": [
        [C("add_column", name="c", type="DOUBLE", comment="said")],
        [C("add_column", name="f", type="VARCHAR(10)", move={"type": "first"})],
        [C("add_column", name="g", type=DEEP, move={"type": "after", "ref": "k"})],
        [C("add_column", name="h", type="DATE", move={"type": "before", "ref": "dt"}), C("drop_column", name="v")],
        [C("drop_column", name="g"), C("add_column", name="g", type="INT")],
        [C("add_column", name="z", type={"type": "MAP", "key": "INT NOT NULL", "value": DEEP}, move={"type": "last"})],
    ],
    "inside rows, arrays and maps": [
        [C("add_column", name=["r", "q"], type="DATE", move={"type": "after", "ref": "x"}, comment="deep")],
        [C("add_column", name=["r", "l", "element", "q"], type=ROW)],
        [C("rename_column", name=["r", "l", "element", "q"], to="w")],
        [C("update_type", name=["r", "l", "element", "w", "x"], type="BIGINT")],
        [C("drop_column", name=["r", "l", "element", "w", "x"])],
        [C("add_column", name=["m", "value", "z"], type="BOOLEAN", move={"type": "first"})],
        [C("update_type", name=["a", "element"], type="BIGINT")],
        [C("update_nullability", name=["ar", "element", "y"], nullable=True)],
        [C("update_column_comment", name=["m", "value", "x"], comment="inner")],
        [C("update_default", name=["r", "x", "x"], default="4")],
        [C("drop_column", name=["r", "x"])],
    ],
    "types, nullability, comments, defaults": [
        [C("update_type", name="n", type="BIGINT"), C("update_comment", comment="what it is")],
        [C("update_type", name="d", type="DECIMAL(12, 4)")],
        [C("update_type", name="n", type="STRING")],
        [C("set_option", key="alter-column-null-to-not-null.disabled", value="false")],
        [C("update_nullability", name="v", nullable=False), C("update_type", name="b", type="INT NOT NULL")],
        [C("update_nullability", name="v", nullable=True)],
        [C("update_column_comment", name="v", comment="words"), C("update_column_comment", name="k", comment="")],
        [C("update_column_comment", name="v"), C("update_comment")],
        [C("update_default", name="n", default="x"), C("update_default", name="t", default="2024-01-01 10:00:00")],
        [C("update_default", name="n")],
        [C("update_type", name="t", type="TIMESTAMP(6)", keep_nullability=True)],
    ],
    "names and places": [
        [C("rename_column", name="k", to="key"), C("rename_column", name="n", to="number")],
        [C("update_position", name="r", move={"type": "first"})],
        [C("update_position", name="r", move={"type": "after", "ref": "dt"})],
        [C("update_position", name="v", move={"type": "before", "ref": "a"})],
        [C("update_position", name="key", move={"type": "last"})],
        [C("rename_column", name="v", to="n"), C("rename_column", name="r", to="v")],
        [C("set_option", key="fields.v.ignore-retract", value="true"), C("set_option", key="my.own", value="x")],
        [C("remove_option", key="fields.v.ignore-retract"), C("set_option", key="write-only", value="true")],
    ],
}


@pytest.mark.paimon_java
@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_the_same_steps_make_the_same_schema_files(both: Both, name: str) -> None:
    message = both.create(
        COLUMNS, ["k", "dt"], ["dt"], {"bucket": "2", "sequence.field": "n", "bucket-key": "k"}, "first"
    )
    assert message == ("", "")
    for steps in HISTORIES[name]:
        assert both.alter(steps) == ("", ""), steps
        both.agree()
    assert both.schemas("d") == both.schemas("j")
    # Both ways: each reads on from what the other wrote last.
    theirs, ours = (both.folder(engine) / "schema" for engine in "jd")
    last = f"schema-{len(HISTORIES[name])}"
    (theirs / last).write_text((ours / last).read_text())
    assert both.alter([C("add_column", name="on", type="INT")]) == ("", "")
    both.agree()


REFUSED_CHANGES = [
    C("add_column", name="c", type="INT NOT NULL"),
    C("add_column", name="v", type="INT"),
    C("add_column", name=["r", "x"], type="INT"),
    C("add_column", name=["q", "x"], type="INT"),
    C("add_column", name="c", type="INT", move={"type": "after", "ref": "q"}),
    C("add_column", name="_SEQUENCE_NUMBER", type="INT"),
    C("add_column", name="_KEY_x", type="INT"),
    C("add_column", name=" ", type="INT"),
    C("rename_column", name="dt", to="c"),
    C("rename_column", name="v", to="n"),
    C("rename_column", name="v", to="v"),
    C("rename_column", name="q", to="c"),
    C("rename_column", name="v", to="rowkind"),
    C("drop_column", name="k"),
    C("drop_column", name="dt"),
    C("drop_column", name="q"),
    C("drop_column", name="n"),  # sequence.field
    C("update_type", name="k", type="INT NOT NULL"),
    C("update_type", name="dt", type="INT NOT NULL"),
    C("update_type", name="n", type="DATE"),
    C("update_type", name="n", type="BIGINT NOT NULL"),
    C("update_type", name="q", type="INT"),
    C("update_type", name="a", type={"type": "ARRAY", "element": "BIGINT"}),
    C("update_type", name=["r", "x", "q"], type="INT"),
    C("update_nullability", name="k", nullable=True),
    C("update_nullability", name="v", nullable=False),
    C("update_nullability", name=["ar", "element"], nullable=False),
    C("update_default", name="n", default="many"),
    C("update_default", name="b", default="maybe"),
    C("update_position", name="q", move={"type": "first"}),
    C("update_position", name="k", move={"type": "first"}),
    C("update_position", name="v", move={"type": "after", "ref": "v"}),
    C("update_position", name="v", move={"type": "after", "ref": "q"}),
    C("set_option", key="merge-engine", value="first-row"),
    C("set_option", key="bucket", value="-1"),
    C("remove_option", key="bucket"),
    C("set_option", key="bucket-key", value="v"),
    C("set_option", key="primary-key", value="v"),
    C("set_option", key="deletion-vectors.enabled", value="true"),
    C("set_option", key="ignore-delete", value="false"),
    C("set_option", key="sequence.field", value="q"),
    C("set_option", key="sequence.field", value="n,n"),
    C("set_option", key="fields.q.ignore-retract", value="true"),
    C("set_option", key="rowkind.field", value="q"),
    C("set_option", key="record-level.time-field", value="v"),
    C("set_option", key="snapshot.num-retained.min", value="0"),
    C("set_option", key="changelog.num-retained.max", value="1"),
]


@pytest.mark.paimon_java
def test_both_refuse_the_same_changes_of_a_table_with_snapshots(both: Both) -> None:
    options = {"bucket": "2", "sequence.field": "n", "ignore-delete": "true"}
    assert both.create(COLUMNS, ["k", "dt"], ["dt"], options) == ("", "")
    both.write_a_row()
    for step in REFUSED_CHANGES:
        theirs, ours = both.alter([C("update_comment", comment="half"), step])
        assert theirs and ours, (step, theirs, ours)
    assert len(both.schemas("d")) == len(both.schemas("j")) == 1
    assert both.alter([C("set_option", key="bucket", value="4"), C("add_column", name="c", type="INT")]) == ("", "")
    both.agree()


@pytest.mark.paimon_java
@pytest.mark.parametrize("key", ["ignore-delete", "ignore-update-before"])
def test_both_let_an_option_go_that_ignores_retracts(both: Both, key: str) -> None:
    assert both.create(COLUMNS, ["k", "dt"], ["dt"], {"bucket": "2", key: "true"}) == ("", "")
    both.write_a_row()
    theirs, ours = both.alter([C("set_option", key=key, value="false")])
    assert "from true to false" in theirs and "back from true" in ours
    assert both.alter([C("remove_option", key=key)]) == ("", "")
    both.agree()


PLAIN = [("k", "INT NOT NULL"), ("v", "STRING"), ("n", "INT"), ("dt", "STRING")]
REFUSED_TABLES: dict[str, tuple[list[tuple[str, Any]], list[str], list[str], dict[str, str]]] = {
    "array as key": ([("a", {"type": "ARRAY NOT NULL", "element": "INT"}), *PLAIN], ["a"], [], {"bucket": "1"}),
    "row as partition": ([("a", ROW), *PLAIN], [], ["a"], {}),
    "key is the partition": (PLAIN, ["dt"], ["dt"], {"bucket": "1"}),
    "bucket key without buckets": (PLAIN, [], [], {"bucket-key": "n"}),
    "buckets without key": (PLAIN, [], [], {"bucket": "2"}),
    "nested bucket key": ([("a", ROW), *PLAIN], [], [], {"bucket": "2", "bucket-key": "a"}),
    "bucket key not in the key": (PLAIN, ["k"], [], {"bucket": "2", "bucket-key": "v"}),
    "bucket key in the partition": (PLAIN, ["k", "dt"], ["dt"], {"bucket": "2", "bucket-key": "dt"}),
    "bucket key of append in the partition": (PLAIN, [], ["dt"], {"bucket": "2", "bucket-key": "dt"}),
    "unknown bucket key": (PLAIN, [], [], {"bucket": "2", "bucket-key": "q"}),
    "no bucket": (PLAIN, ["k"], [], {"bucket": "0"}),
    "mode of 2.1": (PLAIN, ["k"], [], {"bucket": "1", "scan.mode": "latest-delta"}),
    "postponed append": (PLAIN, [], [], {"bucket": "-2"}),
    "sequence twice": (PLAIN, ["k"], [], {"bucket": "1", "sequence.field": "n,n"}),
    "sequence aggregated": (
        PLAIN,
        ["k"],
        [],
        {"bucket": "1", "sequence.field": "n", "fields.n.aggregate-function": "sum"},
    ),
    "sequence and first row": (PLAIN, ["k"], [], {"bucket": "1", "sequence.field": "n", "merge-engine": "first-row"}),
    "option of an unknown column": (PLAIN, ["k"], [], {"bucket": "1", "fields.q.ignore-retract": "true"}),
    "changelog of append": (PLAIN, [], [], {"changelog-producer": "input"}),
    "first row and input": (
        PLAIN,
        ["k"],
        [],
        {"bucket": "1", "merge-engine": "first-row", "changelog-producer": "input"},
    ),
    "vectors and full compaction": (
        PLAIN,
        ["k"],
        [],
        {"bucket": "1", "deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"},
    ),
    "expiry without partitions": (PLAIN, ["k"], [], {"bucket": "1", "partition.expiration-time": "1 d"}),
    "time field of text": (
        PLAIN,
        ["k"],
        [],
        {"bucket": "1", "record-level.expire-time": "1 d", "record-level.time-field": "v"},
    ),
    "retained": (PLAIN, ["k"], [], {"bucket": "1", "snapshot.num-retained.min": "5", "snapshot.num-retained.max": "3"}),
    "overwrites streamed": (PLAIN, [], [], {"streaming-read-overwrite": "true"}),
    "row tracking with key": (PLAIN, ["k"], [], {"bucket": "1", "row-tracking.enabled": "true"}),
    "nanoseconds in avro": ([*PLAIN, ("t", "TIMESTAMP(9)")], ["k"], [], {"bucket": "1", "file.format": "avro"}),
    "reserved name": ([*PLAIN, ("_LEVEL", "INT")], ["k"], [], {"bucket": "1"}),
    "twice inside": (
        [*PLAIN, ("r", {**ROW, "fields": [ROW["fields"][0], ROW["fields"][0]]})],
        ["k"],
        [],
        {"bucket": "1"},
    ),
}


@pytest.mark.paimon_java
def test_both_refuse_the_same_tables(both: Both) -> None:
    for name, table in REFUSED_TABLES.items():
        theirs, ours = both.create(*table)
        if name == "expiry without partitions" and java_paimon().at_least(PaimonVersion.V2_0):
            assert ours, "Dredge alone refuses a new one"
            assert not theirs, theirs
            both.catalog.alter_table(f"db.j{both.number}", [SchemaChange.set_option("file.compression", "snappy")])
            continue
        assert theirs and ours, (name, theirs, ours)
        assert not both.folder("d").exists(), name


@pytest.mark.paimon_java
@pytest.mark.parametrize("explicit", [True, False], ids=["explicit", "implicit"])
def test_every_type_becomes_what_java_lets_it_become(both: Both, explicit: bool) -> None:
    options = {} if explicit else {"disable-explicit-type-casting": "true"}
    differing = []
    for source in (*TYPES, *NESTED):
        columns = [(f"c{number}", source) for number in range(len(TYPES))]
        assert both.create([("k", "INT"), *columns], [], [], options) == ("", "")
        for number, target in enumerate(TYPES):
            if source != target:
                theirs, ours = both.alter([C("update_type", name=f"c{number}", type=target)])
                differing += [(source, target, theirs, ours)] if bool(theirs) != bool(ours) else []
        if not differing:
            both.agree()
    assert differing == []


@pytest.mark.paimon_java
def test_what_java_narrows_reads_as_java_reads_it_and_is_not_narrowed_here(both: Both) -> None:
    table, narrower = "db.narrow", [C("update_type", name="v", type="TINYINT")]
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
    both.java("create", table=table, schema={"fields": fields, "primaryKeys": ["k"], "options": {"bucket": "1"}})
    both.java("write", table=table, rows=[{"k": 1, "v": 300}])
    with pytest.raises(InvalidSchema, match="'v' of type INT cannot become TINYINT: it holds 300"):
        both.catalog.alter_table(table, [as_change(step) for step in narrower])
    both.java("alter", table=table, changes=narrower)
    theirs = both.java("read", table=table)["rows"]
    assert [row["v"] for row in theirs] == both.catalog.table(table).to_arrow()["v"].to_pylist() == [44]
    both.java("alter", table=table, changes=[C("set_option", key="disable-explicit-type-casting", value="true")])
    strict = [C("update_type", name="v", type="BOOLEAN")]
    assert refusal_of(lambda: both.java("alter", table=table, changes=strict))


@pytest.mark.paimon_java
@pytest.mark.parametrize("seed", one_in(12, range(24)))
def test_random_histories_are_the_same_in_both(both: Both, seed: int) -> None:
    assert both.create(COLUMNS, ["k", "dt"], ["dt"], {"bucket": "2", "sequence.field": "n"}) == ("", "")
    steps = RandomSteps(seed)
    done = 0
    for _ in range(40):
        drawn = steps.steps(both.schemas("j")[-1])
        theirs, ours = both.alter(drawn)
        assert bool(theirs) == bool(ours), (seed, drawn, theirs, ours)
        done += not ours
        mine, yours = both.schemas("d")[-1], both.schemas("j")[-1]
        # Java writes a schema anew that says what the last one said; ids of schemas differ from then on.
        assert {**mine, "id": 0} == {**yours, "id": 0}, (seed, drawn)
    assert done > 10
