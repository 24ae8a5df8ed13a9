"""`auth-provider: oidc` of a kubeconfig, through the package `kubernetes`: an ID token, refreshed if it has expired.

A separate program with the interface of a credential plugin, because the package takes 40 MB and half a second:
`python -m carico.kube.auth_provider CONTEXT FILE…`. New tokens are written into the kubeconfig, as kubectl does: most
providers accept a refresh token only once.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import os
import ssl
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import yaml

from carico.errors import CaricoError
from carico.kube.exec_plugin import VERSIONS
from carico.kube.kubeconfig import ContextChoice, choose

ENDED = "e30.eyJleHAiOjB9.e30"  # a token that expired in 1970, for a user who has only a refresh token


def main(argv: list[str]) -> int:
    try:
        token = id_token(choose([Path(file) for file in argv[1:]], argv[0]))
    except CaricoError as error:
        print(error, file=sys.stderr)
        return 1
    until = datetime.fromtimestamp(_end(token), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": token, "expirationTimestamp": until}
    print(json.dumps({"apiVersion": VERSIONS[0], "kind": "ExecCredential", "status": status}))
    return 0


def id_token(choice: ContextChoice) -> str:
    assert choice.user.auth_provider is not None
    given = choice.user.auth_provider.config
    config = {"id-token": ENDED, "client-secret": "", **given}
    if not config.get("idp-certificate-authority-data"):
        # Without a CA the package would not verify the provider's certificate.
        config.setdefault("idp-certificate-authority", _authorities())
    token = _loaded(config)
    if _end(token) <= time.time():
        raise CaricoError("the id-token has ended and could not be renewed; log in again")
    new = {name: config[name] for name in ("id-token", "refresh-token") if config.get(name) != given.get(name)}
    if new:
        _save(choice, new)
    return token


def _loaded(config: dict[str, str]) -> str:
    """Returns the ID token; `config` holds the new tokens afterwards."""
    user = {"auth-provider": {"name": "oidc", "config": config}}
    whole = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://localhost"}}],
        "users": [{"name": "u", "user": user}],
    }
    settings = importlib.import_module("kubernetes.client").Configuration()
    loader = importlib.import_module("kubernetes.config.kube_config").KubeConfigLoader(whole)
    try:
        loader.load_and_set(settings)
    except Exception as error:  # of the package, of requests, of oauthlib
        why = str(error).partition("\n")[0] or type(error).__name__
        raise CaricoError(f"the id-token could not be renewed ({why}); log in again") from error
    if not settings.api_key:
        raise CaricoError("the id-token is not a JSON web token; log in again")
    return config["id-token"]


def _authorities() -> str:
    """The system's CA file, else that of certifi."""
    found = ssl.get_default_verify_paths().cafile
    return found or str(importlib.import_module("certifi").where())


def _end(token: str) -> float:
    """`exp` of a JSON web token, s since 1970; NEVER if it has none.

    >>> _end(ENDED)
    0.0
    """
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims.get("exp", NEVER))
    except (IndexError, ValueError, AttributeError, TypeError, binascii.Error) as error:
        raise CaricoError("the id-token is not a JSON web token; log in again") from error


NEVER = 4102444800.0  # 2100-01-01


def _save(choice: ContextChoice, new: dict[str, str]) -> None:
    file = choice.user_file.resolve()
    try:
        with _locked(file):
            whole = yaml.safe_load(file.read_text())
            for entry in whole["users"]:
                if entry["name"] == choice.user_name:
                    entry["user"]["auth-provider"]["config"].update(new)
            _replace(file, yaml.safe_dump(whole, sort_keys=False))
    except OSError as error:
        print(f"the new tokens could not be saved in {file} ({error.strerror})", file=sys.stderr)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Locks a kubeconfig as kubectl does."""
    lock = file.with_name(f"{file.name}.lock")
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield
    finally:
        lock.unlink()


def _replace(file: Path, text: str) -> None:
    number, new = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with open(number, "w") as half:
        os.fchmod(number, stat.S_IMODE(file.stat().st_mode))
        half.write(text)
    Path(new).replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
