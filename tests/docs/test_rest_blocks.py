"""Code blocks of the pages that use a REST catalog server, with Paimon's own server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.blocks import Reader, blocks, needs_rest
from tests.docs.pages import PAGES, ROOT
from tests.support.hive_double import HiveDouble
from tests.support.rest_server import TOKEN, start_server

pytestmark = pytest.mark.paimon_java
ADDRESS = "http://catalog:10000"
METASTORE = "thrift://metastore:9083"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if needs_rest(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_blocks_of_a_page_with_a_catalog_server_work_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_REST_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    server, metastore = start_server(tmp_path / "served"), HiveDouble(str(tmp_path / "warehouse"))
    try:
        reader = Reader(tmp_path, monkeypatch)
        for block in blocks(page):
            code = block.code.replace(ADDRESS, server.url.rstrip("/")).replace(METASTORE, metastore.uri)
            reader.run(replace(block, code=code))
    finally:
        metastore.close()
        server.close()
