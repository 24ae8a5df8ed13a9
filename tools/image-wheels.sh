#!/usr/bin/env bash
# Fills dist/image-wheels with what the Dockerfile unpacks: the wheels of requirements/run.txt, whose checksums pip
# verifies, and Carico's own wheel for images. `tools/image-wheels.sh [PYTHON [MACHINE]]`, e.g. 3.13 aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-3.13} machine=${2:-$(uname -m)}
folder=dist/image-wheels
python=.venv/bin/python
fetched=dist/image-wheels.fetched
want="$version $machine $(sha256sum < requirements/run.txt)"
if [ "$(cat "$fetched" 2>/dev/null)" != "$want" ] || [ ! -d "$folder" ]; then
  rm -rf "$folder" "$fetched"
  mkdir -p "$folder"
  platforms=(--platform "manylinux2014_$machine")
  for glibc in 17 27 28 34; do platforms+=(--platform "manylinux_2_${glibc}_$machine"); done
  $python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
    --python-version "$version" --implementation cp "${platforms[@]}" \
    --dest "$folder" -r <($python tools/requirements_for.py "$version" < requirements/run.txt)
  echo "$want" > "$fetched"
fi
rm -rf "$folder"/carico-*.whl build
CARICO_WHEEL=image $python -m pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation --wheel-dir "$folder" .
rm -rf build
