"""Selection of the I/O steps that a fault test breaks: some in `make test`, all in `make soak`."""

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
        "delete_empty_dir",
        "mkdirs",
        "rename",
        "create",
        "write",
        "close",
    }
)
"""Steps that may be applied although they are reported as failed; a read has no effect, so it is not included."""


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
