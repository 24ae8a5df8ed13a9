# The image of agent, aggregator and scheduler; `make image` builds it with buildah or docker.
#
# Nothing is fetched while it is built: `make image` puts the locked wheels of requirements/run.txt and Carico's own into
# dist/image-wheels, for the Python of the base. A base needs python3 (3.11 to 3.13) and nothing else.
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
COPY dist/image-wheels /wheels
COPY tools/sbom.py /build/
# A wheel is unpacked by the standard library: the base needs no pip, which has checked the checksums when it fetched.
RUN set -eu; \
    for wheel in /wheels/*.whl; do python3 -m zipfile -e "$wheel" /opt/carico; done; \
    ! ls -d /opt/carico/*.data 2>/dev/null; \
    find /opt/carico -type d \( -name tests -o -name f2py \) -path '*/numpy/*' -prune -exec rm -rf {} +; \
    find /opt/carico \( -name '*.pyi' -o -name '*.pxd' -o -name '*.h' -o -name '*.a' \) -delete; \
    mkdir /opt/carico/bin; \
    printf '#!/usr/bin/env python3\nimport sys\n\nfrom carico.cli import main\n\nsys.exit(main())\n' > /opt/carico/bin/carico; \
    chmod 755 /opt/carico/bin/carico; \
    python3 -m compileall -q --invalidation-mode unchecked-hash /opt/carico; \
    python3 /build/sbom.py /opt/carico > /opt/carico/sbom.cdx.json

FROM ${BASE}
ARG VERSION=unknown
LABEL org.opencontainers.image.title="carico" \
      org.opencontainers.image.description="A Kubernetes scheduler that places pods by what the nodes can really still take" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Some bases have pip; at run time nothing is installed.
RUN python3 -m pip --version >/dev/null 2>&1 && python3 -m pip uninstall -q -y --root-user-action=ignore pip || true
COPY --from=build /opt/carico /opt/carico
# One thread for 2 x 2 matrices; no byte code is written into a root file system that is read only.
# PATH: for `kubectl exec … -- carico doctor`.
ENV PATH=/opt/carico/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV PYTHONPATH=/opt/carico PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python3", "-m", "carico.cli"]
CMD ["--help"]
