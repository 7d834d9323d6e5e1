"""How many of a statement's I/O steps a test breaks: some in `make test`, every single one in `make soak`."""

from __future__ import annotations

import pytest


def strides(some: int) -> pytest.MarkDecorator:
    """Parametrise ``stride``: one step in ``some``, and, as a soak test, every step."""
    every = pytest.param(1, id="every step", marks=(pytest.mark.soak, pytest.mark.timeout(7200)))
    return pytest.mark.parametrize("stride", [pytest.param(some, id=f"one step in {some}"), every])
