"""How many of a statement's I/O steps a test breaks: some in `make test`, every single one in `make soak`."""

from __future__ import annotations

from typing import cast

import pytest

from lsm_core.storage import FaultyFileIO
from lsm_core.storage.faults import Mode

CHANGES = frozenset(
    {
        "write_exclusive",
        "overwrite",
        "delete",
        "delete_many",
        "delete_dir",
        "mkdirs",
        "rename",
        "create",
        "write",
        "close",
    }
)
"""Steps that can be applied although they are reported failed; a read that is reported failed is one that was not done."""


def strides(some: int) -> pytest.MarkDecorator:
    """Parametrise ``stride``: one step in ``some``, and, as a soak test, every step."""
    every = pytest.param(1, id="every step", marks=(pytest.mark.soak, pytest.mark.timeout(7200)))
    return pytest.mark.parametrize("stride", [pytest.param(some, id=f"one step in {some}"), every])


def points(counted: FaultyFileIO) -> list[tuple[int, Mode]]:
    """Return the steps of a statement that ran without a fault, each with the ways in which it can fail."""
    return [
        (step, cast("Mode", mode))
        for step, (name, _) in enumerate(counted.log, 1)
        for mode in (("before", "after") if name in CHANGES else ("before",))
    ]


__all__ = ["CHANGES", "points", "strides"]
