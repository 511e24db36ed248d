#!/bin/sh
# Makes .venv and installs qframe with what its tests and its demo need. Needs Python 3.11 and pip.
set -eu
cd "$(dirname "$0")/.."

is_new_enough() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=""
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    if is_new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    found=${PYTHON:-$(python3 --version 2>/dev/null || echo none)}
    echo "qframe needs Python 3.11 or newer (found: $found); name one: make PYTHON=/path/to/python" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        echo "failed: $*" >&2
        exit 1
    fi
}

if ! is_new_enough .venv/bin/python; then
    rm -rf .venv
    echo "making .venv with $("$python" --version)"
    if ! "$python" -m venv .venv >"$log" 2>&1; then
        # Debian keeps ensurepip in a package of its own; virtualenv brings its own pip.
        rm -rf .venv
        if ! "$python" -m pip --version >/dev/null 2>&1; then
            echo "$python has neither venv nor pip: install one, e.g. apt-get install python3-venv" >&2
            exit 1
        fi
        echo "this Python has no venv; taking virtualenv instead"
        tools=$(mktemp -d)
        quietly "$python" -m pip install --quiet --target "$tools" virtualenv
        quietly env PYTHONPATH="$tools" "$python" -m virtualenv --quiet .venv
        rm -rf "$tools"
    fi
fi

echo "installing qframe, its tests' and its demo's packages"
quietly .venv/bin/python -m pip install --quiet --upgrade "pip>=25.1"
quietly .venv/bin/python -m pip install --quiet --editable . --group dev --group demo
touch .venv/.ready
