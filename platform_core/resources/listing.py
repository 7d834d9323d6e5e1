"""Stored listing of the warehouse, so that loading definitions again opens only the tables that changed.

The listing is a file per warehouse in DAGSTER_HOME. While the schema files of a table are unchanged, its `TableCard`
(name, keys and options that definitions need) comes from the listing, which costs one request per table. The listing
is only a cache. If the file is lost, truncated or written by a different version, all tables are opened once and the
file is written again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from dredge.platform_core.health import refusal_of
from dredge.platform_core.resources.warehouse import WarehouseResource, card_of, describe_warehouse
from dredge.platform_core.table_card import ColumnCard, TableCard
from lsm_core import Catalog, __version__
from lsm_core.errors import DredgeError
from lsm_core.format.schema import TableSchema
from lsm_core.json_text import parse_json
from lsm_core.storage import FileIO, done_in_turn, place_of

_LOG = logging.getLogger(__name__)
_HOME: Final = "DAGSTER_HOME"
_FORM: Final = [__version__, *(item.name for kind in (TableCard, ColumnCard) for item in dataclasses.fields(kind))]
"""Version and fields of the listing file; a file with a different version or other fields is not read."""
SchemaFiles = list[list[Any]]
"""Name, size and time (epoch ms) of each schema file of a table, in JSON form."""


@dataclass(frozen=True)
class _ListingEntry:
    files: SchemaFiles
    card: TableCard


def listing_file(environment: Mapping[str, str], warehouse: WarehouseResource) -> Path | None:
    """Return the path of a warehouse's stored listing (cached table descriptions), or None without DAGSTER_HOME."""
    home = environment.get(_HOME, "").strip()
    identity = json.dumps(
        [warehouse.path, sorted(warehouse.catalog_options.items()), warehouse.include, warehouse.exclude]
    )
    return Path(home) / "dredge" / f"tables-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json" if home else None


def describe_with_listing(warehouse: WarehouseResource, file: Path | None) -> list[TableCard]:
    """Return the description of every table, from valid entries of the stored listing, and update the listing.

    Tables that cannot be opened or maintained are opened every time, because the reason may end without a new schema.
    Tables of catalogs with a metastore (such as JDBC) are opened every time, too, because only the metastore knows
    their names.

    Args:
        warehouse: the warehouse.
        file: path of the listing, or None to open every table.

    Raises:
        InvalidOption: the warehouse is not a readable folder.
    """
    catalog = warehouse.catalog()
    if file is None or catalog.options.metastore != "filesystem":
        return describe_warehouse(warehouse)
    known = _read(file)
    reads = (partial(_schema_files, catalog.file_io, listed.card.root) for listed in known.values())
    current_files = dict(zip(known, done_in_turn(reads, at_once=bool(place_of(catalog.root))), strict=True))
    valid: dict[str, _ListingEntry] = {}

    def describe(catalog: Catalog, name: str) -> TableCard:
        listed = known.get(name)
        if listed is not None and listed.files and listed.files == current_files[name]:
            valid[name] = listed
            return listed.card
        try:
            store = catalog.table(name).store
            card, files = card_of(name, store, refusal_of(store)), _schema_files(catalog.file_io, store.root)
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            return TableCard(name=name, refusal=str(error), unreadable=True)
        if card.refusal is None and _is_newest(store.schema, files):
            valid[name] = _ListingEntry(files, card)
        return card

    cards = describe_warehouse(warehouse, describe=describe)
    if valid != known:
        _write(file, valid)
    return cards


def remove_from_listing(file: Path | None, tables: Collection[str]) -> None:
    """Remove tables from the listing ``file`` (None: no listing), so that the next load of definitions opens them."""
    known = {} if file is None else _read(file)
    if file is not None and not known.keys().isdisjoint(tables):
        _write(file, {name: listed for name, listed in known.items() if name not in tables})


def _schema_files(file_io: FileIO, root: str) -> SchemaFiles:
    try:
        return sorted([item.name, item.size, item.mtime_ms] for item in file_io.list_dir(f"{root}/schema"))
    except (DredgeError, OSError):
        return []  # opening the table reports the error


def _is_newest(schema: TableSchema, files: SchemaFiles) -> bool:
    """Return whether `schema` is the newest of the listed schema files, so no ALTER TABLE came between both reads."""
    names = {name for name, *_ in files}
    return f"schema-{schema.id}" in names and f"schema-{schema.id + 1}" not in names


def _read(file: Path) -> dict[str, _ListingEntry]:
    try:
        stored = parse_json(file.read_bytes())
        if stored["form"] != _FORM:
            return {}
        return {name: _ListingEntry(files, _card(**card)) for name, (files, card) in stored["tables"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        _LOG.warning("the listing of the warehouse in %s cannot be read and is rebuilt: %s", file, error)
        return {}


def _card(
    columns: list[dict[str, Any]], primary_keys: list[str], partition_keys: list[str], **fields: Any
) -> TableCard:
    return TableCard(
        columns=tuple(ColumnCard(**column) for column in columns),
        primary_keys=tuple(primary_keys),
        partition_keys=tuple(partition_keys),
        **fields,
    )


def _write(file: Path, listed: Mapping[str, _ListingEntry]) -> None:
    tables = {name: [item.files, dataclasses.asdict(item.card)] for name, item in listed.items()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_suffix(f".{os.getpid()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # columns and options of all tables
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"form": _FORM, "tables": tables}, stream)
        draft.replace(file)  # atomic: other processes read the file at the same time
    except OSError as error:
        _LOG.warning("the listing of the warehouse cannot be written to %s: %s", file, error)
