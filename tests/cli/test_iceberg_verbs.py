"""Verbs on a table that publishes Iceberg metadata: status, holds, check, metrics, refresh-iceberg, expire, sql, advise."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.clock import FixedClock
from tests.cli.shell import Shell
from tests.maintenance.tables import HOUR, NOW

ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def test_each_verb_knows_the_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell, catalog = Shell(tmp_path, capsys), Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "metadata.iceberg.storage": "hadoop-catalog"}
    table = catalog.create_table("db.t", ROWS, primary_keys=["k"], options=options)
    table.store.clock = FixedClock(NOW)
    for key in range(3):
        table.write(pa.table({"k": [key], "v": ["a"]}, schema=ROWS))

    iceberg = shell("status", "db.t", "--json").json["iceberg"]
    assert (iceberg["condition"], iceberg["snapshot"], iceberg["rows"]) == ("current", 3, 3)
    assert (iceberg["since"], iceberg["lag_ms"]) == (NOW, 2 * HOUR)
    assert "db.t: Iceberg readers lag 2 h" in " ".join(shell("status", "db.t").out.split())
    assert f'dredge_table_iceberg_since_timestamp_seconds{{table="db.t"}} {NOW // 1000}' in shell("metrics").out
    assert "iceberg_is_fresh" in shell("check", "db.t").out
    holders = shell("holds", "db.t")
    assert "Iceberg metadata v3, snapshots 1 to 3" in holders.out
    assert "dredge refresh-iceberg db.t --drop-older" in " ".join(holders.out.split())
    assert "names snapshot 1" in shell("expire", "db.t", "--retain-max", "1", "--retain-min", "1").out

    assert "no Iceberg metadata was written" in shell("refresh-iceberg", "db.t").out
    assert "Iceberg readers of db.t see snapshot 3" in shell("refresh-iceberg", "db.t", "--drop-older").out
    assert "no Iceberg metadata" in shell("sql", "CALL sys.refresh_iceberg('db.t')", "--apply").out
    assert shell("expire", "db.t", "--retain-max", "1", "--retain-min", "1", "--json").json["expired"] == [1, 2]

    (tmp_path / "iceberg/db/t/metadata/v3.metadata.json").write_text("{")
    assert "warning: db.t: the Iceberg metadata is damaged" in " ".join(shell("status", "db.t").out.split())
    assert shell("compact", "db.t", "--full").code == 0
    assert shell("status", "db.t", "--json").json["iceberg"]["text"] == "Iceberg readers see all rows"
    advice = shell("advise", "db.t").out
    assert "iceberg_lag: 1 h}" in advice
    assert "it publishes Iceberg metadata" in advice
