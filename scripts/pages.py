"""Pages of docs/ that are generated from the code they describe: the command line and the options."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest import mock

from lsm_core.cli.app import run
from lsm_core.options import catalog_options
from lsm_core.options.keys import DREDGE_KEYS, ENUMS, FAMILIES, PAIMON_KEYS, RANGES, Effect, Family, Key
from scripts.imports import layers, modules
from scripts.pictures import rooms

_GENERATED = "<!-- Written by scripts/docs.py: change the code, not this page. -->"
_WIDTH = "100"

_DREDGE = {
    "dredge.compaction.mergeable-branches": "`closed`: an append table with branches is not compacted while Paimon's "
    "`merge_branch` is possible, because a merge requires a history of appends only; `as-paimon`: it is compacted",
    "dredge.compaction.exact-keys": (
        "`auto`: compactions keep files in whose key range no other file of the bucket has a key, and copy such Parquet "
        "row groups without decoding, where that saves more than it costs; `always`: also small ones; `never`: files that overlap by their smallest and largest keys are "
        "rewritten, as by Paimon ([why](decisions/key-exact-units.md))"
    ),
    "dredge.compaction.order-sensitive": (
        "`closed`: compactions of order-sensitive tables include every older run that overlaps them, so that no answer "
        "changes; `as-paimon`: the unit that Java would take, with the changed keys in the report "
        "([why](verification.md#order-free-and-order-sensitive-tables))"
    ),
    "dredge.compaction.inline": (
        "`follow`: after their commits, writers compact the buckets they touch and expire what is due, unless the table "
        "is `write-only`; `never`: batch writers leave both to maintenance jobs "
        "([why](semantics.md#45-writers-that-maintain-their-table)). The environment variable "
        "`DREDGE_COMPACTION_INLINE` = `never` sets the default of one process"
    ),
    "dredge.compaction.piece-size": (
        "a bucket much larger than its share is cut by key into pieces of at least this many input bytes"
    ),
    "dredge.delete-mode": (
        "`two-phase`: files that expiry drops wait in the trash first; `direct`: they are deleted at once, as in Paimon "
        "([why](decisions/two-phase-delete.md))"
    ),
    "dredge.lock": (
        "the lock that every commit holds while it publishes its snapshot: `none`; `file`: Dredge's own lock files; "
        "`jdbc`: Paimon's lock table in a database, which Java's JDBC catalogs share; `hive`: the table's lock in a Hive "
        "metastore, which Java's Hive catalogs share ([locks](engine.md#locks))"
    ),
    "dredge.lock.acquire-timeout": (
        "maximum wait for the lock; after it the commit fails and names the holder. A catalog's `lock-acquire-timeout` "
        "has priority"
    ),
    "dredge.lock.check-max-sleep": (
        "maximum pause between two checks of the lock. A catalog's `lock-check-max-sleep` has priority"
    ),
    "dredge.lock.key": "first part of the lock's name in the database, Paimon's `catalog-key`",
    "dredge.lock.lease": "a lock that was not renewed for this time is taken over, and its holder publishes nothing more",
    "dredge.lock.uri": (
        "`jdbc`: the JDBC address of the database, without a password; `hive`: the addresses of the metastore, such as "
        "`thrift://host:9083`; `file`: a folder for the lock files; unset: `dredge/lock` below the table"
    ),
    "dredge.merge-budget": "memory of one merge's windows, in decoded bytes",
    "dredge.paimon-version": (
        "the version to follow if versions of Paimon answer differently "
        "([which differences](semantics.md#12-versions-of-paimon)); unset: that of the newest `writerVersion` in the "
        "table's snapshots, else 1.4"
    ),
    "dredge.pre-compaction-tag": (
        "`true`: every compaction first tags the newest snapshot (`dredge-before-compaction-<snapshot>-<plan>`), so that "
        "it can be [undone](engine.md#undoing-a-compaction) after snapshots have expired"
    ),
    "dredge.pre-compaction-tag.time-retained": (
        "retention of this tag: it is written into the tag, and the tag expiry of Paimon or Dredge removes it then"
    ),
    "dredge.read.exact-keys": (
        "`auto`: reads return row groups in whose key range no other file of the bucket has a key as they are stored, "
        "without keys and without a merge, where that saves more than it costs; `always`: also small ones; `never`: "
        "files that overlap by their smallest and largest keys are merged, as by Paimon "
        "([why](decisions/key-exact-units.md#reads))"
    ),
    "dredge.read.threads": "splits that a full read reads at once; unset: as many as processors",
    "dredge.tombstone-retention": (
        "retention of deletes in tables with a `sequence.field`, also in the top level, so that a late, older insert "
        "does not restore a key"
    ),
    "dredge.trash-grace": (
        "time for which files in the trash can be restored; if set on a table, it applies to expired snapshots too, "
        "unless `dredge.trash-grace-expiry` is set"
    ),
    "dredge.trash-grace-expiry": "time for which expired snapshots can be restored",
    "dredge.verification": (
        "amount of a compaction's output that is read back before it is published ([levels](verification.md#the-levels))"
    ),
}


def cli_page() -> str:
    """Return docs/cli.md: the output of `dredge --help` and every verb's `--help`."""
    top = _help([])
    verbs = re.findall(r"^  ([a-z][\w-]*)  +\S", top.partition("Commands:")[2], re.MULTILINE)
    more = re.search(r"Also: ([\w, -]+) \(", top)
    verbs += [name for name in (more[1].split(", ") if more else []) if name not in verbs]
    parts = [
        "# Command line",
        _GENERATED,
        (
            "`dredge VERB` works on one warehouse: `--warehouse`, or the environment variable `DREDGE_WAREHOUSE`. "
            "Every verb prints a table for people, or JSON\nfor programs with `--json`. A failure is one line on "
            "standard error and an exit code: 1 for a failed operation, 2 for an invalid command.\n"
            "`DREDGE_DEBUG=1` adds the traceback. On a terminal long verbs show their progress; "
            "`dredge --install-completion` makes the shell complete verbs, flags and tables. Each verb is a thin shell "
            "over the [engine](engine.md)."
        ),
        _block(top),
        *(f"## {verb}\n\n{_block(_help([verb]))}" for verb in verbs),
    ]
    return "\n\n".join(parts) + "\n"


def _help(words: list[str]) -> str:
    """Return the output of a verb's --help on a terminal of a fixed width."""
    before = {
        name: os.environ.pop(name, None) for name in ("COLUMNS", "TERMINAL_WIDTH", "DREDGE_WAREHOUSE", "NO_COLOR")
    }
    os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = _WIDTH
    os.environ["NO_COLOR"] = "1"
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            mock.patch("importlib.metadata.entry_points", _entry_points),
        ):
            run([*words, "--help"])
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    return printed.getvalue()


def _entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of this checkout, independent of the installed version."""
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    return [EntryPoint(name, value, group) for name, value in project["entry-points"].get(group, {}).items()]


def _block(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(["```text", *lines, "```"])


def options_page() -> str:
    """Return docs/options.md: every option of the registry."""
    kinds = [*PAIMON_KEYS, *DREDGE_KEYS, *FAMILIES]
    counted = {effect: sum(key.effect is effect for key in kinds) for effect in Effect}
    parts = [
        "# Options",
        _GENERATED,
        (
            "An option is text, stored in the table's schema (`Schema(options={...})`, `SchemaChange.set_option`) or "
            "passed for one use (`Table.copy`, `--set`,\noptions of the Spark format). Sizes are like `128 mb`, "
            "durations like `1 h`; values are trimmed, names are not. An invalid value is\nrefused when it is set; an "
            "unknown `dredge.*` key is an error, any other unknown key is kept with a warning."
        ),
        "**Effect here** is the effect in Dredge of an option that differs from its default:",
        (
            f"* *{Effect.ACTED_ON}* ({counted[Effect.ACTED_ON]}): has the same effect as in Paimon, or the effect on "
            f"this page;\n"
            f"* *{Effect.NOT_ACTED_ON}* ({counted[Effect.NOT_ACTED_ON]}): kept for other engines and checked by its "
            f"type, for the reason in the line; creating or altering a table with it warns;\n"
            f"* *{Effect.OTHER_KIND}* ({counted[Effect.OTHER_KIND]}): likewise, and it has an effect only in tables, "
            f"columns or indexes of a kind that Dredge refuses, which the line names;\n"
            f"* *{Effect.REFUSED}* ({counted[Effect.REFUSED]}): requires a feature that Dredge does not support; "
            f"reading or writing the table raises `UnsupportedFeature`."
        ),
        (
            "*Fixed*: cannot be changed once the table has snapshots. *Since*, *until*: first and last Paimon version "
            "that knows the key, unless all of 1.3 to 2.1 do."
        ),
        "## Dredge's own",
        _table(
            ("Key", "Type", "Default", "Accepts", "Effect here", "Meaning"),
            ((*_named(key), _accepts(key), str(key.effect), _DREDGE[key.name]) for key in DREDGE_KEYS),
        ),
        "## Paimon's",
        _table(
            ("Key", "Type", "Default", "Accepts", "Effect here", "Notes"),
            (
                (*_named(key), _accepts(key), _effect(key), _notes(key))
                for key in sorted(PAIMON_KEYS, key=lambda entry: entry.name)
            ),
        ),
        "## Names with a free part",
        "The first matching line applies to a name.",
        _table(
            ("Key", "Type", "Effect here", "Notes"),
            ((f"`{family.form}`", family.kind, _effect(family), _since(family.since)) for family in FAMILIES),
        ),
        "## Options of a catalog",
        (
            "Passed to `Catalog(path, options=...)`. `table-default.<key>` is the initial value of an option in every "
            "new table. Secrets are refused: they come from the environment."
        ),
        _table(("Key", "Type", "Default"), (_named(key) for key in catalog_options.CATALOG_REGISTRY.values())),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines: Iterator[tuple[str, ...]] = iter([head, tuple("---" for _ in head), *rows])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _named(key: Key) -> tuple[str, str, str]:
    return f"`{key.name}`", key.kind, "unset" if key.default is None else f"`{key.default}`" if key.default else "empty"


def _effect(key: Key | Family) -> str:
    return f"{key.effect}: {key.reason}" if key.reason else str(key.effect)


def _accepts(key: Key) -> str:
    if key.name in ENUMS:
        return ", ".join(f"`{value}`" for value in ENUMS[key.name])
    if key.name in RANGES:
        low, high = RANGES[key.name]
        return f"{low:g} to {high:g}" if high < 2**31 - 1 else f"at least {low:g}"
    return ""


def _notes(key: Key) -> str:
    notes = ["fixed"] if key.immutable else []
    notes += [note] if (note := _since(key.since)) else []
    notes += [f"until {key.until}"] if key.until else []
    notes += [f"also `{alias}`" for alias in key.aliases]
    return ", ".join(notes)


def _since(version: str) -> str:
    return "" if version == "1.3" else f"since {version}"


def architecture_page(text: str) -> str:
    """Return docs/architecture.md with new tables of rooms between their marks; the other text is unchanged."""
    engine = {room: used for room, used in rooms().items() if room.startswith("lsm_core")}
    platform = {room: used for room, used in rooms().items() if not room.startswith("lsm_core")}
    for name, part in (("engine", engine), ("platform", platform)):
        marks = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = marks.sub(lambda match, part=part: f"{match[1]}\n{_rooms(part)}\n\n{match[2]}", text)
    return text


def _rooms(part: Mapping[str, set[str]]) -> str:
    known = modules()
    rows = []
    for room in sorted(part, key=_depth):
        about = (ast.get_docstring(ast.parse(known[room].read_text())) or "").split("\n\n", 1)[0].replace("\n", " ")
        rows.append((f"`{room}`", about.replace("|", "\\|")))
    return _table(("Room", "Purpose"), rows)


def _depth(room: str) -> tuple[int, str]:
    """Return the sort key of a room: its layer, highest first, then its name."""
    listed = layers()
    return next((at for at, layer in enumerate(listed) if room in layer), len(listed)), room
