"""Logical types: parsing, printing, mapping to Arrow, and row kinds.

Values are converted here, never read from files. The casts follow Java's rules. Begin with `data_type` and `arrow`.
"""

from __future__ import annotations

from lsm_core.types.arrow import from_arrow, to_arrow
from lsm_core.types.data_type import (
    MAX_LENGTH,
    NESTED,
    DataType,
    RowField,
    RowKind,
    TypeRoot,
    is_retract,
    kinds_from_text,
    kinds_to_text,
    to_sql,
)
from lsm_core.types.parser import parse, parse_stored, to_json
