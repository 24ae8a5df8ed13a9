#!/usr/bin/env bash
# Tests Carico on every CPython from 3.11 on that this machine has (PATH, pyenv), each in a virtual environment of its
# own: the quick tests, which import every module, and a demo of 4 pods. With --newest only the newest one, and of the
# quick tests those that meet the operating system and other people's libraries: under 3 minutes.
# Under CI=true one from 3.13 on must be there, which checks certificates more strictly than those before.
set -euo pipefail
cd "$(dirname "$0")/.."
FIRST=3.11 STRICT=3.13

case "${1:-}" in
  "") newest= ;;
  --newest) newest=yes ;;
  *) echo "usage: tools/test-pythons.sh [--newest]" >&2; exit 2 ;;
esac

at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -1)" = "$2" ]; }

# Lines of VERSION PATH, one per minor version, the oldest first. A shim of pyenv may lead to nothing: hence the asking.
pythons() {
  local about='import sys; sys.implementation.name == "cpython" and print("%d.%d.%d" % sys.version_info[:3], sys.executable)'
  { tr : '\n' <<<"$PATH"; printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin; } \
    | while read -r folder; do for python in "$folder"/python3.[0-9]*; do echo "$python"; done; done \
    | { grep -E '/python3\.[0-9]+$' || true; } \
    | while read -r python; do "$python" -c "$about" 2>/dev/null || true; done \
    | while read -r version path; do if at_least "$version" $FIRST; then echo "$version $path"; fi; done \
    | sort -rV | awk '{ split($1, v, "."); if (!seen[v[2]]++) print }' | sort -V
}

# The folder of a virtual environment of that Python: make's own, where it is one.
environment() { # version, path
  local minor=${1%.*} own
  own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
  if [ "$own" = "$minor" ]; then echo .venv; return; fi
  [ -e ".venv-$minor/bin/python" ] || "$2" -m venv ".venv-$minor"
  echo ".venv-$minor"
}

check() { # version, path
  local began=$SECONDS venv
  venv=$(environment "$1" "$2")
  tools/install.sh dev "$venv"
  echo "--- Python $1: quick tests"
  local tests=(tests carico)
  if [ -n "$newest" ]; then tests=(tests/basics tests/kube tests/wire tests/doctor tests/embedded/test_api_basics.py carico); fi
  "$venv/bin/python" -m pytest -q -p no:cacheprovider -m "not cluster and not slow and not long" "${tests[@]}"
  echo "--- Python $1: demo"
  "$venv/bin/carico" demo --pods 4 --png "$venv/demo.png"
  echo "--- Python $1: all is well, after $((SECONDS - began)) s"
}

found=$(pythons)
last=$(tail -1 <<<"$found")
if [ -z "$found" ]; then echo "test-pythons: no CPython from $FIRST on is in PATH or pyenv" >&2; exit 1; fi
if [ "${CI:-}" = true ] && ! at_least "${last%% *}" $STRICT; then
  echo "test-pythons: CI needs a CPython from $STRICT on, in PATH or pyenv; the newest here is ${last%% *}" >&2
  exit 1
fi
if [ -n "$newest" ]; then found=$last; fi
while read -r version path <&3; do check "$version" "$path"; done 3<<<"$found"
