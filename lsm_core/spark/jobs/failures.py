"""Errors between Spark's processes: a typed error of a worker is the same typed error on the driver, a dead worker is SparkFailed."""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from lsm_core import errors
from lsm_core.errors import CorruptFile, DredgeError, SparkFailed

_MARK: Final = re.compile(r"DREDGE-ERROR\[([A-Za-z0-9+/=]+)\]")
_MISSING_PATH: Final = re.compile(r"PATH_NOT_FOUND\] Path does not exist: (?:file:)?(\S.*?)\. SQLSTATE")
_UNREADABLE: Final = re.compile(r"Encountered error while reading file (?:file:/{0,2}(?=/))?(\S.*?)\.\s+SQLSTATE")
_TELLING: Final = re.compile(
    r"(Python worker exited[^.\n]*|Connection refused|OutOfMemoryError[^\n]*|No space left on device)"
)

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class WorkerError(RuntimeError):
    """What Spark sees of a typed error: its text, and the error itself in a form the driver can rebuild."""


def encode(error: BaseException) -> bytes:
    """Return an error as JSON: class name and constructor arguments (no pickle); unknown classes keep their text."""
    if isinstance(error, DredgeError) and hasattr(errors, type(error).__name__):
        args, kwargs = error._made_with
        value: dict[str, Any] = {"type": type(error).__name__, "args": list(args), "kwargs": kwargs}
    else:
        value = {"type": "", "args": [f"{type(error).__name__}: {error}{_place(error)}"], "kwargs": {}}
    return json.dumps(value, default=repr).encode()


def _place(error: BaseException) -> str:
    """Where an unexpected error came from: its traceback stays in the worker."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""


def decode(data: bytes, what: str) -> DredgeError:
    """Rebuild the error that ``encode`` wrote; errors that were not Dredge's own become SparkFailed(``what``)."""
    value = json.loads(data)
    kind = getattr(errors, value["type"], None) if value["type"] else None
    if isinstance(kind, type) and issubclass(kind, DredgeError):
        return kind(*value["args"], **value["kwargs"])
    return SparkFailed(what, str(value["args"][0]))


def shipped(function: BatchFunction) -> BatchFunction:
    """Wrap a mapInArrow function so that its typed errors survive Spark's own wrapping."""

    def guarded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        except DredgeError as error:
            raise WorkerError(marked(error)) from error

    return guarded


def marked(error: DredgeError) -> str:
    """Return the text a worker raises: the error's own, and its encoded form."""
    return f"{error} DREDGE-ERROR[{base64.b64encode(encode(error)).decode()}]"


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what Spark raises inside into the worker's own typed error, or into SparkFailed(``what``) with one clear line."""
    try:
        yield
    except DredgeError:
        raise
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise typed(error, what) from error


def typed(error: BaseException, what: str) -> DredgeError:
    """Return the typed error inside an exception of Spark."""
    text = str(error)
    found = _MARK.search(text)
    if found is not None:
        return decode(base64.b64decode(found.group(1)), what)
    missing = _MISSING_PATH.search(text)
    if missing is not None:
        return CorruptFile(missing.group(1), "the file is missing")
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return CorruptFile(unreadable.group(1), "it cannot be read as Parquet")
    telling = _TELLING.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return SparkFailed(what, telling.group(1) if telling else (lines[0] if lines else type(error).__name__))


def _is_sparks(error: BaseException) -> bool:
    modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"pyspark", "py4j", "grpc"}) or isinstance(error, (ConnectionError, EOFError))


__all__ = ["BatchFunction", "WorkerError", "decode", "encode", "marked", "shipped", "translated", "typed"]
