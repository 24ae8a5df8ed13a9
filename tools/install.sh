#!/usr/bin/env bash
# Installs requirements/$1.txt (run or dev) and carico itself into .venv, unless exactly that is already there.
set -euo pipefail
what=$1
stamp=.venv/installed-$what
sum=$(cat "requirements/$what.txt" pyproject.toml | sha256sum)
# dev holds all of run
for have in .venv/installed-dev "$stamp"; do
  other=${have##*-}
  if [ -e "$have" ] && [ "$(cat "$have")" = "$(cat "requirements/$other.txt" pyproject.toml | sha256sum)" ]; then exit 0; fi
done
echo "installing requirements/$what.txt into .venv (about a minute, once)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-binary filterpy -r "requirements/$what.txt" \
  || { echo "make: the packages of requirements/$what.txt could not be installed; is a package index within reach?" >&2; exit 1; }
# Setuptools comes locked with the rest: no build isolation, nothing unlocked is fetched.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
echo "$sum" > "$stamp"
