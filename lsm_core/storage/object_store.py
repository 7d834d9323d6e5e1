"""Files in an object store (S3, and with the same calls Google's and Azure's), published by conditional puts.

Folders do not exist there: one is the common beginning of the keys below it, and a folder that must be seen while it is empty (a new
database) holds an empty object. Nothing is ever half written: an object is there whole, or not at all.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from lsm_core.errors import CorruptFile, InvalidOption, StorageRefused, UnsupportedFeature, is_panic
from lsm_core.options.catalog_options import S3_ENDPOINT, S3_PATH_STYLE, S3_REGION, STORAGE_OPTIONS
from lsm_core.storage import trace
from lsm_core.storage.file_io import Buffer, Deleted, FileStatus, Guarantee
from lsm_core.storage.metadata_limits import require_size
from lsm_core.storage.remote_input import RemoteFile
from lsm_core.storage.safe_paths import place_of

PART_BYTES: Final = 8 << 20
"""From this size on a new object is sent in parts while it is written."""
_PARTS_AT_ONCE: Final = 3
_KEYS_AT_ONCE: Final = 1_000
"""Objects that one request deletes, at most."""
_FOLDER_MARK: Final = ".folder"
_WRITER: Final = "dredge-writer"
"""Metadata of an object that was created exclusively: who did, a number that no other call has."""
_RETRIES: Final = 5
_RETRY_TIMEOUT: Final = timedelta(seconds=60)
_TIMEOUT: Final = timedelta(seconds=120)
_LONGEST_TEXT: Final = 300
_NO_BUCKET: Final = "<Code>NoSuchBucket</Code>"
_KEY, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_OTHER_SOURCES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    "AWS_SKIP_SIGNATURE",
)
"""What the library takes keys from beside the two variables, or that it needs none."""
_NO_KEYS: Final = f"the environment holds no keys: set {_KEY} and {_SECRET} (profiles of the AWS tools are not read)"
_MACHINES_ROLE: Final = ("/latest/api/token", "/latest/meta-data/")
"""Where the library asks the machine for the keys of its role, once the environment has none."""
_processes: set[int] = set()
"""The process that uses a store: what the library starts in it does not live on in one that is forked from it."""


class _NotAnswered(OSError):
    """A request failed, or its answer was lost: whether it was carried out is not known."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EIO, f"the store does not answer as it should: {reason}", path)


@contextmanager
def _step(name: str, path: str, verb: str = "read") -> Iterator[None]:
    """One traced I/O step; the library's errors become FileNotFoundError, FileExistsError, StorageRefused or an OSError."""
    with trace.step(name, path):
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StorageRefused(path, _said(error), verb) from error
        except BaseError as error:
            if _NO_BUCKET in str(error):
                raise StorageRefused(path, "there is no such bucket", verb) from error
            if any(part in str(error) for part in _MACHINES_ROLE):
                raise StorageRefused(path, f"{_NO_KEYS}, and this machine has no role that gives any", verb) from error
            raise _NotAnswered(path, _said(error)) from error
        except BaseException as error:
            if is_panic(error):
                raise _NotAnswered(path, f"the library that reaches it failed ({_said(error)})") from error
            raise


def _said(error: BaseException) -> str:
    """What the library says of a failure, on one line, without the dump of its own types."""
    text = " ".join(str(error).partition("Debug source:")[0].split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class ObjectStoreFileIO:
    """FileIO on an object store: paths are whole addresses (``s3://bucket/folder/file``), of any bucket.

    ``options``: `STORAGE_OPTIONS`, others are passed over. Keys come from the environment as the store's own tools read them. Pickles without
    connections, so that other processes open theirs. In a process that was forked from one that used a store, every call raises
    StorageRefused: the library's threads do not survive that.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        """Raises InvalidOption for an option of no use."""
        self.options = {key: str(value) for key, value in (options or {}).items() if key in STORAGE_OPTIONS}
        endpoint = self.options.get(S3_ENDPOINT)
        if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
            raise InvalidOption(S3_ENDPOINT, endpoint, "an address such as https://s3.example.com")
        if self.options.get(S3_PATH_STYLE, "true").lower() not in ("true", "false"):
            raise InvalidOption(S3_PATH_STYLE, self.options[S3_PATH_STYLE], "true or false")
        self._stores: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def guarantee(self) -> Guarantee:
        """A put on condition that there is no such object, which the store refuses where there is one."""
        return Guarantee.CONDITIONAL_PUT

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStoreFileIO) and self.options == other.options

    def __hash__(self) -> int:
        return hash(("object store", *sorted(self.options.items())))

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options, self._stores, self._lock = state["options"], {}, threading.Lock()

    def _at(self, path: str) -> tuple[Any, str]:
        """The store of an address, and the key within it. Raises CorruptFile for what is no address of an object store."""
        place = place_of(path)
        if not place:
            raise CorruptFile(path, "lies in no object store, where the rest of the table does")
        if os.getpid() not in _processes:
            if _processes:
                forked = "this process was forked from one that had used an object store, which nothing survives"
                raise StorageRefused(
                    path, f"{forked}: start it anew (multiprocessing: 'spawn' or 'forkserver')", "reach"
                )
            _processes.add(os.getpid())
        scheme, _, authority = place.partition("://")
        key = path[len(place) :]
        with self._lock:
            store = self._stores.get(place)
            if store is None:
                store = self._stores[place] = self._connected(place, scheme, authority)
        return store, key.strip("/")

    def _connected(self, place: str, scheme: str, authority: str) -> Any:
        try:
            return self._connect(place, scheme, authority)
        except BaseException as error:  # a panic of the library is no Exception
            if not (isinstance(error, BaseError | ValueError) or is_panic(error)):
                raise
            raise StorageRefused(place, f"its address or settings cannot be used: {_said(error)}", "reach") from error

    def _connect(self, place: str, scheme: str, authority: str) -> Any:
        connect: Any = from_url  # its overloads know the keys of each kind of store
        common: dict[str, Any] = {
            "retry_config": {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
            "client_options": {"timeout": _TIMEOUT},
        }
        if scheme not in ("s3", "s3a"):
            return connect(place, **common)
        endpoint = self.options.get(S3_ENDPOINT)
        address = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        if address and urlsplit(address).scheme not in ("http", "https"):
            variable = "AWS_ENDPOINT_URL_S3" if os.environ.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
            raise InvalidOption(variable, address, "an address with its scheme, such as https://s3.example.com")
        _require_keys(place, address)
        config: dict[str, Any] = {}
        if S3_REGION in self.options:
            config["region"] = self.options[S3_REGION]
        if self.options.get(S3_PATH_STYLE, "true").lower() == "false":
            config["virtual_hosted_style_request"] = True
            if endpoint is not None:  # the library takes it with the bucket in front
                parts = urlsplit(endpoint)
                endpoint = f"{parts.scheme}://{authority}.{parts.netloc}"
        if endpoint is not None:
            config["endpoint"] = endpoint
        if address.startswith("http://"):
            common["client_options"] = {**common["client_options"], "allow_http": True}
        return connect(f"s3://{authority}", config=config, **common)

    # -- reading ---------------------------------------------------------------------------------------------------

    def read_bytes(self, path: str) -> bytes:
        """Return the whole object. Raises CorruptFile for one that is larger than its kind allows."""
        store, key = self._at(path)
        with _step("read", path):
            answer = obstore.get(store, key)
            require_size(path, int(answer.meta["size"]))
            return bytes(answer.bytes())

    def open_input(self, path: str) -> RemoteFile:
        """Open for random access: one request, which brings the size and the end of the object."""
        store, key = self._at(path)

        def fetch(start: int, end: int) -> Any:
            with _step("read range", path):
                return obstore.get_range(store, key, start=start, end=end)

        def fetch_end(length: int) -> tuple[int, Any]:
            with _step("read end", path):
                found = obstore.get(store, key, options={"range": {"suffix": length}})
                return int(found.meta["size"]), found.bytes()

        return RemoteFile.opened(fetch, fetch_end, lambda: self.size(path))

    def exists(self, path: str) -> bool:
        """Tell whether an object, or one below it, is there."""
        store, key = self._at(path)
        with _step("exists", path):
            if key and _found(store, key):
                return True
            return bool(next(iter(obstore.list(store, key or None, chunk_size=1)), None))

    def size(self, path: str) -> int:
        """Return the length in bytes."""
        store, key = self._at(path)
        with _step("size", path):
            return int(obstore.head(store, key)["size"])

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return what lies below as files and folders; of folders no time is known (0)."""
        store, key = self._at(path)
        base, found = path.rstrip("/"), []
        with _step("list", path), suppress(FileNotFoundError):
            listed = obstore.list_with_delimiter(store, key or None)
            for prefix in listed["common_prefixes"]:
                name = prefix.rstrip("/").rpartition("/")[2]
                found.append(FileStatus(f"{base}/{name}", name, 0, 0, is_dir=True))
            for one in listed["objects"]:
                name = one["path"].rpartition("/")[2]
                if one["path"] != key and name != _FOLDER_MARK:
                    changed_ms = int(one["last_modified"].timestamp() * 1000)
                    found.append(FileStatus(f"{base}/{name}", name, int(one["size"]), changed_ms, is_dir=False))
        return sorted(found, key=lambda status: status.name)

    # -- writing ---------------------------------------------------------------------------------------------------

    def open_output(self, path: str) -> ObjectOutputFile:
        """Create an object; it is there once it is closed. That a name is taken is told then, or before the first part is sent."""
        store, key = self._at(path)
        return ObjectOutputFile(store, key, path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Put the object on condition that there is none; a put whose answer was lost is known again by its writer's number."""
        store, key = self._at(path)
        return _put_new(store, key, path, data)

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Put the object; an object store shows the old one or the new."""
        store, key = self._at(path)
        with _step("replace", path, "create"), _bucket_missing(path):
            obstore.put(store, key, data, use_multipart=False)

    def mkdirs(self, path: str) -> None:
        """Put an empty object below ``path``, so that the folder is seen while nothing else is in it."""
        self.overwrite(f"{path.rstrip('/')}/{_FOLDER_MARK}", b"")

    # -- removing and moving ---------------------------------------------------------------------------------------

    def delete(self, path: str) -> bool:
        """Remove one object: a store does not tell whether it was there, so that it is asked first."""
        store, key = self._at(path)
        with _step("delete", path, "remove"):
            if not _found(store, key):
                return False
            with suppress(FileNotFoundError):
                obstore.delete(store, key)
            return True

    def delete_many(self, paths: Sequence[str]) -> Iterator[Deleted]:
        """Delete objects, a thousand with each request; which of them are there a listing of their folders tells before.

        Where a request for many fails its objects are deleted one by one.
        """
        listed: dict[str, set[str]] = {}
        for start in range(0, len(paths), _KEYS_AT_ONCE):
            some = paths[start : start + _KEYS_AT_ONCE]
            stores: dict[str, Any] = {}
            try:
                listed = {
                    folder: listed.get(folder) or self._files(folder) for folder in dict.fromkeys(map(_folder, some))
                }
                there = set().union(*listed.values())
                keys: dict[str, list[str]] = {}
                for path in some:
                    stores[place_of(path)], key = self._at(path)
                    if path in there:
                        keys.setdefault(place_of(path), []).append(key)
                for place, found in keys.items():
                    with _step("delete many", place, "remove"):
                        obstore.delete(stores[place], found)
            except OSError:
                for path in some:
                    yield self._outcome(path)
            else:
                yield from (path in there for path in some)

    def _files(self, folder: str) -> set[str]:
        return {one.path for one in self.list_dir(folder) if not one.is_dir}

    def _outcome(self, path: str) -> Deleted:
        try:
            return self.delete(path)
        except OSError as error:
            return error

    def delete_dir(self, path: str) -> bool:
        """Remove every object below, a thousand with each request; what came after a failure is still there."""
        store, key = self._at(path)
        if not key:
            raise StorageRefused(path, "it is a whole bucket", "remove")
        seen = False
        with _step("delete_dir", path, "remove"):
            for chunk in obstore.list(store, key, chunk_size=_KEYS_AT_ONCE):
                seen = True
                obstore.delete(store, [one["path"] for one in chunk])
        return seen

    def rename(self, src: str, dst: str) -> bool:
        """Not in an object store: files would be copied one by one, and a commit made meanwhile be lost."""
        del dst
        raise UnsupportedFeature(f"renaming in an object store, where files can only be copied and deleted ({src})")


class ObjectOutputFile:
    """A new object: kept in memory up to `PART_BYTES`, then sent in parts. Nobody sees it before ``close`` returned.

    Small objects are put on condition that there is none, of which writing costs one request. A large one is not: its name was free
    when its first part was sent, and no two writers make the same.
    """

    def __init__(self, store: Any, key: str, path: str) -> None:
        self.path, self._store, self._key = path, store, key
        self._held: list[bytes] = []
        self._held_bytes = self._length = 0
        self._parts: Any = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closed

    def writable(self) -> bool:
        """Tell Python's io consumers that this is a sink."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False

    def write(self, data: Buffer) -> int:
        """Append ``data``."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        taken = bytes(data)
        self._held.append(taken)
        self._held_bytes += len(taken)
        self._length += len(taken)
        if self._held_bytes >= PART_BYTES:
            with _step("write", self.path, "create"):
                if self._parts is None:
                    if _found(self._store, self._key):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)
                    self._parts = obstore.open_writer(
                        self._store, self._key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                    )
                self._parts.write(self._taken())
        return len(taken)

    def _taken(self) -> bytes:
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return data

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._length

    def flush(self) -> None:
        """Nothing to do: there is no file before it is closed."""

    def close(self) -> None:
        """Finish the object; when that fails, it is removed and the error raised."""
        if self._closed:
            return
        self._closed, last = True, self._taken()
        if self._parts is None and _taken_by_other(self._store, self._key, self.path, last):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)
        if self._parts is None:
            return
        try:
            with _step("close", self.path, "create"):
                if last:
                    self._parts.write(last)
                self._parts.close()
        except BaseException:
            _remove_own(self._store, self._key)
            raise

    def abort(self) -> None:
        """Drop what was written; parts that were sent are given back."""
        if self._closed:
            return
        self._closed, self._held = True, []
        if self._parts is not None:
            with suppress(BaseError, OSError):
                self._parts.__exit__(InterruptedError, InterruptedError(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _require_keys(place: str, endpoint: str) -> None:
    """Raise StorageRefused naming the variable that the environment lacks: the library would ask the machine for a role's keys.

    Only Amazon's machines have such a role, for Amazon's own stores.
    """
    known = {name for name in (_KEY, _SECRET) if os.environ.get(name)}
    if len(known) == 1:
        missing = _SECRET if _KEY in known else _KEY
        raise StorageRefused(place, f"the environment variable {missing} is not set, and {known.pop()} is", "reach")
    elsewhere = endpoint and ".amazonaws.com" not in endpoint
    if not known and elsewhere and not any(os.environ.get(name) for name in _OTHER_SOURCES):
        raise StorageRefused(place, _NO_KEYS, "reach")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def _bucket_missing(path: str) -> Iterator[None]:
    """Of a put "not found" means the bucket."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageRefused(path, "there is no such bucket") from error


def _found(store: Any, key: str) -> bool:
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    return True


def _taken_by_other(store: Any, key: str, path: str, data: bytes) -> bool:
    """Create an object under a name that nobody else makes; what may be there after a failure is removed again."""
    try:
        return not _put_new(store, key, path, data)
    except BaseException:
        _remove_own(store, key)
        raise


def _remove_own(store: Any, key: str) -> None:
    """Delete an object of a name of our own, which may have been created although no answer came."""
    with suppress(BaseError, OSError):
        obstore.delete(store, key)


def _put_new(store: Any, key: str, path: str, data: bytes) -> bool:
    """Create an object that must not be there yet; False when another's is.

    The library sends a put again whose answer was lost, and is then told that the object exists: its own. Raises StorageRefused when
    nothing was created, OSError when it is not known.
    """
    mine = uuid.uuid4().hex
    with _step("put new", path, "create"), _bucket_missing(path):
        try:
            obstore.put(store, key, data, mode="create", use_multipart=False, attributes={_WRITER: mine})
        except (AlreadyExistsError, PreconditionError):
            try:
                return _writer_of(store, key) == mine
            except FileNotFoundError as error:
                raise _NotAnswered(path, "it was there when it was to be created, and then was not") from error
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
            raise
        except BaseError:
            with suppress(BaseError, OSError):
                if _writer_of(store, key) == mine:
                    return True
            raise
    return True


def _writer_of(store: Any, key: str) -> str | None:
    """The number that the creator of an object left on it. Raises what the store raises, FileNotFoundError where none is there."""
    return dict(obstore.get(store, key, options={"head": True}).attributes).get(_WRITER)


__all__ = ["PART_BYTES", "ObjectOutputFile", "ObjectStoreFileIO"]
