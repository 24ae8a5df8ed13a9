"""TokenReview and SubjectAccessReview. There is one user, who may do everything."""

from __future__ import annotations

import hmac

from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ApiKind

OWNER = "carico-embedded"


class AccessReviews:
    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def has_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token)

    def status(self, kind: ApiKind, spec: Plain) -> Plain:
        if kind is TOKEN_REVIEWS:
            if not self.has_token(str(spec.get("token", ""))):
                return {"authenticated": False, "error": "this token is not known"}
            return {"authenticated": True, "user": {"username": OWNER, "groups": ["system:authenticated"]}}
        if kind is SUBJECT_ACCESS_REVIEWS:
            return {"allowed": spec.get("user") == OWNER}
        return {"allowed": True}  # the client itself, which is authenticated
