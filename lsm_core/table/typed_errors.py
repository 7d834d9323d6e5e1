"""Typed errors of the Python facade: its methods raise only Dredge's errors, which name the method and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import isfunction, signature
from types import GeneratorType
from typing import Any, Final, TypeVar

import numpy as np

from lsm_core.errors import InvalidOption, typed_failure
from lsm_core.metadata.store import TableStore

_T = TypeVar("_T")
_SPECIAL: Final = frozenset({"__init__", "__arrow_c_stream__"})
_OPENING: Final = frozenset({"__init__", "copy", "refresh"})
_CHECKED_BELOW: Final = frozenset(
    {
        *("to_arrow", "to_batches", "__arrow_c_stream__", "to_pandas", "to_polars", "to_duckdb", "scan"),
        *("plan_scan", "lookup", "write", "upsert"),
    }
)
"""Frequent methods whose first step is the check of the table; a second check costs a request of an object store."""
_calling: Final[ContextVar[object]] = ContextVar("calling", default=None)
"""Table whose public method is running; methods called by this method do not check the table again."""


def with_typed_errors(facade: type[_T]) -> type[_T]:
    """Change a class so that its public methods raise only Dredge's errors.

    Methods of a :class:`Table` first check that the table was not dropped, renamed or created again. If a file is
    missing because the table was dropped, the error says so.

    Args:
        facade: class whose own methods are changed; inherited methods are not changed.

    Returns:
        The same class.
    """
    for name, member in list(vars(facade).items()):
        if (name.startswith("_") and name not in _SPECIAL) or getattr(member, "__isabstractmethod__", False):
            continue
        if isfunction(member):
            setattr(facade, name, _guarded(member))
    return facade


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    checks = method.__name__ not in _OPENING | _CHECKED_BELOW
    flags = [
        (place, name)
        for place, (name, parameter) in enumerate(signature(method).parameters.items())
        if parameter.annotation in ("bool", bool)
    ]

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _typed(self, method):
            if flags:
                _require_flags(flags, (self, *args), kwargs, _subject(self, method))
            if checks and isinstance(store := getattr(self, "store", None), TableStore) and _calling.get() is not self:
                store.require_same()
            token = _calling.set(self)
            try:
                result = method(self, *args, **kwargs)
            finally:
                _calling.reset(token)
        return _guarded_rows(result, self, method) if isinstance(result, GeneratorType) else result

    return guarded


def _require_flags(
    flags: Sequence[tuple[int, str]], args: Sequence[Any], kwargs: Mapping[str, Any], subject: str
) -> None:
    """Check that boolean arguments are True or False, because Python treats any text, also "no", as true.

    Args:
        flags: position and name of each boolean parameter.
        args: positional arguments of the call, ``self`` included.
        kwargs: keyword arguments of the call.
        subject: method and table, for the error message.

    Raises:
        InvalidOption: an argument is not a boolean.
    """
    for place, name in flags:
        require_boolean(name, args[place] if place < len(args) else kwargs.get(name, False), subject)


def require_boolean(name: str, value: object, subject: str) -> None:
    """Check that an argument is True or False.

    Args:
        name: name of the argument.
        value: value of the argument.
        subject: method and table, for the error message.

    Raises:
        InvalidOption: the value is neither True nor False.
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidOption(name, value, f"True or False in {subject}")


def _guarded_rows(rows: Iterator[Any], owner: Any, method: Callable[..., Any]) -> Iterator[Any]:
    with _typed(owner, method):
        yield from rows


@contextmanager
def _typed(owner: Any, method: Callable[..., Any]) -> Iterator[None]:
    """Return a context that converts the errors of its block to Dredge's errors."""
    store = None if method.__name__ in _OPENING else getattr(owner, "store", None)
    try:
        with store.naming_lost_table() if isinstance(store, TableStore) else nullcontext():
            yield
    except BaseException as error:
        own = typed_failure(error, _subject(owner, method))
        if own is None:
            raise
        raise own from error


def _subject(owner: Any, method: Callable[..., Any]) -> str:
    """Return the name of the method and of its table or object, for error messages."""
    called = f"{type(owner).__name__}.{method.__name__}" if method.__name__ != "__init__" else type(owner).__name__
    try:
        name = owner.name if hasattr(type(owner), "name") else owner.place if hasattr(owner, "place") else owner.root
    except AttributeError:  # the constructor failed before it was known
        return called
    return f"{called} of {name}"
