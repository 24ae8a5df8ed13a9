#!/usr/bin/env bash
# Generates the Python code of every file below protos/ again. The folders below protos/ mirror the package, so that the
# imports in the generated code work. `tools/protos.sh --check` changes nothing and fails when the committed code is old.
set -euo pipefail
cd "$(dirname "$0")/.."

generate() { # into folder $1
  mapfile -t files < <(cd protos && find . -name '*.proto' | sort | sed 's|^\./||')
  .venv/bin/python -m grpc_tools.protoc -I protos --python_out="$1" "${files[@]}"
  # A file without a service would get an empty module.
  mapfile -t services < <(cd protos && grep -l '^service ' "${files[@]}")
  .venv/bin/python -m grpc_tools.protoc -I protos --grpc_python_out="$1" "${services[@]}"
}

case "${1:-}" in
  "")
    generate .
    ;;
  --check)
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    generate "$fresh"
    (cd "$fresh" && find . -type f) | while read -r file; do
      cmp -s "$fresh/$file" "$file" || { echo "protos: ${file#./} is old; run 'make protos'" >&2; exit 1; }
    done
    ;;
  *)
    echo "usage: tools/protos.sh [--check]" >&2
    exit 2
    ;;
esac
