"""Every code block of README and docs is run, or read by what would read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import TableNotFound
from tests.docs.blocks import Block, Reader, blocks, needs_rest, needs_spark
from tests.docs.pages import PAGES, ROOT

PLAIN = [page for page in PAGES if blocks(page) and not needs_spark(page) and not needs_rest(page)]


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_work_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, monkeypatch)
    for block in blocks(page):
        reader.run(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_of_a_page_is_overlooked(page: Path) -> None:
    fences = [line for line in page.read_text("utf-8").splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(blocks(page))


def _block(language: str, code: str, mark: str = "") -> Block:
    return Block(ROOT / "README.md", 1, language, code, mark)


@pytest.mark.parametrize(
    ("language", "code", "mark"),
    [
        ("", "x = 1\n", ""),
        ("python", "1 / 0\n", ""),
        ("python", "from lsm_core import no_such_name\n", ""),
        ("sh", "dredge no-such-verb\n", ""),
        ("sh", "dredge demo --no-such-option\n", ""),
        ("sh", "make no-such-target\n", ""),
        ("sh", "python -m bench no-such-benchmark\n", ""),
        ("sh", "frobnicate\n", ""),
        ("yaml", "defaults: {idle_aftre: 20 d}\n", ""),
        ("yaml", "a: [1\n", ""),
        ("json", "{'a': 1}\n", ""),
        ("text", "nothing printed this\n", "output"),
    ],
)
def test_a_block_that_does_not_work_is_found(
    language: str, code: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception):
        Reader(tmp_path, monkeypatch).run(_block(language, code, mark))


def test_an_error_that_a_page_promises_must_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    raising = "from lsm_core.errors import TableNotFound\nraise TableNotFound('db.t')\n"
    reader.run(_block("python", raising, "raises: TableNotFound"))
    with pytest.raises(TableNotFound):
        reader.run(_block("python", raising))
    with pytest.raises(pytest.fail.Exception):
        reader.run(_block("python", "pass\n", "raises: TableNotFound"))
