#!/usr/bin/env bash
# `make image`: builds the Dockerfile with buildah or docker, whichever is there. From the environment:
#   IMAGE        name and tag of the result                 (carico:VERSION)
#   BASE         base image with python3 and nothing else   (python:3.13-slim)
#   BASE_PYTHON  the version of its Python                  (3.13)
#   MACHINE      x86_64 or aarch64                          (this machine's)
#   BUILD_FLAGS  more flags for the build
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' carico/__init__.py)
IMAGE=${IMAGE:-carico:$version} BASE=${BASE:-python:3.13-slim} BASE_PYTHON=${BASE_PYTHON:-3.13}
MACHINE=${MACHINE:-$(uname -m)}
case "$MACHINE" in
  x86_64) platform=linux/amd64 ;;
  aarch64) platform=linux/arm64 ;;
  *) echo "image: MACHINE=$MACHINE is neither x86_64 nor aarch64" >&2; exit 2 ;;
esac
if command -v buildah >/dev/null; then
  build=(buildah build)
elif docker version >/dev/null 2>&1; then
  build=(docker build)
else
  echo "image: neither buildah nor a running docker is here; on Debian install buildah" >&2
  exit 2
fi
tools/image-wheels.sh "$BASE_PYTHON" "$MACHINE"
# shellcheck disable=SC2086  # one word per flag
"${build[@]}" ${BUILD_FLAGS:-} --platform "$platform" --build-arg "BASE=$BASE" --build-arg "VERSION=$version" --tag "$IMAGE" .
echo "built $IMAGE"
