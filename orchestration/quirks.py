"""Where Dagster and this house differ: postponed annotations, and warnings about features that it calls beta or preview."""

from __future__ import annotations

import copy
import typing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME

ASSET_JOB: Final = IMPLICIT_ASSET_JOB_NAME
"""The job that Dagster makes over all assets: what "Materialize" starts, and what a run request with assets and without a job starts."""
WHOLE_LOCATION: Final = SINGLETON_REPOSITORY_NAME
"""The repository of a code location made of definitions; addresses of pages leave it out."""
F = TypeVar("F", bound=Callable[..., Any])


def typed(function: F) -> F:
    """Replace the function's annotations by the objects they name; goes below Dagster's own decorator.

    Dagster wants the annotation of ``context`` as an object, while postponed annotations are text.
    """
    function.__annotations__ = typing.get_type_hints(function)
    return function


def named_op(template: dg.OpDefinition, name: str, pool: str | None = None) -> dg.OpDefinition:
    """Return ``template`` under another name and, if given, in another pool; everything else is shared with it.

    Dagster looks at an op's function and at every default anew for each definition, which takes milliseconds: too long for thousands of tables.
    """
    copied = copy.copy(template)
    copied._name = name
    copied._pool = pool or template.pool
    return copied


@contextmanager
def early_features() -> Iterator[None]:
    """Silence what Dagster says about features that it calls beta or preview, around a use that was looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield
