"""The registry knows every key of Paimon's CoreOptions, with its type, default, aliases and immutability."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.options import ALIASES, REGISTRY, Effect, Key, TableOptions, canonical, not_acted_on
from lsm_core.options.keys import DREDGE_KEYS, ENUMS, FAMILIES, OTHER_ENGINES, PAIMON_KEYS, RANGES
from lsm_core.options.table_options import check, find_key, mistyped_reading, parse_value

SPEC = Path(__file__).parents[3] / "shared/spec/features.md"
TABLE = Path(__file__).parents[1] / "data/options/appendix_a.tsv"


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


def _appendix() -> list[list[str]]:
    return [line.split("\t") for line in TABLE.read_text().splitlines()[1:]]


@pytest.mark.skipif(
    not SPEC.exists(), reason="the specification does not lie beside the clone: the copy is all there is"
)
def test_the_committed_table_says_what_the_specification_says() -> None:
    appendix = SPEC.read_text().partition("## Appendix A")[2]
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.*?) \| (.*) \|$", appendix, re.MULTILINE)
    assert _appendix() == [list(row) for row in rows]


@pytest.mark.parametrize("row", _appendix(), ids=lambda row: row[0])
def test_every_key_of_paimon_is_known_with_type_default_and_versions(row: list[str]) -> None:
    name, kind, default, notes = row
    key = find_key(name.replace("#", "org.example.Callback"))
    assert key is not None
    assert key.kind == {"string": "text", "float": "double"}.get(kind, kind)
    if "#" not in name:
        message = re.fullmatch(r"≥?(\d\.\d)\+?(?:, removed after (\d\.\d))?(;.*)?", notes)
        assert message is not None
        assert (key.since, key.until) == message.group(1, 2)
        assert key.immutable == ("Imm" in notes)
        aliases = re.search(r"alias ([^;]+)", notes)
        assert key.aliases == (tuple(a.strip() for a in aliases.group(1).split(",")) if aliases else ())
        assert _same_default(key, default, notes)


def _same_default(key: Key, default: str, notes: str) -> bool:
    """Whether both mean one value: Paimon's table quotes Java's sources ("100_000", "0.75F", "{}", "unlimited")."""
    newer = re.search(r"1\.4: (\w+)", notes)  # the default of the version that we speak to
    default = newer.group(1) if newer else default
    if default == "unset":
        return key.default is None
    if default == "unlimited":
        return bool(parse_value(key, str(key.default)) == 2**63 - 1)
    number = re.fullmatch(r"(-?[0-9_.]+)[LFd]?", default)
    text = number.group(1).replace("_", "") if number and key.kind != "text" else default.replace("{}", "")
    return bool(parse_value(key, str(key.default)) == parse_value(key, text))


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
        ("fields.a.stats-mode", "some", "truncate(n)"),
        ("fields.a.count-limit", "0", "whole number from 1"),
        ("file-index.bloom-filter.a.items", "many", "whole number"),
        ("file-index.bloom-filter.a.fpp", "1.5", "number from"),
        ("compaction.delete-ratio-threshold", "1_0", "number"),
        ("metadata.stats-mode.per.level", "0:some", "truncate(n)"),
        ("file.format.per.level", "top:avro", "level"),
        ("scan.mode", "newest", "from-snapshot"),
        ("tag.creation-period", "weekly", "daily"),
        ("dredge.unheard-of", "1", "dredge.trash-grace"),
    ],
)
def test_a_bad_value_is_refused_naming_key_value_table_and_what_is_accepted(
    key: str, value: str, accepted: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        TableOptions({key: value}, "db.orders")
    message = str(caught.value)
    assert key in message
    assert value in message
    assert "db.orders" in message
    assert accepted in caught.value.accepted


def test_an_unknown_key_is_kept_and_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        options = TableOptions({"my.own.key": "kept"}, "db.unknown_key_table")
        TableOptions({"my.own.key": "kept"})  # pure parts know no table; its owner has warned
    assert options.raw["my.own.key"] == "kept"
    assert sum("my.own.key" in record.getMessage() for record in caplog.records) == 1


def test_keys_with_a_free_part_pass_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    free = {"fields.a.aggregate-function": "sum", "parquet.page.size": "1", "file-index.bloom-filter.columns": "a"}
    assert TableOptions(free, "db.free").raw == free
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "kind", "since"),
    [
        ("fields.a.b.ignore-retract", "boolean", "1.3"),
        ("fields.a,b.sequence-group", "text", "1.3"),
        ("fields.a.count-limit", "int", "1.3"),
        ("fields.a.nested-sequence-field", "text", "2.0"),
        ("file-index.bloom-filter.columns", "text", "1.3"),
        ("file-index.bloom-filter.a.items", "int", "1.3"),
        ("file-index.bloom-filter.a.fpp", "double", "1.3"),
        ("file-index.bitmap.a.version", "int", "1.3"),
        ("commit.callback.org.example.Mine.param", "text", "1.3"),
        ("orc.stripe.size", "text", "1.3"),
    ],
)
def test_names_with_a_free_part_have_a_type_too(name: str, kind: str, since: str) -> None:
    found = find_key(name)
    assert found is not None
    assert (found.name, found.kind, found.since) == (name, kind, since)
    assert find_key("fields.default-aggregate-function") is REGISTRY["fields.default-aggregate-function"]
    assert find_key("fields.a.unheard-of") is None


_CODE = Path(__file__).parents[2] / "lsm_core"
# Named in rules about changing or renaming, or by readers of what other engines did: nothing is done because of them.
_INERT = (Effect.NOT_ACTED_ON, Effect.OTHER_KIND)
_NAMED_ONLY = {
    "blob-external-storage-field",
    "blob-view-field",
    "metastore.tag-to-partition",  # refused in new tables of a Hive metastore
    "upsert-key",
    "vector-field",
}


def test_the_registry_says_of_every_key_whether_anything_acts_on_it() -> None:
    # Every path from a key to its effect goes through its name: as text, or as an attribute of TableOptions.
    lists = {"keys.py", "registry.py", "table_options.py"}
    code = "\n".join(path.read_text() for path in sorted(_CODE.rglob("*.py")) if path.name not in lists)
    view = (_CODE / "options" / "table_options.py").read_text()
    for method in view.split("\n\n    "):
        found = re.search(r"def (\w+)", method)
        if found is None or found.group(1).startswith("_") or re.search(rf"\.{found.group(1)}\b", code + view):
            code += method
    named = {name for name in REGISTRY if f'"{name}"' in code}
    ignored = {name for name, key in REGISTRY.items() if key.effect in _INERT}
    assert named & ignored == _NAMED_ONLY
    assert set(REGISTRY) - named == ignored - _NAMED_ONLY


def test_few_options_have_no_effect_and_each_says_why() -> None:
    keys = [*PAIMON_KEYS, *FAMILIES]
    assert sum(key.effect is Effect.NOT_ACTED_ON for key in keys) < 110
    assert [key for key in keys if bool(key.reason) is not (key.effect in _INERT)] == []
    assert not [key for key in DREDGE_KEYS if key.effect in _INERT]


def test_options_that_nothing_acts_on_are_listed_unless_they_ask_for_the_default() -> None:
    given = {
        "metastore.tag-to-partition": "dt",
        "batch-scan-mode": "none",  # the default
        "partition.idle-time-to-report-statistic": "7 d",
        "orc.write.batch-size": "2048",  # an old name of write.batch-size
        "page-size": "65536",  # the default, in other words
        "sort-engine": "nonsense",  # not even usable
        "file-index.token-bloom.a.version": "2",
        "file-index.bloom-filter.a.items": "10",
        "bucket": "4",
        "my.own.key": "x",
    }
    assert not_acted_on(given) == {
        "file-index.token-bloom.a.version": "2",  # no index of Paimon's
        "metastore.tag-to-partition": "dt",
        "partition.idle-time-to-report-statistic": "7 d",
        "sort-engine": "nonsense",
        "write.batch-size": "2048",
    }


@pytest.mark.parametrize("name", ["bucket", "page-size", "snapshot.time-retained", "scan.snapshot-id"])
@pytest.mark.parametrize("digits", ["9" * 4301, "9" * 100_000, "0" * 100_000 + "x"])
def test_a_number_of_any_length_is_an_option_or_an_error_with_a_short_text(name: str, digits: str) -> None:
    with pytest.raises(InvalidOption, match=rf"option '{name}' of table db\.t cannot be") as caught:
        TableOptions({name: digits}, "db.t")
    assert len(str(caught.value)) < 1000
    assert TableOptions({"num-levels": "0" * 5000 + "7"}).num_levels == 7


@pytest.mark.parametrize(
    "name",
    [
        "owner",
        "provider",
        "read.parallelism",
        "scan.native-plan.enabled",
        "scan.push-down",
        "sink.parallelism",
        "partition.time-interval",
        "write.merge-schema",
        "btree-index.cache-size",
    ],
)
def test_keys_that_only_other_engines_use_pass_without_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert name in OTHER_ENGINES
    assert check({name: "1"}, f"db.other_{name}") == {}
    assert not caplog.records
    assert not mistyped_reading({name: "1"}, OTHER_ENGINES)


def test_a_key_is_either_acted_on_here_or_only_by_other_engines() -> None:
    assert not OTHER_ENGINES & {*REGISTRY, *ALIASES}


def test_every_table_option_of_paimon_2_1_is_known() -> None:
    lines = (TABLE.parent / "paimon_2_1.tsv").read_text("utf-8").splitlines()
    keys = [line.split("\t")[1] for line in lines if not line.startswith("#")]
    assert len(keys) > 400
    assert [key for key in keys if find_key(key) is None and key not in OTHER_ENGINES and key not in ALIASES] == []
