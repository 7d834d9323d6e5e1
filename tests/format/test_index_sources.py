"""Sources of indexes of primary-key tables: the bytes that Java writes, and bytes of another form."""

from __future__ import annotations

import pytest

from lsm_core.format.index_sources import IndexSources, decode_sources
from tests.support.index_sources import encode_sources

NAME = "data-fb90dba5-fad6-4289-aba7-52867f2f6b13-0.parquet"
WRITTEN_BY_JAVA = (
    b"\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x01\x003" + NAME.encode() + b"\x00\x00\x00\x00\x00\x00\x00\n"
)


def test_the_bytes_of_java_name_level_and_files() -> None:
    sources = decode_sources(WRITTEN_BY_JAVA)
    assert sources == IndexSources(5, ((NAME, 10),))
    assert sources.rows == 10
    assert encode_sources(sources) == WRITTEN_BY_JAVA


def test_several_files_come_back_in_their_order() -> None:
    sources = IndexSources(1, (("a", 1), ("ä" * 200, 2**40), ("b", 0)))
    assert decode_sources(encode_sources(sources)) == sources
    assert sources.rows == 2**40 + 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WRITTEN_BY_JAVA[:-1],
        WRITTEN_BY_JAVA + b"\x00",
        b"\x00\x00\x00\x02" + WRITTEN_BY_JAVA[4:],
        WRITTEN_BY_JAVA[:4] + b"\x00\x00\x00\x00" + WRITTEN_BY_JAVA[8:],
        WRITTEN_BY_JAVA[:8] + b"\x00\x00\x00\x00",
        WRITTEN_BY_JAVA[:8] + b"\x7f\xff\xff\xff" + WRITTEN_BY_JAVA[12:],
        WRITTEN_BY_JAVA[:14] + b"\xff" + WRITTEN_BY_JAVA[15:],
        WRITTEN_BY_JAVA[:-8] + b"\xff" * 8,
    ],
)
def test_other_bytes_have_no_sources(data: bytes) -> None:
    assert decode_sources(data) is None
