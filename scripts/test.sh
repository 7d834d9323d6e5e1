#!/bin/sh
# The whole suite, in four processes, two where memory is scarce (DREDGE_TEST_PROCESSES; 0: in this one): one of them waits for Spark most of
# the time, another for a platform. pytest's own last line is the last line printed.
set -eu
# The suite starts hundreds of processes: each would compile the same modules again.
unset PYTHONDONTWRITEBYTECODE

available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null || true)
processes=2
if [ "${available:-0}" -gt 12000000 ]; then processes=4; fi

# Thousands of small tables are synced and removed: in memory where there is plenty (and programs may run), unless TMPDIR says where.
scratch=
leave() { code=$?; [ -z "$scratch" ] || rm -rf "$scratch"; exit "$code"; }
if [ -z "${TMPDIR:-}" ] && [ -d /dev/shm ] && [ -w /dev/shm ]; then
    free=$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')
    if [ "${free:-0}" -gt 8000000 ] && [ "${available:-0}" -gt 12000000 ]; then
        trap leave EXIT
        trap 'exit 130' HUP INT TERM
        scratch=$(mktemp -d /dev/shm/dredge-tests.XXXXXX)
        printf '#!/bin/sh\n' > "$scratch/probe" && chmod +x "$scratch/probe"
        if "$scratch/probe" 2>/dev/null; then TMPDIR=$scratch; export TMPDIR; fi
    fi
fi

.venv/bin/python -m pytest tests integrations/dagster-paimon/dagster_paimon_tests -n "${DREDGE_TEST_PROCESSES:-$processes}" --dist loadscope --no-loadscope-reorder "$@"
