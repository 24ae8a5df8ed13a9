"""The proxy for the API server: `proxy-url` of the cluster, else $HTTPS_PROXY and $NO_PROXY, as in kubectl.

tunnel.py connects through it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from carico.errors import UsageError
from carico.kube.url import Url, parse


def proxy_of(server: Url, proxy_url: str, what: str, environ: Mapping[str, str]) -> Url | None:
    """`what` is the location of `proxy_url`, which applies to every address; NO_PROXY limits only $HTTPS_PROXY."""
    if proxy_url:
        return _parsed(proxy_url, f"{what}: proxy-url")
    name = f"{server.scheme}_proxy"
    found = environ.get(name.upper()) or environ.get(name)
    if not found or not goes_through(server, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return None
    return _parsed(found, f"${name.upper()}")


def _parsed(text: str, what: str) -> Url:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{what} cannot be used: {error}") from error


def goes_through(server: Url, no_proxy: str) -> bool:
    """Whether NO_PROXY permits a proxy for this server; localhost and loopback addresses never use one.

    >>> server = parse("https://api.example.com:6443")
    >>> [goes_through(server, rule) for rule in ("", "example.com", ".example.com:443", "api.example.com:6443", "*")]
    [True, False, True, False, False]
    >>> server = parse("https://10.96.0.1")
    >>> [goes_through(server, rule) for rule in ("10.0.0.0/8", "10.96.0.1:6443", "10.96.0.1,x", "96.0.1")]
    [False, True, False, True]
    """
    address = _address(server.host)
    if server.host == "localhost" or (address is not None and address.is_loopback):
        return False
    return not any(_excepts(rule.strip().lower(), server, address) for rule in no_proxy.split(","))


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _excepts(rule: str, server: Url, address: Address | None) -> bool:
    if rule in ("", "*"):
        return bool(rule)
    if "/" in rule:
        return address is not None and _within(address, rule)
    host, port = _split(rule)
    if port and port != str(server.port):
        return False
    if (named := _address(host)) is not None:
        return named == address
    if address is not None:
        return False
    domain = host[1:] if host.startswith("*.") else host
    return server.host == domain or server.host.endswith(domain if domain.startswith(".") else f".{domain}")


def _within(address: Address, rule: str) -> bool:
    try:
        return address in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False


def _split(rule: str) -> tuple[str, str]:
    """Host and port; an IPv6 address without brackets has no port."""
    host, colon, port = rule.rpartition(":")
    if not colon or (":" in host and not rule.startswith("[")) or not port.isdigit():
        return rule, ""
    return host, port
