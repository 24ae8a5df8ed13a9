"""URLs in a kubeconfig: of the API server, and of a proxy in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Url:
    scheme: str
    host: str
    port: int
    path: str = ""  # without a slash at the end
    userinfo: str | None = None  # name:password

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"  # without the password

    __repr__ = __str__


def parse(text: str) -> Url:
    """Without a scheme it is http, as in kubectl. The ValueError describes what is wrong, without a password.

    >>> parse("https://[::1]:6443/k8s/clusters/c1/"), parse("10.0.0.1:8080")
    (https://[::1]:6443/k8s/clusters/c1, http://10.0.0.1:8080)
    """
    if any(ord(letter) <= ord(" ") for letter in text):
        raise ValueError("it holds a space or a control character")
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in PORTS:
        raise ValueError(f"its scheme is {parts.scheme}, and only http and https are supported")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port is not a number from 1 to 65535") from None
    if not parts.hostname or port == 0:
        raise ValueError("it names no host" if not parts.hostname else "its port is not a number from 1 to 65535")
    userinfo, at, _ = parts.netloc.rpartition("@")
    return Url(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
        userinfo=unquote(userinfo) if at else None,
    )
