"""Spans of OpenTelemetry for plans, applications, verifications and Spark jobs.

Spans exist only in processes that imported OpenTelemetry's API (extra `otel`), as applications that configure a tracer
provider and `opentelemetry-instrument` do. In any other process nothing is imported and nothing is recorded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_API: Final = "opentelemetry.trace"
_TRACER: Final = "dredge"
_LONGEST: Final = 300
"""Most characters of a text attribute, and of an error's message."""
_SECRETS: Final = re.compile(
    r"//[^/@\s]+@|(?<=[?&])[^\s'\"]+|(?i:(?:password|secret|token|key|credential)[\w.-]*['\"]?\s*[=:]\s*)[^\s,;]+"
)
_innermost: ContextVar[str] = ContextVar("dredge_span", default="")
P = ParamSpec("P")
T = TypeVar("T")


class SpanRecorder:
    """Receiver of attributes of one span; without a span, the attributes are ignored."""

    def __init__(self, span: Span | None = None) -> None:
        """Keep the span.

        Args:
            span: the span, or None to ignore all attributes.
        """
        self._span = span

    def set(self, **attributes: str | float | None) -> None:
        """Add attributes to the span.

        Args:
            attributes: values by name without the prefix "dredge."; None values are left out.
        """
        if self._span is not None:
            self._span.set_attributes(_named(attributes))


_SILENT: Final = SpanRecorder()


def is_tracing() -> bool:
    """Return whether this process imported OpenTelemetry's API, so that spans may be recorded."""
    return _API in sys.modules


@contextmanager
def record_span(name: str, **attributes: str | float | None) -> Iterator[SpanRecorder]:
    """Record the block as a span; an error of the block is recorded on the span and passes through.

    A span directly inside a span of the same name is not recorded, because one function may call another of the same
    purpose.

    Args:
        name: name of the span without the prefix "dredge.", such as "apply".
        attributes: values by name without the prefix "dredge."; None values are left out.

    Yields:
        Receiver of further attributes.
    """
    if not is_tracing() or _innermost.get() == name:
        yield _SILENT
        return
    from opentelemetry import trace

    reset = _innermost.set(name)
    try:
        with trace.get_tracer(_TRACER).start_as_current_span(
            f"dredge.{name}", attributes=_named(attributes), record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield SpanRecorder(span)
            except BaseException as error:
                message = hide_secrets(str(error))[:_LONGEST]
                span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {message}"))
                span.add_event("exception", {"exception.type": type(error).__qualname__, "exception.message": message})
                raise
    finally:
        _innermost.reset(reset)


def in_current_span(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function for another thread, whose spans become children of the current span.

    Args:
        function: function to run in another thread.
    """
    if not is_tracing():
        return function
    from opentelemetry import context

    current = context.get_current()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        token = context.attach(current)
        try:
            return function(*args, **kwargs)
        finally:
            context.detach(token)

    return run


def hide_secrets(text: str) -> str:
    """Return a text in which users and passwords of addresses, parameters of URLs and values of keys are ``***``.

    Args:
        text: text of an error.
    """
    return _SECRETS.sub(_mask, text)


def _mask(match: re.Match[str]) -> str:
    text = match[0]
    if text.startswith("//"):
        return "//***@"
    label = re.match(r".*?[=:]\s*", text)
    return f"{label[0]}***" if label is not None else "***"


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``attributes`` with the prefix "dredge.", without None values; texts are cut to 300 characters."""
    return {
        f"dredge.{name}": value[:_LONGEST] if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }
