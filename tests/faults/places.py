"""Storage for the warehouses of fault tests: folders, or prefixes of a bucket."""

from __future__ import annotations

import random
import shutil
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from lsm_core.storage import FileIO, LocalFileIO
from lsm_core.storage.object_store import ObjectStoreFileIO
from tests.support.s3_server import S3Server

_TABLE = "db.db/t/"


class Place(Protocol):
    """Storage for named warehouses: a disk or an object store."""

    kind: str
    file_io: FileIO

    def warehouse(self, name: str) -> str:
        """Return the address of a warehouse."""
        ...

    def load(self, name: str, source: Path) -> None:
        """Create a warehouse as a copy of a folder on disk."""
        ...

    def copy(self, source: str, name: str) -> None:
        """Create a warehouse as a copy of a warehouse in this storage."""
        ...

    def files(self, name: str) -> dict[str, str]:
        """Return a checksum of each file of table db.t, by path relative to the table."""
        ...

    def drop(self, name: str) -> None:
        """Delete a warehouse."""
        ...


class Disk:
    """Warehouses in folders of ``root``."""

    kind = "disk"

    def __init__(self, root: Path) -> None:
        self._root, self.file_io = root, LocalFileIO()

    def warehouse(self, name: str) -> str:
        """See Place."""
        return str(self._root / name)

    def load(self, name: str, source: Path) -> None:
        """See Place."""
        shutil.copytree(source, self._root / name)

    def copy(self, source: str, name: str) -> None:
        """See Place."""
        shutil.copytree(self._root / source, self._root / name)

    def files(self, name: str) -> dict[str, str]:
        """See Place."""
        root = self._root / name / _TABLE
        found = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): f"{zlib.crc32(path.read_bytes()):x}" for path in found}

    def drop(self, name: str) -> None:
        """See Place."""
        shutil.rmtree(self._root / name)


class Bucket:
    """Warehouses in a bucket; the server copies and lists a whole warehouse in one request."""

    kind = "object store"

    def __init__(self, server: S3Server) -> None:
        self._server, self._bucket = server, server.bucket()
        self.file_io = ObjectStoreFileIO(server.options)

    def warehouse(self, name: str) -> str:
        """See Place."""
        return f"{self._bucket}/{name}"

    def load(self, name: str, source: Path) -> None:
        """See Place."""
        for path in source.rglob("*"):
            if path.is_file():
                self.file_io.overwrite(f"{self._bucket}/{name}/{path.relative_to(source)}", path.read_bytes())

    def copy(self, source: str, name: str) -> None:
        """See Place."""
        self._server.copy(f"{self._bucket}/{source}/", f"{self._bucket}/{name}/")

    def files(self, name: str) -> dict[str, str]:
        """See Place."""
        return self._server.contents(f"{self._bucket}/{name}/{_TABLE}")

    def drop(self, name: str) -> None:
        """See Place."""
        self._server.drop(f"{self._bucket}/{name}/")


@contextmanager
def names_from(seed: str) -> Iterator[None]:
    """Give new files reproducible random names while the context is open, so that equal states are recognised."""
    chance = random.Random(seed)
    with patch.object(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)):
        yield


__all__ = ["Bucket", "Disk", "Place", "names_from"]
