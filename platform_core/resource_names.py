"""Resource parameters of functions under the resource keys of one of several warehouses."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import dagster as dg

from dredge.platform_core.names import WarehouseNames

F = TypeVar("F", bound=Callable[..., Any])


def rename_resources(function: F, warehouse_names: WarehouseNames) -> F:
    """Return a function whose resource parameters are named after the resource keys of a warehouse.

    Dagster takes the name of a parameter as the key of the resource. So with the prefix ``lake``, the parameter
    ``warehouse`` becomes ``lake__warehouse``, and each call passes its value on as ``warehouse``.

    Args:
        function: function of an op, asset, check, sensor or schedule; apply Dagster's decorator to the result.
        warehouse_names: names of the warehouse in Dagster.

    Returns:
        The function itself if the warehouse has no prefix.
    """
    hints = typing.get_type_hints(function)
    keys = {name: warehouse_names.definition(name) for name, hint in hints.items() if _is_resource(hint)}
    if not warehouse_names.prefix or not keys:
        return function
    own_names = {key: name for name, key in keys.items()}

    def call_with(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return function(*arguments, **{own_names.get(key, key): value for key, value in named.items()})

    def call(*arguments: Any, **named: Any) -> Any:
        return call_with(arguments, named)

    def generate(*arguments: Any, **named: Any) -> Any:
        yield from call_with(arguments, named)

    wrapper = generate if inspect.isgeneratorfunction(function) else call
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(
            name=keys.get(name, name),
            annotation=hints.get(name, parameter.annotation),
        )
        for name, parameter in signature.parameters.items()
    ]
    wrapper.__name__, wrapper.__doc__, wrapper.__module__ = function.__name__, function.__doc__, function.__module__
    wrapper.__annotations__ = {keys.get(name, name): hint for name, hint in hints.items()}
    returned = hints.get("return", signature.return_annotation)
    vars(wrapper)["__signature__"] = signature.replace(parameters=parameters, return_annotation=returned)
    return typing.cast("F", wrapper)


def _is_resource(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, dg.ConfigurableResource)
