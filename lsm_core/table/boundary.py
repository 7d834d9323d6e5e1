"""Typed errors of the Python facade: its methods raise only Dredge's errors, which name the method and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction
from types import GeneratorType
from typing import Any, Final, TypeVar

from lsm_core.errors import typed_failure

_T = TypeVar("_T")
_SPECIAL: Final = frozenset({"__init__", "__arrow_c_stream__"})


def with_typed_errors(facade: type[_T]) -> type[_T]:
    """Let each public method of a class raise errors of Dredge's only.

    Args:
        facade: class whose own methods are changed; inherited ones are not.

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
    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = method(self, *args, **kwargs)
        except BaseException as error:
            own = typed_failure(error, _subject(self, method))
            if own is None:
                raise
            raise own from error
        return _guarded_rows(result, self, method) if isinstance(result, GeneratorType) else result

    return guarded


def _guarded_rows(rows: Iterator[Any], owner: Any, method: Callable[..., Any]) -> Iterator[Any]:
    try:
        yield from rows
    except BaseException as error:
        own = typed_failure(error, _subject(owner, method))
        if own is None:
            raise
        raise own from error


def _subject(owner: Any, method: Callable[..., Any]) -> str:
    """The method and what it was called on."""
    called = f"{type(owner).__name__}.{method.__name__}" if method.__name__ != "__init__" else type(owner).__name__
    try:
        name = owner.name if hasattr(type(owner), "name") else owner.root
    except AttributeError:  # the constructor failed before it was known
        return called
    return f"{called} of {name}"
