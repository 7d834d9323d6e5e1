"""Code blocks of the pages that use Spark, with the session of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import Reader, blocks, needs_spark
from tests.docs.pages import PAGES, ROOT

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page", [page for page in PAGES if needs_spark(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_blocks_of_a_page_with_spark_work_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    reader = Reader(tmp_path, monkeypatch, {"spark": spark})
    for block in blocks(page):
        reader.run(block)
