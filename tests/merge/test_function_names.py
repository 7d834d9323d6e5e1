"""The table of aggregate functions against the modules that it names, and that a table waits for the modules of its own functions alone."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

from lsm_core.merge.functions import BUILT_IN, aggregate_function, function_names


def test_every_module_holds_the_functions_that_the_table_says() -> None:
    found = {name: tuple(import_module(f"lsm_core.merge.functions.{name}").FUNCTIONS) for name in BUILT_IN}
    assert found == dict(BUILT_IN)
    names = [name for module in BUILT_IN.values() for name in module]
    assert len(names) == len(set(names)) and set(names) <= set(function_names())
    assert aggregate_function("sum", "BIGINT").name == "sum"


def test_a_sum_does_not_wait_for_bitmaps_and_sketches() -> None:
    program = (
        "import sys; from lsm_core.merge.functions import aggregate_function\n"
        "assert aggregate_function('sum', 'BIGINT').name == 'sum'\n"
        "print(*[name for name in ('datasketches', 'pyroaring') if name in sys.modules])\n"
        "assert aggregate_function('rbm32', 'VARBINARY(100)').name == 'rbm32' and 'pyroaring' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
