"""The registry knows every key of Paimon's CoreOptions, with its type, default, aliases and immutability."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.options import ALIASES, REGISTRY, TableOptions, canonical
from lsm_core.options.registry import ENUMS, RANGES, parse_value

SPEC = Path(__file__).parents[3] / "shared/spec/features.md"


def test_every_default_is_a_valid_value_of_its_own_key() -> None:
    for key in REGISTRY.values():
        if key.default is not None:
            parse_value(key, key.default)


def test_rules_speak_of_known_keys_only() -> None:
    assert set(ENUMS) | set(RANGES) <= set(REGISTRY)
    assert not set(ALIASES) & set(REGISTRY)


@pytest.mark.parametrize(
    ("key", "kind", "default", "immutable"),
    [
        ("bucket", "int", "-1", False),
        ("merge-engine", "enum", "deduplicate", True),
        ("snapshot.time-retained", "duration", "1 hours", False),
        ("write-buffer-size", "memory", "256 mb", False),
        ("sequence.field", "text", None, False),
        ("file.format.per.level", "map", "", False),
        ("dynamic-bucket.target-row-num", "long", "2000000", False),
        ("dredge.trash-grace", "duration", "24 h", False),
    ],
)
def test_keys_carry_type_default_and_immutability(key: str, kind: str, default: str | None, immutable: bool) -> None:
    found = REGISTRY[key]
    assert (found.kind, found.default, found.immutable) == (kind, default, immutable)


def test_the_old_name_of_a_key_counts_unless_the_new_one_is_set() -> None:
    assert TableOptions({"write.compaction-skip": "true"}).write_only
    both = {"write.compaction-skip": "true", "write-only": "false"}
    assert not TableOptions(both).write_only
    assert canonical(both) == {"write-only": "false"}


@pytest.mark.skipif(not SPEC.exists(), reason="the specification does not lie beside the clone")
def test_every_key_of_the_specification_is_registered() -> None:
    appendix = SPEC.read_text().partition("## Appendix A")[2]
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.*?) \| (.*) \|$", appendix, re.MULTILINE)
    assert len(rows) > 300
    kinds = {"string": "text", "float": "double"}
    for name, kind, _, notes in rows:
        if "#" in name:
            continue
        key = REGISTRY[name]
        assert key.kind == kinds.get(kind, kind), name
        assert key.immutable == ("Imm" in notes), name


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("bucket", "0", "above 0"),
        ("bucket", "-3", "above 0"),
        ("bucket", "four", "whole number"),
        ("merge-engine", "newest", "partial-update"),
        ("write-only", "yes", "true or false"),
        ("snapshot.time-retained", "soon", "duration"),
        ("write-buffer-size", "much", "size"),
        ("write-buffer-size", "0 mb", "at least 1 byte"),
        ("metadata.stats-mode", "truncate(0)", "truncate(n)"),
        ("file.format.per.level", "0=avro", "0:avro"),
        ("compaction.delete-ratio-threshold", "few", "number"),
        ("compaction.offpeak.start.hour", "24", "23"),
        ("num-sorted-run.compaction-trigger", "0", "1"),
        ("dynamic-bucket.target-row-num", "9223372036854775808", "whole number"),
        ("dredge.delete-mode", "shred", "two-phase"),
        ("fields.a.ignore-retract", "maybe", "true or false"),
        ("dredge.unheard-of", "1", "dredge.trash-grace"),
    ],
)
def test_a_bad_value_is_refused_naming_key_value_table_and_what_is_accepted(
    key: str, value: str, accepted: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        TableOptions({key: value}, "db.orders")
    said = str(caught.value)
    assert key in said
    assert value in said
    assert "db.orders" in said
    assert accepted in caught.value.accepted


def test_an_unknown_key_is_kept_and_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        options = TableOptions({"my.own.key": "kept"}, "db.unknown_key_table")
        TableOptions({"my.own.key": "kept"})  # pure parts know no table; its owner has warned
    assert options.raw["my.own.key"] == "kept"
    assert sum("my.own.key" in record.message for record in caplog.records) == 1


def test_keys_with_a_free_part_pass_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    free = {"fields.a.aggregate-function": "sum", "parquet.page.size": "1", "file-index.bloom-filter.columns": "a"}
    assert TableOptions(free, "db.free").raw == free
    assert not caplog.records
