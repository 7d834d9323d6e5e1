"""The version of Paimon that a table follows is settled when it is opened, from its newest snapshots or from its option."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.maintenance.snapshot_exchange import build_cover
from lsm_core.metadata import TableStore, paimon_version
from lsm_core.metadata.support import Purpose, require_compactable, require_readable, require_writable, unsupported
from lsm_core.options import PaimonVersion
from lsm_core.storage import LocalFileIO
from tests.metadata.tables import entry, make_store, publish, table_of

KEY = "dredge.paimon-version"


JAVA_2_0, RUST = "a snapshot as Java 2.0.0 writes it", "a snapshot as pypaimon-rust writes it"
_UUID = "c1ef02d2-60e4-464e-b601-193b5f345840"


def written_by(store: TableStore, writers: Sequence[str | None]) -> TableStore:
    """The table with a snapshot of each of these writers, opened anew."""
    for number, writer in enumerate(writers, start=1):
        made = publish(store, number, None, table_of(entry(store, f"f{number}.parquet")))
        if writer in (JAVA_2_0, RUST):
            made = replace(made, uuid=_UUID)
            if writer == RUST:
                made = replace(made, base_manifest_list_size=None, delta_manifest_list_size=None)
        else:
            made = replace(made, writer_version=writer)
        Path(store.snapshot_path(number)).write_bytes(made.to_json())
    return store.refresh()


@pytest.mark.parametrize(
    ("writers", "followed", "reason"),
    [
        ([], "1.4", "the default"),
        ([None], "1.4", "snapshot 1 has neither a uuid nor a writerVersion, as Paimon 1.4 and before write it"),
        ([None, JAVA_2_0], "2.0", "snapshot 2 has a uuid and names no writer, as Paimon 2.0 writes it"),
        ([JAVA_2_0, "dredge-2.0"], "2.0", "snapshot 2 names its writer dredge-2.0"),
        ([JAVA_2_0, "java-2.1-SNAPSHOT-UNKNOWN"], "2.1", "snapshot 2 names its writer java-2.1-SNAPSHOT-UNKNOWN"),
        ([RUST], "1.4", "the default, no snapshot says which version wrote it"),
        ([JAVA_2_0, RUST], "2.0", "snapshot 1 has a uuid and names no writer, as Paimon 2.0 writes it"),
    ],
)
def test_a_uuid_without_a_writer_is_the_sign_of_2_0(
    tmp_path: Path, writers: list[str | None], followed: str, reason: str
) -> None:
    store = written_by(make_store(tmp_path), writers)
    assert store.options.paimon_version == followed
    judged = paimon_version.read_evidence(store.file_io, store.snapshot_dir)
    assert paimon_version.explain_version(store.options, store.version_found, judged) == f"{followed}: {reason}"


_AGGREGATED = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}


@pytest.mark.parametrize(
    ("writers", "options", "declined"),
    [
        ([JAVA_2_0, None], _AGGREGATED, True),
        ([JAVA_2_0, None, JAVA_2_0], _AGGREGATED, True),
        (["java-2.1.0", None], _AGGREGATED, True),
        ([None, JAVA_2_0], _AGGREGATED, False),  # an upgrade
        ([JAVA_2_0, RUST, JAVA_2_0], _AGGREGATED, False),
        (["java-2.1.0", JAVA_2_0], _AGGREGATED, False),  # both answer the same
        ([JAVA_2_0, None], {**_AGGREGATED, KEY: "2.0"}, False),
        ([JAVA_2_0, None], {}, False),
        ([JAVA_2_0, None], {**_AGGREGATED, "fields.v.aggregate-function": "max"}, False),
        (
            ["java-2.1.0", JAVA_2_0],
            {"merge-engine": "partial-update", "dredge.compaction.order-sensitive": "as-paimon"},
            True,
        ),
        (
            [JAVA_2_0, None],
            {"merge-engine": "partial-update", "dredge.compaction.order-sensitive": "as-paimon"},
            True,
        ),
    ],
)
def test_no_table_is_compacted_whose_version_is_in_doubt_and_whose_answers_depend_on_it(
    tmp_path: Path, writers: list[str | None], options: dict[str, str], declined: bool
) -> None:
    store = written_by(make_store(tmp_path, options=options), writers)
    if not declined:
        require_compactable(store)
        return
    with pytest.raises(UnsupportedFeature, match=r"in turn .* set 'dredge\.paimon-version'"):
        plan_compaction(store)
    assert any("in turn" in text for text in unsupported(store, Purpose.COMPACT))
    require_readable(store)
    require_writable(store)
    plan_compaction(store.copy({KEY: "2.0"}))


def test_a_snapshot_made_from_one_of_2_0_is_followed_as_2_0(tmp_path: Path) -> None:
    store = written_by(make_store(tmp_path), [JAVA_2_0])
    of_java = Snapshot.from_json(Path(store.snapshot_path(1)).read_bytes(), "snapshot-1")
    assert build_cover(store, of_java, 2, "trash", "hash").writer_version == "dredge-2.0"
    assert paimon_version.carried_writer(replace(of_java, uuid=None)) is None


@pytest.mark.parametrize(
    ("writers", "followed"),
    [
        ([], "1.4"),
        ([None, None], "1.4"),
        (["java-2.1-SNAPSHOT-1f2e"], "2.1"),
        (["java-2.1.0-1f2e", None, None], "2.1"),
        (["java-2.1.0-1f2e", "dredge-2.0"], "2.1"),
        ([None, "java-2.0.0-1f2e", None], "2.0"),
    ],
)
def test_the_newest_writer_among_the_snapshots_is_followed(
    tmp_path: Path, writers: list[str | None], followed: str
) -> None:
    store = written_by(make_store(tmp_path), writers)
    assert store.options.paimon_version == followed
    assert store.version_found == any(writers)
    # whoever merges is told by the options alone, in this process and in others
    assert store.options.raw.get(KEY, "1.4") == followed
    for other in (pickle.loads(pickle.dumps(store)), TableStore.from_json(store.to_json()), store.copy({"a": "b"})):
        assert other.options.paimon_version == followed
    assert store.copy({KEY: "2.0"}).options.paimon_version == "2.0"


def test_the_option_stands_above_the_writers(tmp_path: Path) -> None:
    store = written_by(make_store(tmp_path, options={KEY: "1.4"}), ["java-2.1.0-1f2e"])
    assert store.options.paimon_version is PaimonVersion.V1_4
    assert not store.version_found
    assert store.copy({KEY: "2.1"}).refresh().options.paimon_version is PaimonVersion.V2_1


def test_an_open_table_keeps_its_answer_and_a_refreshed_one_looks_again(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert written_by(store, ["java-2.1.0-1f2e"]).options.paimon_version is PaimonVersion.V2_1
    assert store.options.paimon_version is PaimonVersion.V1_4
    found = store.refresh()
    Path(store.snapshot_path(1)).unlink()
    assert found.options.paimon_version is PaimonVersion.V2_1
    assert found.refresh().options.paimon_version is PaimonVersion.V1_4


def test_tables_without_keys_follow_nobody(tmp_path: Path) -> None:
    store = written_by(make_store(tmp_path, keys=()), ["java-2.1.0-1f2e"])
    assert KEY not in store.options.raw


def test_only_the_newest_snapshots_are_read_and_an_unreadable_one_ends_the_look(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    many = ["java-2.1.0", *[None] * paimon_version.EXAMINED_SNAPSHOTS]
    assert written_by(store, many).options.paimon_version is PaimonVersion.V1_4
    Path(store.snapshot_path(len(many))).unlink()
    assert store.refresh().options.paimon_version is PaimonVersion.V2_1
    Path(store.snapshot_path(5)).write_bytes(b"{")
    assert store.refresh().options.paimon_version is PaimonVersion.V1_4
    texts = [item.writer for item in paimon_version.read_evidence(LocalFileIO(), store.snapshot_dir)]
    assert texts == [None] * (len(many) - 1 - 5)


def test_a_snapshot_tells_what_was_followed(tmp_path: Path) -> None:
    store = written_by(make_store(tmp_path), ["java-2.1.0"])
    path = store.snapshot_path(1)
    assert Snapshot.from_json(store.file_io.read_bytes(path), path).writer_version == "java-2.1.0"


@pytest.mark.parametrize(
    ("writers", "options", "warning"),
    [
        ([None, None], {}, None),
        (["java-2.1.0"], {}, None),
        (["java-2.1.0"], {KEY: "1.4"}, "written by Paimon 2.1; answers follow 1.4 (dredge.paimon-version)"),
        (
            [None, "java-2.1.0"],
            {},
            "written by Paimon 1.4 and 2.1; answers follow 2.1 (the newest writer of its snapshots)",
        ),
    ],
)
def test_snapshots_of_several_versions_are_warned_of(
    tmp_path: Path, writers: list[str | None], options: dict[str, str], warning: str | None
) -> None:
    store = written_by(make_store(tmp_path, options=options), writers)
    judged = paimon_version.read_evidence(store.file_io, store.snapshot_dir)
    message = paimon_version.mixed(store.options, store.version_found, judged)
    assert message is None if warning is None else str(message).endswith(warning)


def test_the_report_of_a_compaction_says_that_versions_meet(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    table = catalog.create_table("db.t", Schema(fields, ["k"], options={"bucket": "1"}))
    for number in (1, 2):
        table.write(pa.table({"k": [number], "v": [number]}, schema=fields))
    assert table.compact(full=True).warnings == ()
    table.write(pa.table({"k": [3], "v": [3]}, schema=fields))
    path = Path(table.store.snapshot_path(4))
    path.write_bytes(replace(Snapshot.from_json(path.read_bytes(), str(path)), writer_version="java-2.1.0").to_json())
    (warning,) = catalog.table("db.t").compact(full=True).warnings
    assert warning == (
        "of db.t: its newest snapshots were written by Paimon 1.4 and 2.1; "
        "answers follow 2.1 (the newest writer of its snapshots)"
    )


def test_the_plan_of_a_compaction_names_the_version_that_it_follows(tmp_path: Path) -> None:
    store = written_by(make_store(tmp_path), ["java-2.1.0"])
    assert plan_compaction(store).arguments["paimon_version"] == "2.1 (the newest writer of its snapshots)"
    assert plan_compaction(store).options[KEY] == "2.1"
    assert "paimon_version" not in plan_compaction(store.copy({KEY: "1.4"})).arguments
