#!/bin/sh
# The fast tests with the lowest versions that pyproject.toml allows, in an environment of their own (build/lowest). Needs uv on the path.
set -eu
command -v uv >/dev/null 2>&1 || { echo 'test_lowest: uv is not on the path (pip install uv)' >&2; exit 1; }

environment=build/lowest
python=${PYTHON:-python3.11}
uv venv --quiet --clear --python "$python" "$environment"
uv pip compile pyproject.toml --all-extras --resolution lowest-direct --python "$environment/bin/python" \
    --no-header --no-emit-index-url --quiet -o "$environment/lowest.txt"
uv pip install --quiet --python "$environment/bin/python" -r "$environment/lowest.txt"
uv pip install --quiet --python "$environment/bin/python" --no-deps -e .
# The newest indirect packages deprecate what the oldest direct ones use (typer 0.19 with click 8.5), so those warnings are no errors here.
DREDGE_PYTHON=$environment/bin/python exec sh scripts/test_fast.sh -W ignore::DeprecationWarning "$@"
