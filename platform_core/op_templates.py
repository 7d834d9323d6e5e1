"""Ops of many tables that differ only in name and pool.

Dagster inspects a decorated function for each op definition, which takes 0.3 ms: with three ops per table, a third of
the time to load thousands of tables. A plain compute function, which Dagster offers for generated ops, needs no
inspection.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import dagster as dg


class OpTemplate:
    """Op whose definition is repeated for many tables, with a name and a pool per table.

    The ops call the function of the template with the same arguments as Dagster: the context, then inputs and resources
    by name.
    """

    def __init__(self, op: dg.OpDefinition, function: Callable[..., Any]) -> None:
        """Read the properties of the op once.

        Args:
            op: op that Dagster's decorator made of the function.
            function: the function; it takes a context, and has no parameter ``config``.
        """
        self.op = op
        self._compute = _compute_function(function, op.required_resource_keys)
        self._properties: Mapping[str, Any] = {
            "ins": op.ins,
            "outs": op.outs,
            "description": op.description,
            "config_schema": op.config_schema,
            "required_resource_keys": op.required_resource_keys,
            "tags": op.tags,
            "retry_policy": op.retry_policy,
        }

    def make_op(self, name: str, pool: str | None = None) -> dg.OpDefinition:
        """Return an op with a name of its own.

        Args:
            name: name of the op.
            pool: Dagster pool of the op, or None for the template's pool.
        """
        return dg.OpDefinition(self._compute, name, pool=pool or self.op.pool, **self._properties)


def _compute_function(function: Callable[..., Any], resources: Collection[str]) -> Callable[..., Iterator[Any]]:
    """Return the compute function of an op, which yields the events of a decorated function.

    Args:
        function: the decorated function.
        resources: keys of the resources that the function takes.
    """
    _, *parameters = inspect.signature(function).parameters
    is_generator = inspect.isgeneratorfunction(function)

    # A parameter named `context` would need an annotation that Dagster accepts, which differs for ops and checks.
    def compute(op_context: Any, inputs: Mapping[str, Any]) -> Iterator[Any]:
        arguments = {
            name: getattr(op_context.resources, name) if name in resources else inputs[name] for name in parameters
        }
        result = function(op_context, **arguments)
        if is_generator:
            yield from result
        else:
            yield result

    return compute
