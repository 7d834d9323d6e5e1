#!/bin/sh
# The fast tests and those of SQL, the command line and Spark, with the lowest versions that pyproject.toml allows, in an environment of
# their own (build/lowest). Needs uv on the path. Arguments are passed to pytest.
set -eu
command -v uv >/dev/null 2>&1 || { echo 'test_lowest: uv is not on the path (pip install uv)' >&2; exit 1; }

environment=build/lowest
python=${PYTHON:-python3.11}
uv venv --quiet --clear --python "$python" "$environment"
uv pip compile pyproject.toml --all-extras --resolution lowest-direct --python "$environment/bin/python" \
    --no-header --no-emit-index-url --quiet -o "$environment/lowest.txt"
uv pip install --quiet --python "$environment/bin/python" -r "$environment/lowest.txt"
uv pip install --quiet --python "$environment/bin/python" --no-deps -e .
DREDGE_PYTHON=$environment/bin/python
export DREDGE_PYTHON
# Here these warnings are no errors: the newest indirect packages deprecate what the oldest direct ones use (typer 0.19 with
# click 8.5), and PySpark 4.1 leaves sockets open.
warnings="-W ignore::DeprecationWarning -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning"
# With typer 0.19 a command imports more at its start; how fast it starts is a matter of the locked versions.
start=tests/cli/test_verbs.py::test_the_command_lists_its_verbs_without_arrow_and_looks_without_what_it_does_not_need
# shellcheck disable=SC2086 # a list of options
sh scripts/test_fast.sh $warnings --deselect "$start" tests/cli tests/sql tests/storage tests/write "$@"
files=
for name in compact connect names_and_frames reads row_changes source sql_values stream_write write; do
    files="$files tests/spark/test_$name.py"
done
# shellcheck disable=SC2086 # lists of options and files
exec "$DREDGE_PYTHON" -m pytest $files $warnings --durations=5 \
    -n "${DREDGE_TEST_PROCESSES:-2}" --dist loadscope --no-loadscope-reorder "$@"
