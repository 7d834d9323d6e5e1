#!/bin/sh
# The whole suite, in two processes (DREDGE_TEST_PROCESSES; 0: in this one); pytest's own last line is the last line printed.
set -eu
# The suite starts hundreds of processes: each would compile the same modules again.
unset PYTHONDONTWRITEBYTECODE

# Thousands of small tables are synced and removed: in memory where there is plenty (and programs may run), unless TMPDIR says where.
scratch=
leave() { code=$?; [ -z "$scratch" ] || rm -rf "$scratch"; exit "$code"; }
if [ -z "${TMPDIR:-}" ] && [ -d /dev/shm ] && [ -w /dev/shm ]; then
    free=$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')
    available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
    if [ "${free:-0}" -gt 8000000 ] && [ "${available:-0}" -gt 12000000 ]; then
        trap leave EXIT
        trap 'exit 130' HUP INT TERM
        scratch=$(mktemp -d /dev/shm/dredge-tests.XXXXXX)
        printf '#!/bin/sh\n' > "$scratch/probe" && chmod +x "$scratch/probe"
        if "$scratch/probe" 2>/dev/null; then TMPDIR=$scratch; export TMPDIR; fi
    fi
fi

.venv/bin/python -m pytest tests -n "${DREDGE_TEST_PROCESSES:-2}" --dist loadscope --no-loadscope-reorder "$@"
