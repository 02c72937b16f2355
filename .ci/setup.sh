# Sourced by ./run and ./test in the repository's root: `set_up LOCK` makes .venv hold what LOCK names, once.

stop_with() {
    echo "$*" >&2
    exit 1
}

find_python() {
    without_venv=
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        "$python" -c 'import ensurepip, venv' 2>/dev/null && return
        without_venv=${without_venv:-$python}
    done
    [ -z "$without_venv" ] || stop_with "$without_venv has no venv. On Debian and Ubuntu: apt-get install ${without_venv}-venv"
    stop_with "Python 3.11 or newer is needed. On Debian 12: apt-get install python3 python3-venv; on macOS: brew install python"
}

# A venv knows its own path and its Python's version: when either has changed, it is of no use.
venv_identity() {
    pwd && .venv/bin/python -V 2>/dev/null
}

fingerprint() {
    { venv_identity && cat "$1" pyproject.toml; } | cksum
}

# Two starts at once take turns; what a killed one has left half-finished is thrown away, not believed.
take_turn() {
    until mkdir -p .venv && (set -C && echo $$ >.venv/unfinished) 2>/dev/null; do
        other=$(cat .venv/unfinished 2>/dev/null)
        if kill -0 "$other" 2>/dev/null; then
            echo "Waiting for process $other, which is setting up .venv (if it is not: remove .venv) …" >&2
            sleep 2
        else
            rm -rf .venv
        fi
    done
}

make_venv() {
    [ "$(cat .venv/identity 2>/dev/null)" = "$(venv_identity)" ] && return
    find_python
    rm -rf .venv/bin .venv/lib .venv/lib64 .venv/include .venv/pyvenv.cfg .venv/installed-*
    "$python" -m venv .venv || stop_with "$python could not make .venv"
    venv_identity >.venv/identity
}

set_up() {
    [ "$(cat ".venv/installed-$1" 2>/dev/null)" = "$(fingerprint "$1")" ] && return
    take_turn
    echo "Setting up .venv from $1 (once) …" >&2
    make_venv
    pip=".venv/bin/python -m pip --disable-pip-version-check --quiet install"
    $pip --require-hashes -r "$1" || stop_with "The packages in $1 could not be installed."
    $pip --no-deps --no-build-isolation -e . || stop_with "The project itself could not be installed."
    fingerprint "$1" >".venv/installed-$1"
    rm .venv/unfinished
}
