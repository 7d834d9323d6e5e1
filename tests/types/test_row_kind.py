"""Row kinds: texts, numbers and what takes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import InvalidData
from lsm_core.types import RowKind, is_retract, kinds_from_text, kinds_to_text

TEXTS = ["+I", "-U", "+U", "-D"]


def test_texts_and_numbers_match() -> None:
    assert [kind.text for kind in RowKind] == TEXTS
    numbers = kinds_from_text(pa.chunked_array([TEXTS[:1], TEXTS[1:]]))
    assert numbers.equals(pa.array([0, 1, 2, 3], pa.int8()))
    assert kinds_to_text(numbers).to_pylist() == TEXTS
    assert kinds_from_text(pa.array(TEXTS).dictionary_encode()).equals(numbers)
    assert kinds_from_text(pa.array([3, 0])).to_pylist() == [3, 0]


@pytest.mark.parametrize("bad", [["+I", "?"], ["+i"], [None], [4], [0, None], [-1]])
def test_an_unknown_kind_is_named(bad: list[object]) -> None:
    with pytest.raises(InvalidData, match=r"db\.t"):
        kinds_from_text(pa.array(bad, pa.int64() if not isinstance(bad[0], str | None) else pa.string()), "db.t")


def test_before_images_and_deletes_take_back() -> None:
    assert is_retract(pa.array([0, 1, 2, 3], pa.int8())).tolist() == [False, True, False, True]
    assert is_retract(np.array([3, 0], np.int8)).tolist() == [True, False]
    assert is_retract(pa.array([], pa.int8())).tolist() == []
