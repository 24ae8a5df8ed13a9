"""`as` in a kubeconfig: headers that ask the API server to treat requests as those of another user."""

from __future__ import annotations

import string

from carico.errors import UsageError
from carico.kube.identity import Headers, checked
from carico.kube.kubeconfig import User

PLAIN = frozenset((string.ascii_letters + string.digits + "!#$&'*+-.^_`|~").encode())  # bytes of a header's name


def headers(user: User, at: str) -> Headers:
    if not user.impersonate:
        if user.as_uid or user.as_groups or user.as_user_extra:
            raise UsageError(f"{at}: as-uid, as-groups and as-user-extra need `as`, the user to act as")
        return ()
    lines = [("Impersonate-User", user.impersonate)]
    if user.as_uid:
        lines.append(("Impersonate-Uid", user.as_uid))
    lines += [("Impersonate-Group", group) for group in user.as_groups]
    lines += [
        (f"Impersonate-Extra-{escaped(key)}", value) for key, all_ in user.as_user_extra.items() for value in all_
    ]
    return tuple((name, checked(value, f"{at}: {name}")) for name, value in lines)


def escaped(key: str) -> str:
    """
    >>> escaped("example.com/team"), escaped("50%")
    ('example.com%2Fteam', '50%25')
    """
    return "".join(chr(byte) if byte in PLAIN else f"%{byte:02X}" for byte in key.encode())
