"""The verb that checks the environment: Java, Spark, disk, clock, permissions, and sources of options."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from lsm_core.cli.completion import table_names as names_offered
from lsm_core.cli.render import print_json, print_table
from lsm_core.cli.verbs.common import AsJson, Warehouse, open_catalog, read_catalog_options
from lsm_core.cli.verbs.inspection import list_lost_schemas, table_names
from lsm_core.clock import SystemClock
from lsm_core.errors import DredgeError

if TYPE_CHECKING:
    from lsm_core.metadata.store import TableStore
    from lsm_core.storage import FileIO
    from lsm_core.table import Catalog

_LEAST_FREE: Final = 1 << 30
_LITTLE_FREE: Final = 0.1
_SKEW_MS: Final = 2_000
_BAD_SKEW_MS: Final = 60_000
_SECONDS_TO_CONNECT: Final = 3.0
_SPARK_PORT: Final = 15002
_PACKAGES: Final = {
    "dagster": "the platform",
    "dagster-webserver": "its pages",
    "great-expectations": "the check 'expectations'",
}
_VARIABLES: Final = re.compile(
    r"(DREDGE|AWS|OSS|ALIBABA_CLOUD|OBS|COSN|TENCENTCLOUD|AZURE|GOOGLE|DAGSTER)_\w+"
    r"|JAVA_HOME|SPARK_HOME|PYSPARK_PYTHON|TZ|TMPDIR"
)
_SECRETS: Final = ("PASSWORD", "SECRET", "TOKEN", "KEY", "WEBHOOK", "SMTP")


class FindingVerdict(StrEnum):
    """Outcome of one check of `dredge doctor`."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """Result of one check of `dredge doctor`.

    Attributes:
        check: name of the check.
        verdict: outcome of the check.
        text: explanation with numbers.
    """

    check: str
    verdict: FindingVerdict
    text: str


@dataclass(frozen=True)
class EffectiveOption:
    """Option that is set, with its source.

    Attributes:
        option: key of the option.
        value: value of the option, with secrets masked.
        comes_from: source of the value, for example "environment", "default" or the id of the table's schema.
    """

    option: str
    value: str
    comes_from: str


def doctor(
    warehouse: Warehouse,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Also check this table's folder, guarantee and options.",
            show_default=False,
            autocompletion=names_offered,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the environment, and show the source of each option; exits 1 if a check fails.

    The command writes a small file into the warehouse and deletes it.
    """
    catalog = open_catalog(warehouse)
    store = None if table is None else catalog.store(table)
    is_served = catalog.place != catalog.root
    root = catalog.place if store is None else store.root
    server = list(_check_server(catalog))
    answers = all(finding.verdict is not FindingVerdict.FAIL for finding in server)
    findings = [
        *_check_programs(),
        *server,
        *_check_disks(root),
        # A catalog server has no folder that clients may write into, besides those of its tables.
        *(() if is_served and store is None else _check_storage((store or catalog).file_io, root)),
        *(_check_guarantees(catalog, store) if answers else ()),
        *(_check_external_paths(catalog, store) if answers else ()),
    ]
    options = [*_list_table_options(store), *_list_other_options()]
    if as_json:
        print_json(
            {"findings": [asdict(finding) for finding in findings], "options": [asdict(finding) for finding in options]}
        )
    else:
        print_table(
            root,
            ["check", "verdict", "result"],
            [[finding.check, finding.verdict, finding.text] for finding in findings],
        )
        print_table(
            "options",
            ["option", "value", "comes from"],
            [[finding.option, finding.value, finding.comes_from] for finding in options],
        )
    failed = [finding for finding in findings if finding.verdict is FindingVerdict.FAIL]
    if failed:
        raise DredgeError(
            f"{len(failed)} of {len(findings)} checks failed: {'; '.join(f'{o.check}: {o.text}' for o in failed)}"
        )


# -- programs ----------------------------------------------------------------------------------------------------------


def _check_programs() -> Iterator[Finding]:
    from lsm_core.spark.java import find_java

    try:
        java = find_java()
        yield Finding("java", FindingVerdict.OK, f"Java {java.version} in {java.home}, found by {java.source}")
    except DredgeError as error:
        yield Finding(
            "java",
            FindingVerdict.WARN,
            f"{error}; compactions can run without Spark (--runner process, DREDGE_RUNNER=local)",
        )
    try:
        yield Finding("spark", FindingVerdict.OK, f"pyspark {version('pyspark')}")
    except PackageNotFoundError:
        yield Finding("spark", FindingVerdict.WARN, "pyspark is not installed: pip install 'dredge[spark]'")
    remote = os.environ.get("DREDGE_SPARK_REMOTE", "").strip()
    if remote:
        yield _check_spark_server(remote)
    for package, part in _PACKAGES.items():
        try:
            yield Finding(package, FindingVerdict.OK, version(package))
        except PackageNotFoundError:
            yield Finding(
                package, FindingVerdict.WARN, f"not installed, so that {part} cannot run: pip install 'dredge[dagster]'"
            )


def _check_spark_server(address: str) -> Finding:
    shown = address.split("/;", maxsplit=1)[0]  # what follows may hold a token
    try:
        parts = urlsplit(shown)
        place = parts.hostname or "localhost", parts.port or _SPARK_PORT
        socket.create_connection(place, timeout=_SECONDS_TO_CONNECT).close()
    except (OSError, ValueError) as error:
        return Finding(
            "spark server", FindingVerdict.FAIL, f"nothing answers at {shown} (DREDGE_SPARK_REMOTE): {error}"
        )
    if importlib.util.find_spec("grpc") is None:
        return Finding("spark server", FindingVerdict.FAIL, "grpc is not installed: pip install 'dredge[spark]'")
    return Finding("spark server", FindingVerdict.OK, f"{shown} answers")


# -- where tables lie --------------------------------------------------------------------------------------------------


def _check_server(catalog: Catalog) -> Iterator[Finding]:
    """Check that the server of a REST catalog, or a Hive metastore, answers with its databases."""
    titles = {"rest": "catalog server", "hive": "Hive metastore"}
    title = titles.get(catalog.options.metastore)
    if title is None:
        return
    try:
        number = len(catalog.list_databases())
    except DredgeError as error:
        yield Finding(title, FindingVerdict.FAIL, str(error))
        return
    place, work = catalog.place, "it publishes the snapshots of its tables"
    if catalog.options.metastore == "hive":
        place = catalog.metastore_address
        work = "it lists the tables, and the storage or the table's lock makes commits exclusive"
    yield Finding(title, FindingVerdict.OK, f"{place} answers and lists {number:,} databases; {work}")


def _check_disks(root: str) -> Iterator[Finding]:
    from lsm_core.maintenance.action import size_text

    places = {"disk of the warehouse": root} if "://" not in root else {}
    places["disk for temporary files"] = tempfile.gettempdir()
    if home := os.environ.get("DAGSTER_HOME", "").strip():
        places["disk of DAGSTER_HOME"] = home
    for title, place in places.items():
        try:
            usage = shutil.disk_usage(place)
        except OSError as error:
            yield Finding(title, FindingVerdict.FAIL, f"{place}: {error.strerror or error}")
            continue
        share = usage.free / usage.total if usage.total else 0.0
        bad, little = usage.free < _LEAST_FREE, share < _LITTLE_FREE
        verdict = FindingVerdict.FAIL if bad else FindingVerdict.WARN if little else FindingVerdict.OK
        yield Finding(
            title, verdict, f"{size_text(usage.free)} of {size_text(usage.total)} free ({share:.0%}) in {place}"
        )


def _check_storage(file_io: FileIO, root: str) -> Iterator[Finding]:
    """Check the storage by the steps of a commit on a small file: create it exclusively, list, read and delete it."""
    place, clock = f"{root}/.dredge-doctor-{uuid.uuid4().hex[:8]}", SystemClock()
    step, created = "create", False
    try:
        before = clock.now_ms()
        created = file_io.write_exclusive(place, b"doctor")
        after = clock.now_ms()
        step = "create a second time"
        again = file_io.write_exclusive(place, b"again")
        step = "list"
        seen = next((status for status in file_io.list_dir(root) if status.path == place), None)
        step = "read"
        content = file_io.read_bytes(place)
        step = "delete"
        deleted = file_io.delete(place)
    except (OSError, DredgeError) as error:
        yield Finding("permissions", FindingVerdict.FAIL, f"cannot {step} a file in {root}: {error}")
        if created and step != "delete":
            try:
                file_io.delete(place)
            except (OSError, DredgeError) as left:
                yield Finding("permissions", FindingVerdict.WARN, f"{place} is left behind: {left}")
        return
    right = created and content == b"doctor" and seen is not None and deleted
    text = f"files can be created, listed, read and deleted in {root}"
    yield (
        Finding("permissions", FindingVerdict.OK, text)
        if right
        else Finding("permissions", FindingVerdict.FAIL, f"a new file in {root} is not found again as it was written")
    )
    if again or content != b"doctor":
        text = f"{root}: an existing file was created again, so commits of two processes would overwrite each other"
        yield Finding("exclusive creation", FindingVerdict.FAIL, text)
    elif file_io.guarantee.value == "none":
        yield Finding("exclusive creation", FindingVerdict.WARN, _unsafe_creation_text(file_io, root))
    else:
        yield Finding(
            "exclusive creation",
            FindingVerdict.OK,
            f"a file that is there is not created again ({file_io.guarantee.value})",
        )
    if seen is not None:
        skew = max(before - seen.mtime_ms, seen.mtime_ms - after, 0)  # the store may have cut the time to whole seconds
        ahead = "behind" if seen.mtime_ms < before else "ahead of"
        verdict = (
            FindingVerdict.FAIL
            if skew > _BAD_SKEW_MS
            else FindingVerdict.WARN
            if skew > _SKEW_MS
            else FindingVerdict.OK
        )
        text = (
            f"the store's clock is {skew / 1000:.1f} s {ahead} this machine's"
            if skew > _SKEW_MS
            else f"within {_SKEW_MS // 1000} s of the store's"
        )
        yield Finding("clock", verdict, text)


def _unsafe_creation_text(file_io: FileIO, root: str) -> str:
    """Return what commits need on a store without exclusive creation, and the option that a test allows."""
    from lsm_core.options.catalog_options import EXCLUSIVE_CREATE
    from lsm_core.storage.object_store import ObjectStoreFileIO
    from lsm_core.storage.store_settings import CreationMode

    text = "Dredge does not rely on the store to refuse the creation of an existing object, so commits need a lock"
    modes = file_io.tested_modes(root) if isinstance(file_io, ObjectStoreFileIO) else []
    if modes:
        text += f"; this store refused it in a test: {EXCLUSIVE_CREATE} = {modes[0]} makes commits exclusive"
    if CreationMode.FORBID_OVERWRITE in modes[:1]:
        text += " (not in buckets with versions)"
    return text


def _check_guarantees(catalog: Catalog, store: TableStore | None) -> Iterator[Finding]:
    from lsm_core.locks import lock_given_way

    names, broken = ([store.name], {}) if store is not None else table_names(catalog)
    tables_by_guarantee: dict[str, list[str]] = {}
    for name in names:
        try:
            opened = catalog.store(name) if store is None else store
            tables_by_guarantee.setdefault(_guarantee_of(opened), []).append(name)
            other = lock_given_way(opened.schema.options, opened.options)
        except (OSError, DredgeError) as error:
            broken[name] = str(error)
            continue
        if other:
            yield Finding("lock", FindingVerdict.WARN, f"{name}: {other}")
    for text, tables in tables_by_guarantee.items():
        verdict = FindingVerdict.FAIL if text.startswith("commits are refused") else FindingVerdict.OK
        which = tables[0] if len(tables) == 1 else f"{len(tables)} tables"
        yield Finding("guarantee", verdict, f"{which}: {text}")
    for name, why in broken.items():
        yield Finding("table", FindingVerdict.FAIL, f"{name} cannot be opened: {why}")
    for line in list_lost_schemas(catalog, names) if store is None else ():
        yield Finding("table", FindingVerdict.FAIL, line)


def _check_external_paths(catalog: Catalog, store: TableStore | None) -> Iterator[Finding]:
    """Report the folders in which the operator allows data files, and the paths that tables use without permission."""
    from lsm_core.options import EXTERNAL_ROOTS, parse_external_roots

    try:
        roots = parse_external_roots(os.environ.get(EXTERNAL_ROOTS, ""))
        roots = (*parse_external_roots(catalog.options.external_roots, "dredge.external-roots"), *roots)
    except DredgeError as error:
        yield Finding("external paths", FindingVerdict.FAIL, str(error))
        return
    names = [store.name] if store is not None else table_names(catalog)[0]
    used = False
    for name in names:
        try:
            texts = list(_refused_places(catalog.store(name) if store is None else store, whole=store is not None))
        except (DredgeError, OSError):  # reported with the guarantees
            continue
        for text in texts:
            used = True
            yield Finding("external paths", FindingVerdict.WARN, f"{name}: {text}")
    if roots or used:
        allowed = ", ".join(map(str, roots)) or "none"
        yield Finding("external paths", FindingVerdict.OK, f"allowed by {EXTERNAL_ROOTS} and the catalog: {allowed}")


def _refused_places(store: TableStore, *, whole: bool) -> Iterator[str]:
    """Yield why external paths of a table cannot be used: those that it declares, and those of its live files.

    The live files of a table that declares no path are read only if ``whole`` is set; `dredge status` reports them too.
    """
    from lsm_core.metadata import manifests, snapshots
    from lsm_core.metadata.support import describe_refused_places

    try:
        external = store.external_paths
        if external.takes_new_files:
            yield from external.refusals()
        snapshot = snapshots.latest(store) if whole or external.declared else None
        if snapshot is None:
            return
        live = manifests.live_entries(store, snapshot, columns=["external_path"])
        reason = describe_refused_places(store, live)
        if reason is not None:
            yield reason
    except (DredgeError, OSError) as error:
        yield str(error)


def _guarantee_of(store: TableStore) -> str:
    from lsm_core.locks import guarantee_text

    server = "" if store.publisher is None else store.publisher.address
    return guarantee_text(store.file_io, store.root, store.name, store.options, server)


# -- options -----------------------------------------------------------------------------------------------------------


def _list_table_options(store: TableStore | None) -> Iterator[EffectiveOption]:
    if store is None:
        return
    from lsm_core.options import REGISTRY, mask_secrets

    stored, shown = store.schema.options, mask_secrets(store.options.raw)
    for key, value in sorted(store.options.raw.items()):
        own = stored.get(key) == value
        yield EffectiveOption(
            key, shown[key], f"the table (schema {store.schema.id})" if own else "the catalog's options"
        )
    for key in sorted(name for name in REGISTRY if name.startswith("dredge.") and not store.options.is_set(name)):
        yield EffectiveOption(key, str(REGISTRY[key].default or "-"), "default")


def _list_other_options() -> Iterator[EffectiveOption]:
    for key, (value, source) in sorted(read_catalog_options().items()):
        yield EffectiveOption(key, _mask_secrets(key, value), source)
    for name, value in sorted(os.environ.items()):
        if _VARIABLES.fullmatch(name) and value:
            yield EffectiveOption(name, _mask_secrets(name, value), "environment")


def _mask_secrets(name: str, value: str) -> str:
    """Return the value of an option with secrets masked: passwords, tokens, and users in addresses."""
    if any(word in name.upper() for word in _SECRETS):
        return "(set)"
    return re.sub(r"//[^/@\s]+@", "//***@", value.split("/;", maxsplit=1)[0])
