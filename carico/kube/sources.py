"""Sources of credentials that run no program: fixed ones, token files that are replaced, filtered ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from carico.errors import CredentialError
from carico.kube.identity import CredentialSource, Grant, Headers, bearer


class FixedCredentials:
    """Never changes."""

    slow = False

    def __init__(self, headers: Headers = ()) -> None:
        self.files: list[Path] = []
        self._grant = Grant(headers)

    def obtain(self) -> Grant:
        return self._grant

    def stop(self) -> None: ...


class TokenFile:
    """A token that the kubelet or another program replaces; `otherwise` is used while the file cannot be read."""

    slow = False

    def __init__(self, file: Path, at: str, otherwise: str = "") -> None:
        self.files = [file]
        self._file, self._at, self._otherwise = file, at, otherwise

    def obtain(self) -> Grant:
        return Grant(bearer(self._token(), f"{self._at}: {self._file}"))

    def stop(self) -> None: ...

    def _token(self) -> str:
        try:
            token = self._file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._otherwise:
                return self._otherwise
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CredentialError(f"{self._at}: the token in {self._file} cannot be read ({why})") from error
        if not (token or self._otherwise):
            raise CredentialError(f"{self._at}: {self._file} is empty and should hold a token")
        return token or self._otherwise


class WithoutPassword:
    """Another source's credentials without a password: for servers that accept tokens and certificates only."""

    def __init__(self, source: CredentialSource) -> None:
        self.slow, self.files, self.stop = source.slow, source.files, source.stop
        self._source = source

    def obtain(self) -> Grant:
        grant = self._source.obtain()
        return replace(grant, headers=tuple(line for line in grant.headers if line[1].startswith("Bearer ")))
