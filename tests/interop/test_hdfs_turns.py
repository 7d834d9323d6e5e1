"""Java Paimon and Dredge on one table in HDFS: turns, and commits at the same time, none of which may be lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from tests.support.emulators import StoreServer, hdfs_cluster

pytestmark = [pytest.mark.paimon_java, pytest.mark.soak]

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
ROUNDS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


def test_java_and_dredge_take_turns_on_a_table_in_hdfs(cluster: StoreServer, java_session: Any) -> None:
    house = cluster.folder()
    catalog = Catalog(house)
    table = catalog.create_table(
        "db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "2"}), create_database=True
    )
    place = {"warehouse": house, "table": "db.t"}
    expected: dict[int, str] = {}
    for turn in range(4):
        rows = [{"k": key, "v": f"{turn}"} for key in range(turn, turn + 5)]
        if turn % 2:
            java_session.call("write", rows=rows, **place)
        else:
            table.refresh().write(rows)
        expected |= {row["k"]: row["v"] for row in rows}
        if turn == 2:
            table.refresh().compact(full=True)
        ours = {row["k"]: row["v"] for row in table.refresh().to_arrow().to_pylist()}
        theirs = {row["k"]: row["v"] for row in java_session.call("read", **place)["rows"]}
        assert ours == theirs == expected


def test_commits_of_both_at_the_same_time_are_all_kept(cluster: StoreServer, java_session: Any) -> None:
    house = cluster.folder()
    table = Catalog(house).create_table(
        "db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "1", "write-only": "true"}), create_database=True
    )
    place = {"warehouse": house, "table": "db.t"}
    failures: list[BaseException] = []

    def write_ours() -> None:
        try:
            for number in range(ROUNDS):
                table.write([{"k": number, "v": "ours"}])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write_ours)
    thread.start()
    for number in range(ROUNDS):
        java_session.call("write", rows=[{"k": 100 + number, "v": "java"}], **place)
    thread.join()
    assert failures == []
    expected = {**dict.fromkeys(range(ROUNDS), "ours"), **dict.fromkeys(range(100, 100 + ROUNDS), "java")}
    assert {row["k"]: row["v"] for row in table.refresh().to_arrow().to_pylist()} == expected
    assert table.refresh().latest_snapshot().id == 2 * ROUNDS
