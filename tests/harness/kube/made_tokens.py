"""ServiceAccount tokens as a pod's projected volume has them, signed by the test or not at all."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

AUDIENCE = "carico"
NAMESPACE = "carico-system"


def account(name: str, namespace: str = NAMESPACE) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def claims(
    subject: str = account("carico-agent"), node: str = "n1", life: float = 3600.0, **changes: Any
) -> dict[str, Any]:
    now = time.time()
    private = {"namespace": NAMESPACE} | ({"node": {"name": node}} if node else {})
    found = {"sub": subject, "aud": [AUDIENCE], "iat": int(now), "nbf": int(now) - 60, "exp": now + life}
    return found | {"kubernetes.io": private} | changes


def unsigned(**changes: Any) -> str:
    """A token whose signature is none."""
    return ".".join((_part({"alg": "RS256"}), _part(claims(**changes)), "c2lnbmF0dXJl"))


def signed(key_file: Path, content: dict[str, Any]) -> str:
    """By the elliptic key with which the API server of the tests signs."""
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    spki = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(spki)
    head = {"alg": "ES256", "kid": _encoded(digest.finalize())}
    body = f"{_part(head)}.{_part(content)}"
    r, s = decode_dss_signature(key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{body}.{_encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def of(token: str) -> dict[str, Any]:
    """The claims of a token."""
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _part(content: dict[str, Any]) -> str:
    return _encoded(json.dumps(content).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
