#!/usr/bin/env bash
# Installs requirements/$1.txt (demo or dev), carico itself and, for dev, the harness of the tests into the virtual
# environment $2 (.venv), unless exactly that is already there. Only wheels whose checksums are locked are fetched: nothing is built but carico, and that with
# the setuptools that came with the rest.
set -euo pipefail
what=$1
venv=${2:-.venv}
locked() { cat "requirements/$1.txt" pyproject.toml tests/harness/pyproject.toml | sha256sum; }
# dev holds all of demo
for have in dev "$what"; do
  if [ "$(cat "$venv/installed-$have" 2>/dev/null)" = "$(locked "$have")" ]; then exit 0; fi
done
echo "installing requirements/$what.txt into $venv (about a minute, once)"
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
install --require-hashes --only-binary :all: -r "requirements/$what.txt" \
  || { echo "make: the packages of requirements/$what.txt could not be installed; is a package index within reach?" >&2; exit 1; }
install --no-deps --no-build-isolation --editable .
if [ "$what" = dev ]; then install --no-deps --no-build-isolation --editable tests/harness; fi
locked "$what" > "$venv/installed-$what"
