"""pypaimon 2.1 as a witness of what Paimon answers since 2.0: every vector of the versions, folded by its own functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.merge.version_vectors import ERROR, VECTORS, Vector
from tests.support.peers import PyPaimonProcess

FIELDS = {"k": "INT", "v": "STRING", "w": "INT"}


def folded(peer: PyPaimonProcess, vector: Vector, place: Path) -> Any:
    """pypaimon's answer to a vector."""
    answer = peer.call(
        op="fold",
        warehouse=str(place),
        function=vector.function,
        fields=None if vector.function == "listagg" else FIELDS,
        options={f"fields.a.{key}": value for key, value in vector.options.items()},
        inputs=vector.inputs,
    )
    if "refused" in answer:
        assert "Nested key contains null values" in answer["refused"]
        return ERROR
    value = answer["value"]
    return [row if row is None else tuple(row) for row in value] if isinstance(value, list) else value


@pytest.mark.pypaimon
def test_pypaimon_gives_the_answers_of_2_0(pypaimon_session: PyPaimonProcess, tmp_path: Path) -> None:
    wrong = {}
    for vector in VECTORS:
        found, wanted = folded(pypaimon_session, vector, tmp_path), vector.since_2_0
        if "nested-key" in vector.options and isinstance(found, list):
            found, wanted = set(found), set(wanted)
        if found != wanted:
            wrong[vector.id] = found
    # Python's spaces are more than Java's: pypaimon takes one that does not break for blank
    assert wrong == {"spaces-that-do-not-break": "a,b"}
