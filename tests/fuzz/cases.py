"""Damage of a fuzz case: the files and their changes, drawn from the case's random generator alone."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz import data_files, hostile, structured

_DATA = (".parquet", ".orc", ".avro")


@dataclass(frozen=True)
class Done:
    """Description of a damage, and the earlier content of the changed files."""

    about: str
    saved: dict[Path, bytes | None]

    def undo(self) -> None:
        """Restore every changed file."""
        for path, data in self.saved.items():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            if data is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


class Damage:
    """Random damage of one table, in place."""

    def __init__(self, random: Random, root: Path) -> None:
        self.random, self.root = random, root
        self.saved: dict[Path, bytes | None] = {}

    def apply(self) -> Done:
        """Make one or two changes; in three of four cases, correct the file sizes in the metadata."""
        about = [self._one() for _ in range(self.random.choice([1, 1, 1, 2]))]
        if self.random.random() < 0.75:
            self._make_sizes_fit()
            about.append("sizes fit")
        return Done("; ".join(about), self.saved)

    # -- changing files ---------------------------------------------------------------------------------------------

    def _put(self, path: Path, data: bytes | None) -> None:
        self.saved.setdefault(path, path.read_bytes() if path.is_file() else None)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if data is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def _files(self) -> list[Path]:
        found = sorted(p for p in self.root.rglob("*") if p.is_file() and not p.is_symlink())
        return [p for p in found if p.name[:1] != "."]

    def _pick(self) -> Path:
        """Return a random file; all kinds of files are equally likely, although most files are data files."""
        kinds: dict[str, list[Path]] = {}
        for path in self._files():
            kinds.setdefault(kind_of(path), []).append(path)
        return self.random.choice(kinds[self.random.choice(sorted(kinds))])

    def _one(self) -> str:
        roll = self.random.random()
        if roll < 0.84:
            return self._content()
        return self.random.choice(
            [self._swap, self._remove, self._folder, self._strange_name, self._hint, self._next_one]
        )()

    def _content(self) -> str:
        path = self._pick()
        data, kind = path.read_bytes(), kind_of(path)
        other = self.random.choice(self._files()).read_bytes()
        if kind in ("schema", "snapshot", "tag", "consumer", "statistics", "changelog") and self.random.random() < 0.75:
            changed = structured.change_json(self.random, data)
        elif kind in ("manifest", "manifest-list", "index-manifest") and self.random.random() < 0.75:
            changed = structured.change_avro(self.random, data)
        elif kind == "index" and data[:1] == b"\x01":
            changed = structured.change_vectors(self.random, data)
        elif kind == "data":
            changed = data_files.change_data(self.random, path.name, data, other)
        else:
            changed = hostile.damage(self.random, data, other)
        self._put(path, changed)
        return f"{path.relative_to(self.root)} changed"

    def _swap(self) -> str:
        first, two = self._pick(), self._pick()
        self._put(first, two.read_bytes())
        return f"{first.relative_to(self.root)} holds {two.relative_to(self.root)}"

    def _remove(self) -> str:
        path = self._pick()
        self._put(path, None)
        return f"{path.relative_to(self.root)} removed"

    def _folder(self) -> str:
        path = self._pick()
        self._put(path, None)
        path.mkdir()
        return f"{path.relative_to(self.root)} is a folder"

    def _strange_name(self) -> str:
        where = self.random.choice(
            ["schema", "snapshot", "tag", "consumer", "changelog", "branch", "manifest", "branch/branch-x/schema"]
        )
        prefix = where.split("/")[0]
        tail = self.random.choice(
            [
                "",
                "..",
                "1e3",
                "-1",
                "٣",
                "²",
                "007",
                "9" * 30,
                "9" * 19,
                " 1",
                "1 ",
                "\n",
                "+1",
                "0x1",
                "é",
                "a b",
                "%2e",
                "x" * 200,
                "1_0",
            ]
        )
        path = self.root / where / f"{prefix}-{tail}"
        same = sorted((self.root / where).glob(f"{prefix}-*"))
        if path.exists():
            return "nothing"
        self._put(path, same[-1].read_bytes() if same and same[-1].is_file() else b"{}")
        return f"new file {path.relative_to(self.root)!s}"

    def _hint(self) -> str:
        name = self.random.choice(["LATEST", "EARLIEST"])
        path = self.root / self.random.choice(["snapshot", "snapshot", "changelog"]) / name
        text = self.random.choice(
            [
                b"",
                b"-1",
                b"0",
                b"9" * 25,
                b"x",
                b"\xff\xfe",
                b"1\n",
                b" 2 ",
                b"1e3",
                "٣".encode(),
                b"1" * 10_000,
                b"../1",
            ]
        )
        self._put(path, text)
        return f"{path.relative_to(self.root)} says {text[:20]!r}"

    def _next_one(self) -> str:
        """Create a newer schema or snapshot as a changed copy, with references to wrong or missing objects."""
        kind = self.random.choice(["schema", "snapshot"])
        files = sorted((self.root / kind).glob(f"{kind}-*"))
        files = [p for p in files if p.name.rpartition("-")[2].isdecimal()]
        if not files:
            return "nothing"
        newest = max(int(p.name.rpartition("-")[2]) for p in files)
        source = self.random.choice(files)
        try:
            value = json.loads(source.read_bytes())
            value["schemaId" if kind == "snapshot" else "highestFieldId"] += 0
        except (ValueError, RecursionError, TypeError, KeyError):  # damaged already
            return "nothing"
        if self.random.random() < 0.7:
            value["id"] = newest + 1
        if kind == "snapshot":
            value["schemaId"] = self.random.choice([0, 1, 7, -1, 2**40, value["schemaId"]])
        else:
            value["highestFieldId"] = self.random.choice([value["highestFieldId"], 0, -1, 2**31, 2**70])
            for field in value["fields"]:
                if self.random.random() < 0.2:
                    field["id"] = self.random.choice([0, 1, -1, 2**31 - 1, 2**62, field["id"] + 1])
        self._put(self.root / kind / f"{kind}-{newest + 1}", json.dumps(value).encode())
        return f"{kind}-{newest + 1} made of {source.name}"

    # -- sizes ------------------------------------------------------------------------------------------------------

    def _make_sizes_fit(self) -> None:
        sizes = {path.name: path.stat().st_size for path in self._files()}
        changed = {path.name for path in self.saved}
        if not changed:
            return

        def fit(record: dict[str, object]) -> None:
            file = record.get("_FILE")
            record = file if isinstance(file, dict) else record
            name = str(record.get("_FILE_NAME"))
            if name in changed and name in sizes:
                record["_FILE_SIZE"] = sizes[name]

        for level in ("manifest", "index-manifest", "manifest-list"):
            for path in self._files():
                if kind_of(path) == level and not changed.isdisjoint(structured.file_names(data := path.read_bytes())):
                    fitted = structured.edit_avro(data, fit)
                    self._put(path, fitted)
                    sizes[path.name] = len(fitted)
                    changed.add(path.name)
        for path in self._files():
            if kind_of(path) in ("snapshot", "tag", "changelog"):
                self._put(path, structured.without_sizes(path.read_bytes()))


def kind_of(path: Path) -> str:
    """Return the kind of a file, by its folder and name."""
    folder, name = path.parent.name, path.name
    if name in ("LATEST", "EARLIEST"):
        return "hint"
    if name.endswith(_DATA):
        return "data"
    if name.endswith(".index"):
        return "file-index"
    for kind in ("index-manifest", "manifest-list", "manifest"):
        if folder == "manifest" and name.startswith(kind + "-"):
            return kind
    return (
        folder if folder in ("schema", "snapshot", "tag", "consumer", "statistics", "changelog", "index") else "other"
    )


def world(place: Path) -> Path:
    """Create and return the folder ``place / "outside"`` with a file that hostile names try to reach."""
    outside = place / "outside"
    outside.mkdir(parents=True, exist_ok=True)
    (outside / "secret").write_text("secret")
    return outside


def tree(folder: Path, without: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of every file below ``folder`` that is not below ``without``."""
    found, left = {}, str(without)
    for base, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if f"{base}/{f}" != left]
        found.update({f"{base}/{n}": (s.st_size, s.st_mtime_ns) for n in names for s in [os.lstat(f"{base}/{n}")]})
    return found
