"""Files in an object store (S3 and compatible stores, Google's and Azure's), published by conditional puts.

Object stores have no folders: a folder is the common prefix of the keys below it. A folder that must exist while it is
empty (a new database) contains an empty object. An object is never partially visible.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from lsm_core.errors import CorruptFile, StorageRefused, UnsupportedFeature, is_panic
from lsm_core.options.catalog_options import EXCLUSIVE_CREATE, S3_ENDPOINT, STORAGE_OPTIONS
from lsm_core.storage import file_io
from lsm_core.storage.file_io import Buffer, Deleted, FileStatus, Guarantee, WriteOnly, require_size
from lsm_core.storage.forks import ForkGuard
from lsm_core.storage.remote_input import RemoteFile
from lsm_core.storage.safe_paths import place_of
from lsm_core.storage.store_keys import KeySource, StoreKeys
from lsm_core.storage.store_settings import (
    PROVIDERS,
    S3_SCHEMES,
    CreationMode,
    StoreSettings,
    creation_mode,
    possible_modes,
    require_valid,
    settings_of,
)

PART_BYTES: Final = 8 << 20
"""Objects of at least this size (bytes) are sent in parts while they are written."""
_PARTS_AT_ONCE: Final = 3
_KEYS_AT_ONCE: Final = 1_000
"""Largest number of objects that one request deletes."""
_FOLDER_MARK: Final = ".folder"
_WRITER: Final = "dredgewriter"
"""Metadata key of an exclusively created object: a unique id of the call that created it. Azure allows no dash."""
_RETRIES: Final = 5
_RETRY_TIMEOUT: Final = timedelta(seconds=60)
_TIMEOUT: Final = timedelta(seconds=120)
_MAX_TEXT: Final = 300
_NO_BUCKET: Final = "<Code>NoSuchBucket</Code>"
_KEY, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_OTHER_KEY_SOURCES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    "AWS_SKIP_SIGNATURE",
)
"""Further environment variables that provide keys to the library, or make keys unnecessary."""
_NO_KEYS: Final = f"the environment has no keys: set {_KEY} and {_SECRET} (profiles of the AWS tools are not read)"
_AZURE_NO_KEYS: Final = "the environment has no keys: set AZURE_STORAGE_ACCOUNT_KEY or variables of Azure's tools"
_NO_KEYS_OF: Final = {
    "gs": "the environment has no keys: set GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": _AZURE_NO_KEYS,
    "abfss": _AZURE_NO_KEYS,
}
"""Messages about missing keys by scheme, for stores other than S3."""
_KEYS_FAILED: Final = "External AWS credential provider: "
"""Text before the error of a key source in the library's message."""
_MACHINE_ROLE_PATHS: Final = ("/latest/api/token", "/latest/meta-data/", "/computeMetadata/", "/metadata/identity/")
"""Paths at which the library asks the machine for the keys of its role if the environment has none."""
_forks = ForkGuard("an object store")


class _NotAnswered(OSError):
    """Failure of a request, or loss of its response: the outcome is unknown."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EIO, f"the store does not answer correctly: {reason}", path)


@contextmanager
def _step(name: str, path: str, verb: str = "read") -> Iterator[None]:
    """Trace one I/O step, and convert the errors that the object store library raises in the block.

    The converted errors are FileNotFoundError, FileExistsError, StorageRefused or an OSError.

    Args:
        name: name of the step.
        path: address of the object.
        verb: verb of a refused operation, for messages.
    """
    with file_io.step(name, path):
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            text = _error_text(error)
            if _KEYS_FAILED in text:
                text = f"keys cannot be fetched from the catalog server: {text.partition(_KEYS_FAILED)[2]}"
            raise StorageRefused(path, text, verb) from error
        except BaseError as error:
            if _NO_BUCKET in str(error):
                raise StorageRefused(path, "the bucket does not exist", verb) from error
            if any(part in str(error) for part in _MACHINE_ROLE_PATHS):
                advice = _NO_KEYS_OF.get(path.partition("://")[0], _NO_KEYS)
                raise StorageRefused(
                    path, f"{advice}, and this machine has no role that provides keys", verb
                ) from error
            raise _NotAnswered(path, _error_text(error)) from error
        except BaseException as error:
            if is_panic(error):
                raise _NotAnswered(path, f"the library that reaches it failed ({_error_text(error)})") from error
            raise


def _error_text(error: BaseException) -> str:
    """Return the library's message for an error, on one line, without the dump of its own types."""
    text = " ".join(str(error).partition("Debug source:")[0].split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


@dataclass(frozen=True)
class _Bucket:
    """Connection to one bucket.

    Attributes:
        store: the library's store.
        mode: request by which objects are created exclusively.
        creating: store whose puts carry the provider's header against replacing, or None.
    """

    store: Any
    mode: CreationMode
    creating: Any = None


class ObjectStoreFileIO:
    """FileIO for object stores: paths are full addresses (``s3://bucket/folder/file``) of any bucket.

    Access keys are read from the environment variables that the store's own tools use. A pickled copy has no
    connections and no keys; each process opens new connections. After a fork of a process that used a store, every call
    raises StorageRefused, because the library's threads do not survive a fork.

    Attributes:
        options: the `STORAGE_OPTIONS` that are set; all further options are ignored.
        keys: source of the access keys instead of the environment, or None.
        mode: request by which objects are created exclusively.

    Args:
        options: the catalog's options.
        keys: source of the access keys, or None for the environment.
        scheme: scheme of the warehouse's address, which decides the default of `mode`.

    Raises:
        InvalidOption: an option has an invalid value.
    """

    def __init__(
        self, options: Mapping[str, str] | None = None, keys: KeySource | None = None, scheme: str = "s3"
    ) -> None:
        self.keys = keys
        self.options = {key: str(value) for key, value in (options or {}).items() if key in STORAGE_OPTIONS}
        require_valid(self.options)
        self.mode = creation_mode(scheme, self.options)
        self._buckets: dict[str, _Bucket] = {}
        self._lock = threading.Lock()

    @property
    def guarantee(self) -> Guarantee:
        """Conditional put, unless the store is not known to refuse the creation of an existing object."""
        return Guarantee.NONE if self.mode is CreationMode.NONE else Guarantee.CONDITIONAL_PUT

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStoreFileIO) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(("object store", self.mode, *sorted(self.options.items())))

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "keys": self.keys, "mode": self.mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options, self.keys, self.mode = state["options"], state["keys"], state["mode"]
        self._buckets, self._lock = {}, threading.Lock()

    def _at(self, path: str) -> tuple[Any, str]:
        """Return the library's store of the object address ``path``, and the object's key within this store."""
        bucket, key = self._bucket_at(path)
        return bucket.store, key

    def _bucket_at(self, path: str) -> tuple[_Bucket, str]:
        """Return the bucket of the object address ``path``, and the object's key within this bucket.

        Raises:
            CorruptFile: the path is not an address of an object store.
            StorageRefused: this process was forked from one that used a store, or the settings cannot be used.
        """
        place = place_of(path)
        if not place:
            raise CorruptFile(path, "is not in an object store, unlike the rest of the table")
        _forks.check(path)
        key = path[len(place) :]
        with self._lock:
            bucket = self._buckets.get(place)
            if bucket is None:
                bucket = self._buckets[place] = self._connect_or_refuse(place)
        return bucket, key.strip("/")

    def _connect_or_refuse(self, place: str) -> _Bucket:
        try:
            return self._connect(place)
        except BaseException as error:  # a panic of the library is not an Exception
            if not (isinstance(error, BaseError | ValueError) or is_panic(error)):
                raise
            raise StorageRefused(
                place, f"its address or settings cannot be used: {_error_text(error)}", "reach"
            ) from error

    def _connect(self, place: str) -> _Bucket:
        settings = settings_of(place, self.options, os.environ)
        client: dict[str, Any] = {"timeout": _TIMEOUT}
        if settings.allows_http:
            client["allow_http"] = True
        common: dict[str, Any] = {
            "retry_config": {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
            **({"config": settings.config} if settings.config else {}),
            **self._credentials(place, settings),
        }
        connect: Any = from_url  # its overloads list the settings of each kind of store
        mode = creation_mode(place.partition("://")[0], self.options)
        store = connect(settings.url, client_options=client, **common)
        if not settings.creation_headers:
            return _Bucket(store, mode)
        client["default_headers"] = settings.creation_headers
        return _Bucket(store, mode, connect(settings.url, client_options=client, **common))

    def _credentials(self, place: str, settings: StoreSettings) -> dict[str, Any]:
        """Return the argument that gives the library its keys; empty if the library finds them itself.

        Raises:
            StorageRefused: the environment has no keys, or the store cannot take keys from a catalog server.
        """
        scheme = place.partition("://")[0]
        if scheme not in (*S3_SCHEMES, *PROVIDERS):
            if self.keys is not None:
                raise StorageRefused(place, f"keys from a catalog server are not supported for {scheme}://", "reach")
            if settings.keys is None:
                return {}
            token = {"token": settings.keys.session_token, "expires_at": None}
            return {"credential_provider": lambda: token}
        if self.keys is not None:
            return {"credential_provider": partial(_renewed_keys, self.keys)}
        if settings.keys is not None:
            return {"credential_provider": partial(_as_credential, settings.keys)}
        if scheme in PROVIDERS:
            provider = PROVIDERS[scheme]
            names = f"{provider.key_variables[0]} and {provider.secret_variables[0]}"
            raise StorageRefused(place, f"the environment has no keys: set {names}", "reach")
        endpoint = self.options.get(S3_ENDPOINT) or os.environ.get("AWS_ENDPOINT_URL_S3")
        _require_keys(place, endpoint or os.environ.get("AWS_ENDPOINT_URL", ""))
        return {}

    # -- reading ---------------------------------------------------------------------------------------------------

    def read_bytes(self, path: str) -> bytes:
        """Return the whole object.

        Raises:
            CorruptFile: the object is larger than the size limit of its kind.
        """
        store, key = self._at(path)
        with _step("read", path):
            answer = obstore.get(store, key)
            require_size(path, int(answer.meta["size"]))
            return bytes(answer.bytes())

    def open_input(self, path: str) -> RemoteFile:
        """Open an object for random access, with one request for its size and its end."""
        store, key = self._at(path)

        def fetch(start: int, end: int) -> Any:
            with _step("read range", path):
                return obstore.get_range(store, key, start=start, end=end)

        def fetch_end(length: int) -> tuple[int, Any]:
            with _step("read end", path):
                answer = obstore.get(store, key, options={"range": {"suffix": length}})
                return int(answer.meta["size"]), answer.bytes()

        return RemoteFile.opened(fetch, fetch_end, lambda: self.size(path))

    def exists(self, path: str) -> bool:
        """Return whether an object exists at the path or below it."""
        store, key = self._at(path)
        with _step("exists", path):
            if key and _exists(store, key):
                return True
            return bool(next(iter(obstore.list(store, key or None, chunk_size=1)), None))

    def size(self, path: str) -> int:
        """Return the size in bytes."""
        store, key = self._at(path)
        with _step("size", path):
            return int(obstore.head(store, key)["size"])

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the files and folders directly below a path, sorted by name; folders have modification time 0."""
        store, key = self._at(path)
        base, statuses = path.rstrip("/"), []
        with _step("list", path), suppress(FileNotFoundError):
            answer = obstore.list_with_delimiter(store, key or None)
            for prefix in answer["common_prefixes"]:
                name = prefix.rstrip("/").rpartition("/")[2]
                statuses.append(FileStatus(f"{base}/{name}", name, 0, 0, is_dir=True))
            for entry in answer["objects"]:
                name = entry["path"].rpartition("/")[2]
                if entry["path"] != key and name != _FOLDER_MARK:
                    changed_ms = int(entry["last_modified"].timestamp() * 1000)
                    statuses.append(FileStatus(f"{base}/{name}", name, int(entry["size"]), changed_ms, is_dir=False))
        return sorted(statuses, key=lambda status: status.name)

    # -- writing ---------------------------------------------------------------------------------------------------

    def open_output(self, path: str) -> ObjectOutputFile:
        """Return a writer for a new object, which exists once the writer is closed.

        An existing name causes FileExistsError on closing, or before the first part is sent.
        """
        bucket, key = self._bucket_at(path)
        return ObjectOutputFile(bucket, key, path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Put the object unless it exists; after a lost response, the object's writer id shows its creator.

        Returns:
            False if the object exists.
        """
        bucket, key = self._bucket_at(path)
        return _put_new(bucket, key, path, data)

    def tested_modes(self, folder: str) -> list[CreationMode]:
        """Return the modes of exclusive creation that the store honours, tested with small objects.

        Args:
            folder: address of a folder for the objects, which are deleted afterwards.
        """
        scheme, honoured = place_of(folder).partition("://")[0], []
        for mode in possible_modes(scheme):
            other = ObjectStoreFileIO({**self.options, EXCLUSIVE_CREATE: mode}, self.keys, scheme)
            path = f"{folder.rstrip('/')}/.dredge-{mode}-{uuid.uuid4().hex[:8]}"
            try:
                if other.write_exclusive(path, b"1") and not other.write_exclusive(path, b"2"):
                    honoured.append(mode)
            except OSError:  # the store does not know the request
                continue
            finally:
                with suppress(OSError, StorageRefused):
                    self.delete(path)
        return honoured

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Put the object; readers see either the old or the new content."""
        store, key = self._at(path)
        with _step("replace", path, "create"), _bucket_missing(path):
            obstore.put(store, key, data, use_multipart=False)

    def mkdirs(self, path: str) -> None:
        """Put an empty object below ``path``, so that the folder exists without files."""
        self.overwrite(f"{path.rstrip('/')}/{_FOLDER_MARK}", b"")

    # -- removing and moving ---------------------------------------------------------------------------------------

    def delete(self, path: str) -> bool:
        """Remove one object; a request before the removal checks whether the object exists.

        Returns:
            Whether the object existed.
        """
        store, key = self._at(path)
        with _step("delete", path, "remove"):
            if not _exists(store, key):
                return False
            with suppress(FileNotFoundError):
                obstore.delete(store, key)
            return True

    def delete_many(self, paths: Sequence[str]) -> Iterator[Deleted]:
        """Delete objects, up to a thousand per request, and yield for each whether it existed.

        The folders are listed first to find the existing objects. If a request fails, its objects are deleted one by
        one.

        Yields:
            True if the object was deleted, False if it did not exist, or the OSError of the deletion.
        """
        listed: dict[str, set[str]] = {}
        for start in range(0, len(paths), _KEYS_AT_ONCE):
            batch = paths[start : start + _KEYS_AT_ONCE]
            stores: dict[str, Any] = {}
            try:
                listed = {
                    folder: listed.get(folder) or self._files(folder) for folder in dict.fromkeys(map(_folder, batch))
                }
                existing = set().union(*listed.values())
                keys: dict[str, list[str]] = {}
                for path in batch:
                    stores[place_of(path)], key = self._at(path)
                    if path in existing:
                        keys.setdefault(place_of(path), []).append(key)
                for place, existing_keys in keys.items():
                    with _step("delete many", place, "remove"):
                        obstore.delete(stores[place], existing_keys)
            except OSError:
                for path in batch:
                    yield self._delete_one(path)
            else:
                yield from (path in existing for path in batch)

    def _files(self, folder: str) -> set[str]:
        return {status.path for status in self.list_dir(folder) if not status.is_dir}

    def _delete_one(self, path: str) -> Deleted:
        try:
            return self.delete(path)
        except OSError as error:
            return error

    def delete_dir(self, path: str) -> bool:
        """Remove every object below a path, up to a thousand per request.

        After a failure the remaining objects still exist.

        Returns:
            Whether an object existed.

        Raises:
            StorageRefused: the path is a whole bucket.
        """
        store, key = self._at(path)
        if not key:
            raise StorageRefused(path, "it is a whole bucket, which Dredge never deletes", "remove")
        any_found = False
        with _step("delete_dir", path, "remove"):
            for chunk in obstore.list(store, key, chunk_size=_KEYS_AT_ONCE):
                any_found = True
                obstore.delete(store, [entry["path"] for entry in chunk])
        return any_found

    def delete_empty_dir(self, path: str) -> bool:
        """Return False: an object store has no directories."""
        del path
        return False

    def rename(self, src: str, dst: str) -> bool:
        """Raise UnsupportedFeature.

        An object store can only copy files one by one, and concurrent commits would be lost.
        """
        del dst
        raise UnsupportedFeature(f"renaming in an object store, where files can only be copied and deleted ({src})")


class ObjectOutputFile(WriteOnly):
    """A new object: buffered in memory up to `PART_BYTES`, then sent in parts; visible only after ``close``.

    A small object is put with one request that fails if the name exists. For a large object, the name is only checked
    before the first part is sent. This is enough, because two writers never choose the same name.
    """

    def __init__(self, bucket: _Bucket, key: str, path: str) -> None:
        self.path, self._bucket, self._store, self._key = path, bucket, bucket.store, key
        self._buffer: list[bytes] = []
        self._buffered_bytes = self._length = 0
        self._parts: Any = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the file no longer accepts data."""
        return self._closed

    def write(self, data: Buffer) -> int:
        """Append ``data``."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        chunk = bytes(data)
        self._buffer.append(chunk)
        self._buffered_bytes += len(chunk)
        self._length += len(chunk)
        if self._buffered_bytes >= PART_BYTES:
            with _step("write", self.path, "create"):
                if self._parts is None:
                    if _exists(self._store, self._key):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)
                    self._parts = obstore.open_writer(
                        self._store, self._key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                    )
                self._parts.write(self._take_buffer())
        return len(chunk)

    def _take_buffer(self) -> bytes:
        data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        self._buffer, self._buffered_bytes = [], 0
        return data

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._length

    def flush(self) -> None:
        """Have no effect, because the object does not exist before the writer is closed."""

    def close(self) -> None:
        """Complete the object; after a failure, the object is removed and the error is raised.

        Raises:
            FileExistsError: another writer's object has the name; it is not removed.
        """
        if self._closed:
            return
        self._closed, last = True, self._take_buffer()
        if self._parts is None and _is_taken_by_other(self._bucket, self._key, self.path, last):
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
        """Discard the written data; parts that were sent are released."""
        if self._closed:
            return
        self._closed, self._buffer = True, []
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


def _renewed_keys(source: KeySource) -> dict[str, Any]:
    return _as_credential(source.keys())


def _as_credential(keys: StoreKeys) -> dict[str, Any]:
    """Return keys in the form that the library expects."""
    return {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "token": keys.session_token,
        "expires_at": None if keys.expires_ms is None else datetime.fromtimestamp(keys.expires_ms / 1000, UTC),
    }


def _require_keys(place: str, endpoint: str) -> None:
    """Raise StorageRefused if the environment lacks keys, and name the missing variable.

    Without keys, the library would ask the metadata service of Amazon's virtual machines for them. These keys only
    apply to Amazon's own stores, so no keys are required for those.

    Args:
        place: store in messages, as in ``s3://bucket``.
        endpoint: address of the store's server, or "" for Amazon's.
    """
    present = {name for name in (_KEY, _SECRET) if os.environ.get(name)}
    if len(present) == 1:
        missing = _SECRET if _KEY in present else _KEY
        raise StorageRefused(place, f"the environment variable {missing} is not set, but {present.pop()} is", "reach")
    is_other_provider = endpoint and ".amazonaws.com" not in endpoint
    if not present and is_other_provider and not any(os.environ.get(name) for name in _OTHER_KEY_SOURCES):
        raise StorageRefused(place, _NO_KEYS, "reach")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def _bucket_missing(path: str) -> Iterator[None]:
    """Convert a FileNotFoundError of a put in the block to StorageRefused, because the bucket does not exist."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageRefused(path, "the bucket does not exist") from error


def _exists(store: Any, key: str) -> bool:
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    return True


def _is_taken_by_other(bucket: _Bucket, key: str, path: str, data: bytes) -> bool:
    """Create an object, and return whether its name was already taken by another writer's object.

    After an error, the object is removed in case the store created it; this is safe only for a name that no other
    writer uses.

    Args:
        bucket: the bucket.
        key: key of the object in the bucket.
        path: address of the object, for messages.
        data: content of the object.

    Returns:
        True if another writer's object exists, so that nothing was created.
    """
    try:
        return not _put_new(bucket, key, path, data)
    except BaseException:
        _remove_own(bucket.store, key)
        raise


def _remove_own(store: Any, key: str) -> None:
    """Delete this writer's object ``key``, which may have been created although no response arrived."""
    with suppress(BaseError, OSError):
        obstore.delete(store, key)


def _put_new(bucket: _Bucket, key: str, path: str, data: bytes) -> bool:
    """Create an object that must not exist yet.

    A store without conditional puts is asked for the object before; only a lock excludes another writer in between.

    The library repeats a put whose response was lost. Then the store reports this writer's own object as existing.

    Args:
        bucket: the bucket.
        key: key of the object in the bucket.
        path: address of the object, for messages.
        data: content of the object.

    Returns:
        False if another writer's object exists.

    Raises:
        StorageRefused: nothing was created.
        OSError: the outcome is unknown.
    """
    writer_id, store = uuid.uuid4().hex, bucket.store
    is_conditional = bucket.mode is CreationMode.IF_NONE_MATCH
    with _step("put new", path, "create"), _bucket_missing(path):
        if bucket.mode is CreationMode.NONE and _exists(store, key):
            return False
        try:
            obstore.put(
                bucket.creating or store,
                key,
                data,
                mode="create" if is_conditional else "overwrite",
                use_multipart=False,
                attributes={_WRITER: writer_id},
            )
        except (AlreadyExistsError, PreconditionError):
            try:
                return _writer_of(store, key) == writer_id
            except FileNotFoundError as error:
                raise _NotAnswered(path, "another process deleted it while it was created; try again") from error
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
            raise
        except BaseError:
            with suppress(BaseError, OSError):
                if _writer_of(store, key) == writer_id:
                    return True
            raise
    return True


def _writer_of(store: Any, key: str) -> str | None:
    """Return the writer id in the attributes of the object ``key``, or None if its creator stored none.

    Raises:
        FileNotFoundError: the object does not exist.
    """
    return dict(obstore.get(store, key, options={"head": True}).attributes).get(_WRITER)
