"""Allocator of Arrow's arrays: jemalloc, or the C library's without it, unless the user chose another one."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa

_ENV = "ARROW_DEFAULT_MEMORY_POOL"
_MERGES = "from lsm_core.storage.allocator import keep_small_arrays; keep_small_arrays(); "
_READS = "from lsm_core.storage.allocator import keep_read_arrays; keep_read_arrays(); "
_SHOWN = "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
_OF_MERGES = "jemalloc" if "jemalloc" in pa.supported_memory_backends() else "system"


def _backend(program: str, **chosen: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != _ENV} | chosen
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def test_an_import_changes_nothing() -> None:
    assert _backend("import lsm_core, lsm_core.table, lsm_core.compact; " + _SHOWN) == _backend(_SHOWN) != _OF_MERGES


def test_a_merge_switches_arrow() -> None:
    assert _backend("import pyarrow; import lsm_core; " + _MERGES + _SHOWN) == _OF_MERGES


def test_a_read_uses_the_c_library_until_a_compaction_follows() -> None:
    assert _backend("import lsm_core; " + _READS + _SHOWN) == "system"
    assert _backend("import lsm_core; " + _READS + _MERGES + _SHOWN) == _OF_MERGES
    chosen = "import pyarrow as pa; pa.set_memory_pool(pa.mimalloc_memory_pool()); "
    assert _backend("import lsm_core; " + _READS + chosen + _MERGES + _SHOWN) == "mimalloc"


def test_an_arrow_without_jemalloc_uses_the_c_library() -> None:
    without = "import pyarrow as pa; pa.supported_memory_backends = lambda: ['mimalloc', 'system']; import lsm_core; "
    assert _backend(without + _MERGES + _SHOWN) == "system"


def test_what_was_chosen_stays() -> None:
    assert _backend("import lsm_core; " + _MERGES + _SHOWN, **{_ENV: "system"}) == "system"
    chosen = "import pyarrow as pa; pa.set_memory_pool(pa.system_memory_pool()); import lsm_core; "
    assert _backend(chosen + _MERGES + _SHOWN) == "system"


def test_arrays_from_before_are_still_good() -> None:
    program = (
        "import pyarrow as pa, pyarrow.compute as pc; before = pa.array(range(100_000)); import lsm_core; "
        + _MERGES
        + "both = pa.concat_arrays([before, before]); assert pc.sum(both).as_py() == 100_000 * 99_999; "
        + "del before, both; print(pa.total_allocated_bytes())"
    )
    assert _backend(program) == "0"


def test_free_memory_goes_back_to_the_system_and_arrays_in_use_stay() -> None:
    program = (
        "import re, pyarrow as pa, numpy as np; from pathlib import Path; from lsm_core.storage import allocator\n"
        "def resident(): return int(re.search(r'VmRSS:\\s+(\\d+)', Path('/proc/self/status').read_text()).group(1))\n"
        "kept = pa.array(np.arange(100_000)); lists = [bytes(1_000) for _ in range(100_000)]; full = resident()\n"
        "del lists; allocator.release_free_memory(); assert resident() < full - 50_000, (resident(), full)\n"
        "assert kept[99_999].as_py() == 99_999\n"
        "allocator._find_trim.cache_clear(); allocator.ctypes.CDLL = lambda name: object()\n"
        "allocator.release_free_memory(); print('no trim')"
    )
    assert _backend(program) == "no trim"
