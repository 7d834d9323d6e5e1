#!/bin/sh
# Creates .venv with the pinned packages. Says what it does; does nothing when the environment is current.
set -eu

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

version_ok() { "$1" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' 2>/dev/null; }

python=${PYTHON:-}
if [ -z "$python" ]; then
    for name in python3 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 && version_ok "$name"; then python=$name; break; fi
    done
fi
[ -n "$python" ] || fail 'no Python 3.11, 3.12 or 3.13 found (Debian package: python3; or set PYTHON=/path/to/python)'
version_ok "$python" || fail "$python is not Python 3.11, 3.12 or 3.13 (Debian package: python3)"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python has no venv module (Debian package: python3-venv)"

# The environment is current when it was made from the same lock file, the same project file, in the same folder.
stamp=.venv/.dredge-stamp
want=$(cat requirements.lock pyproject.toml scripts/setup.sh | cksum; pwd; "$python" --version)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi

echo "setup: creating .venv with $("$python" --version) and the pinned packages (about 1.5 GB; some minutes the first time)"
[ -x .venv/bin/python ] && .venv/bin/python -c 'import sys' 2>/dev/null || { rm -rf .venv; "$python" -m venv .venv; }

# The lock names every package, so nothing is resolved (pip's check of extras fails on pinned files). Both installers
# refuse a file without a hash of the lock. pip compiles one file at a time, so all are compiled at once below.
with_uv() { uv pip install --python .venv/bin/python --quiet --no-deps --require-hashes -r requirements.lock; }
with_pip() {
    .venv/bin/python -m pip --disable-pip-version-check install \
        --quiet --no-compile --no-deps --require-hashes -r requirements.lock
}
installed=
if command -v uv >/dev/null 2>&1; then
    if with_uv; then installed=uv; else echo 'setup: uv failed, its message stands above; pip tries it now' >&2; fi
fi
[ -n "$installed" ] || with_pip || fail 'pip could not install the pinned packages; its message stands above'
# Some packages ship templates that are no Python: they do not compile, and nothing imports them.
.venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true
.venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation -e . \
    || fail 'pip could not install dredge itself; its message stands above'
printf '%s' "$want" > "$stamp"
echo 'setup: done'
