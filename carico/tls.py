"""TLS towards servers whose certificates are somebody else's: of a cluster, or of whoever set up the gRPC ports."""

from __future__ import annotations

import ssl


def lenient_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A client's context that checks chain, expiry and host name, and no more: as client-go and gRPC do.

    Since Python 3.13 the default also demands every extension of RFC 5280. The authorities of many clusters, those of
    EKS among them, were made without key identifiers.
    """
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
