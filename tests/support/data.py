"""Folders of test data: named by the environment, else in ../shared, else the copy in tests/data."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIES = ROOT / "tests" / "data"
SHARED = ROOT.parent / "shared"


def golden_dir() -> Path:
    """Return the folder of golden tables: `DREDGE_GOLDEN`, else ../shared/golden, else tests/data/golden."""
    return _folder("golden", "DREDGE_GOLDEN", "*.tar.gz")


def vectors_dir() -> Path:
    """Return the folder of vectors: `DREDGE_VECTORS`, else ../shared/vectors, else tests/data/vectors."""
    return _folder("vectors", "DREDGE_VECTORS", "*.json")


def peer_dir() -> Path:
    """Return the folder of the Java peer's sources: ../shared/peer, else tests/data/peer."""
    return _folder("peer", None, "PaimonPeer.java")


def unpack_golden(name: str, place: Path) -> Path:
    """Extract golden table ``name`` below ``place`` and return the table's folder."""
    with tarfile.open(golden_dir() / f"{name}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place / "warehouse" / "db.db" / "t"


def golden_names() -> list[str]:
    """Return the names of all golden tables, sorted."""
    return sorted(path.name.removesuffix(".tar.gz") for path in golden_dir().glob("*.tar.gz"))


def _folder(name: str, variable: str | None, needs: str) -> Path:
    """Return a folder of test data.

    Raises:
        FileNotFoundError: the folder does not exist or has no file that matches ``needs``.
    """
    named = os.environ.get(variable) if variable else None
    if named:
        candidates = [Path(named)]
    else:
        candidates = [path for path in (SHARED / name, COPIES / name) if path.is_dir()] or [COPIES / name]
    folder = candidates[0]
    if not folder.is_dir() or not any(folder.glob(needs)):
        asked = f" (named by {variable})" if named else ""
        raise FileNotFoundError(f"test data folder {folder}{asked} is missing or has no {needs}")
    return folder
