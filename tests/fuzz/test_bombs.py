"""Small files that unfold to gigabytes are read in little memory, or refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.files.formats.parquet_pages import _longest_row, rows_at_once
from tests.fuzz.bombs import BOMBS
from tests.support.parquet_files import footer_of
from tests.support.samples import examples

_MOST_MIB = 640
_REFUSED = {
    "a text of 65 MiB, 80 times": "ValueTooLarge",
    "a list of a billion numbers": "ValueTooLarge",
    "a list of a billion numbers after a million": "ValueTooLarge",
    "134 million empty texts": "ValueTooLarge",
    "a page that claims 2 GiB": "CorruptFile",
    "200 columns of 8 MiB": "ValueTooLarge",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    place = tmp_path_factory.mktemp("bombs")
    for name, make in BOMBS.items():
        data = make()
        assert len(data) < 2 << 20, name
        (place / f"{name}.parquet").write_bytes(data)
    command = [sys.executable, "-m", "tests.fuzz.bombs", str(place)]
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return {name: tuple(found) for name, found in json.loads(ended.stdout).items()}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_in_little_memory_or_refused_by_name(outcomes: dict[str, tuple[str, int]], name: str) -> None:
    outcome, grown = outcomes[name]
    assert grown < _MOST_MIB, outcome
    if name in _REFUSED:
        assert outcome.startswith(_REFUSED[name] + ":")
        assert f"{name}.parquet" in outcome
    else:
        assert int(outcome) > 0


@pytest.mark.parametrize("route", ["read", "filtered", "compacted"])
def test_tables_of_bombs_are_merged_filtered_compacted_and_verified_in_little_memory(
    outcomes: dict[str, tuple[str, int]], route: str
) -> None:
    assert outcomes[route][0] == "2000"
    assert outcomes[route][1] < _MOST_MIB


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=40) | st.none(), min_size=1, max_size=60),
    st.integers(1, 400),
    st.sampled_from(["1.0", "2.0"]),
    st.booleans(),
)
def test_the_longest_row_is_found_from_levels(
    rows: list[list[int] | None], page: int, version: str, twice: bool
) -> None:
    """Runs and packed levels, first and second version, over pages, in lists of lists too."""
    values = [[row, row] if row is not None else None for row in rows] if twice else rows
    inner = pa.list_(pa.int32())
    sink = pa.BufferOutputStream()
    table = pa.table({"c": pa.array(values, pa.list_(inner) if twice else inner)})
    pq.write_table(table, sink, data_page_size=page, write_batch_size=5, data_page_version=version, compression="zstd")
    data = sink.getvalue().to_pybytes()
    footer = footer_of(data)
    # An empty list and a null are one entry each.
    each = [max(1, len(row or [])) * (2 if twice and row is not None else 1) for row in rows]
    found = _longest_row(pa.BufferReader(data), "x.parquet", footer.leaves[0], footer.groups[0].chunks[0])
    assert found == max(each)


def test_ordinary_files_are_read_in_batches_as_asked() -> None:
    chance = np.random.default_rng(3)
    count = 200_000
    table = pa.table(
        {
            "number": chance.integers(0, 1 << 40, count),
            "same": np.zeros(count, np.int64),
            "text": [f"value {number % 4_000:x}" for number in range(count)],
            "list": pa.array([[1, 2, 3]] * count, pa.list_(pa.int64())),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    footer = footer_of(data)
    leaves = range(len(footer.leaves))
    assert rows_at_once(pa.BufferReader(data), "x.parquet", footer, range(len(footer.groups)), leaves, 65_536) == 65_536
