"""Rules about Dagster's private names: each has an entry with its reason, none is assigned, and no table is queried."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dagster as dg
import pytest
from dagster._annotations import is_public

from dredge.platform_core.dagster_internals import INTERNALS, Internal
from tests.docs.pages import ROOT

ROOMS = ("orchestration", "platform_core", "assets", "checks", "integrations/dagster-paimon/dagster_paimon")
"""Folders of the platform; `lsm_core` does not import Dagster, which import-linter ensures."""
WATCHED = (dg.DagsterInstance, dg.DefaultRunLauncher, dg.Definitions, dg.OpDefinition, dg.AssetsDefinition)
"""Classes whose public methods may replace an entry."""


@cache
def sources() -> list[tuple[Path, ast.Module]]:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [(path, ast.parse(path.read_text("utf-8"))) for path in paths]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of Dagster that a module imports or has as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"dagster\w*\._", node.module or ""):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield node.module if whole == "dagster._cli.api.api_cli" else whole
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if re.match(r"dagster\w*\._", alias.name))
        elif isinstance(node, ast.Constant) and re.fullmatch(r"dagster\w*\._[\w.]+", str(node.value)):
            yield str(node.value)


def dagster_classes(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, type]]:
    """Yield the classes of a module with a base class of Dagster."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) and base.value.id == "dg":
                    yield node, getattr(dg, base.attr)


def own_attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that a class defines: methods, fields, and attributes of `self` that it assigns."""
    names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    names |= {t.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(t := item.target, ast.Name)}
    return names | assigned(node)


def assigned(node: ast.AST) -> set[str]:
    """Return the attributes of `self` or `cls` that code assigns."""
    return {name for owner, name in assignments(node) if owner in {"self", "cls"}}


def assignments(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each assigned, deleted or set attribute, with the source text of its object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield ast.unparse(node.value), node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"setattr", "delattr"}:
            name = node.args[1]
            if isinstance(name, ast.Constant):
                yield ast.unparse(node.args[0]), str(name.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Call):
            call, key = node.value, node.slice
            if isinstance(call.func, ast.Name) and call.func.id == "vars" and isinstance(key, ast.Constant):
                yield ast.unparse(call.args[0]) if call.args else "", str(key.value)


def inherited(node: ast.ClassDef, base: type) -> set[str]:
    """Return the private names of Dagster that a class reads from `self`, with the name of the base class."""
    own = own_attributes(node)
    return {
        f"{base.__name__}.{item.attr}"
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute)
        and isinstance(item.value, ast.Name)
        and item.value.id == "self"
        and is_private(item.attr)
        and item.attr not in own
    }


def is_of_base(name: str, base: type) -> bool:
    """Return whether a class of Dagster has an attribute, also one that only instances have."""
    theirs = [kind for kind in base.__mro__ if kind.__module__.partition(".")[0].startswith("dagster")]
    return any(re.search(rf"\bself\.{name}\b", inspect.getsource(kind)) or name in vars(kind) for kind in theirs)


def test_each_private_name_of_dagster_has_an_entry_and_is_used() -> None:
    used: dict[str, list[str]] = {}
    for path, tree in sources():
        names = [] if path.name == "dagster_internals.py" else list(private_modules(tree))
        if path.name == "dagster_internals.py":
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            names = [name for node in imports for name in private_modules(ast.Module([node], []))]
        names += [name for node, base in dagster_classes(tree) for name in inherited(node, base)]
        for name in names:
            used.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    entries = [entry.name for entry in INTERNALS]
    assert len(entries) == len(set(entries))
    assert {name: paths for name, paths in used.items() if name not in entries} == {}
    assert [name for name in entries if name not in used] == []


def test_private_names_are_imported_in_one_place_except_for_the_classes_of_dagster_yaml() -> None:
    importing = {path.relative_to(ROOT).as_posix() for path, tree in sources() if [*private_modules(tree)]}
    # Classes that `dagster.yaml` may name.
    configured = {"orchestration/instance.py", "orchestration/launcher.py", "orchestration/storage.py"}
    assert importing == {"platform_core/dagster_internals.py", *configured}


def test_no_private_attribute_of_an_object_of_dagster_is_assigned() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT)}: {owner}.{name}"
        for path, tree in sources()
        for owner, name in assignments(tree)
        if is_private(name) and owner not in {"self", "cls"}
    ]
    assert elsewhere == []
    overwritten = [
        f"{path.relative_to(ROOT)}: {node.name}.{name}"
        for path, tree in sources()
        for node, base in dagster_classes(tree)
        for name in own_attributes(node)
        if is_private(name) and is_of_base(name, base)
    ]
    assert overwritten == []


def test_the_rules_find_what_they_forbid() -> None:
    text = """
import dagster as dg
from dagster._core.launcher import WorkerStatus
class Launcher(dg.DefaultRunLauncher):
    def work(self, op, graph):
        self._run_ids = set()
        self._inst_data.get("a")
        op._name = "b"
        vars(graph)["_node_dict"] = {}
        setattr(op, "_pool", None)
"""
    tree = ast.parse(text)
    assert list(private_modules(tree)) == ["dagster._core.launcher.WorkerStatus"]
    assert {pair for pair in assignments(tree) if pair[0] != "self"} == {
        ("op", "_name"),
        ("graph", "_node_dict"),
        ("op", "_pool"),
    }
    ((node, base),) = dagster_classes(tree)
    assert inherited(node, base) == {"DefaultRunLauncher._inst_data"}
    assert is_of_base("_run_ids", base)
    assert not is_of_base("_forked", base)


def test_no_table_of_dagster_is_queried_and_only_the_storage_writes_rows() -> None:
    importing = [
        path.relative_to(ROOT).as_posix()
        for path, tree in sources()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sqlalchemy")
        or (isinstance(node, ast.Import) and any(alias.name.startswith("sqlalchemy") for alias in node.names))
    ]
    # The instance's own storage writes the rows that Dagster's storage would; a test compares them.
    assert importing == ["orchestration/storage.py"]


@pytest.mark.parametrize("entry", INTERNALS, ids=lambda entry: entry.name)
def test_an_entry_exists_in_the_installed_version_and_nothing_public_replaces_it(entry: Internal) -> None:
    """If this fails, use the public name and delete the entry, or find out where the private name went."""
    owner, _, name = entry.name.rpartition(".")
    if entry.name.startswith("dagster."):
        try:
            importlib.import_module(entry.name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(owner), name)
    else:
        assert is_of_base(name, getattr(dg, owner))
    assert [offer for offer in sorted(public_names()) if entry.successor.fullmatch(offer)] == []
    assert 20 < len(entry.reason) < 200


def public_names() -> set[str]:
    """Return the names in `dagster`, and the public methods and properties of the watched classes, with the class."""
    members = {
        f"{kind.__name__}.{name}"
        for kind in WATCHED
        for name in dir(kind)
        if not name.startswith("_") and is_public(inspect.getattr_static(kind, name))
    }
    return {name for name in dir(dg) if not name.startswith("_")} | members


def test_the_public_names_are_read() -> None:
    assert {"DefaultRunLauncher", "DagsterInstance.get_latest_materialization_event"} <= public_names()
