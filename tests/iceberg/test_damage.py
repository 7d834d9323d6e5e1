"""Damaged and hostile Iceberg metadata: decoders raise typed errors, and the next commit writes whole metadata."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import CorruptFile
from lsm_core.iceberg.manifest_files import decode_manifest, decode_manifest_list
from lsm_core.iceberg.table_metadata import decode_metadata
from tests.iceberg.tables import folder_of, listed_files, make_table, metadata_of, rows

CASES = 60


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return the data with a few bytes changed, cut out or doubled."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 2, 8])):
        place = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[place] = chance.randrange(256)
        elif kind == 1:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del changed[place : place + chance.choice([1, 9, 300])]
        else:
            changed[place:place] = changed[place : place + chance.choice([1, 40])]
        if not changed:
            return b""
    return bytes(changed)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_decoders_raise_one_typed_error(tmp_path: Path, codec: str) -> None:
    table = make_table(tmp_path, {"metadata.iceberg.manifest-compression": codec})
    table.write(rows([1], part="a"))
    table.write(rows([2, 3], part="b"))
    folder, schema = folder_of(table), table.store.schema
    listed = max(folder.glob("snap-*"), key=lambda path: path.stat().st_size)
    (manifest, *_) = decode_manifest_list(listed.read_bytes(), "list")
    content = (folder / manifest.name).read_bytes()
    text = (folder / "v2.metadata.json").read_bytes()
    decoders: list[tuple[bytes, Any]] = [
        (text, lambda data: decode_metadata(data, "metadata")),
        (listed.read_bytes(), lambda data: decode_manifest_list(data, "list")),
        (content, lambda data: decode_manifest(data, "manifest", schema, manifest)),
    ]
    chance = random.Random(7)
    refused = 0
    for _ in range(CASES):
        for data, decode in decoders:
            try:
                decode(mutated(data, chance))
            except CorruptFile:
                refused += 1
    assert refused > CASES


def test_a_commit_after_any_damage_writes_whole_metadata(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1], part="a"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "snap-1-00000000-0000-0000-0000-000000000000.avro").write_bytes(b"kept")
    folder = folder_of(table)
    chance = random.Random(11)
    for number in range(9):
        metadata = metadata_of(folder)
        current = folder / f"v{metadata['current-snapshot-id']}.metadata.json"
        # Commits that only add files do not read manifests; `test_writing` damages these.
        victim = chance.choice([current, folder / Path(metadata["snapshots"][-1]["manifest-list"]).name])
        victim.write_bytes(mutated(victim.read_bytes(), chance))
        table = Catalog(str(tmp_path)).table("db.t")
        if number % 3:
            table.write(rows([number], part="ab"[number % 2]))
        else:
            table.compact(full=True)
            table.write(rows([number]))
        files = {str(path) for path in Path(table.store.root).glob("p=*/**/*.parquet")}
        seen = listed_files(folder)
        assert set(seen) <= files
        assert sum(seen.values()) == table.to_arrow().num_rows
    assert len(list(outside.iterdir())) == 1


def test_a_metadata_folder_that_is_a_link_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "v9.metadata.json").write_text("{}")
    folder_of(table).symlink_to(elsewhere)
    table.write(rows([1]))
    assert table.to_arrow().num_rows == 1
    assert "symbolic link" in caplog.text
    assert [path.name for path in elsewhere.iterdir()] == ["v9.metadata.json"]
