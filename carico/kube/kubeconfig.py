"""A kubeconfig as kubectl reads it: files are merged into one, and one context of it is selected.

    choose([Path("a"), Path("b")], context=None)    the cluster, user and namespace of the current context

The first file that holds an entry of a name takes precedence, with the whole entry; so does the first current-context
that is not empty; files that do not exist are skipped. Paths in an entry are relative to the directory of its file.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from carico.errors import UsageError

log = logging.getLogger(__name__)

KEY_OF = {"clusters": "cluster", "users": "user", "contexts": "context"}


class Extension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: Any = None


class ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[Extension] = []


class EnvVar(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    """A credential plugin."""

    command: str = ""
    args: list[str] = []
    env: list[EnvVar] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct, frozen=True):
    name: str = ""
    config: dict[str, str] = {}


class User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    impersonate: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    username: str = ""
    password: str = ""
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None
    extensions: list[Extension] = []

    def __repr__(self) -> str:
        return "User(…)"  # keeps secrets out of logs and tracebacks


class Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    extensions: list[Extension] = []


@dataclass(frozen=True)
class ContextChoice:
    """A context, resolved. Paths in `cluster` and `user` are absolute."""

    context: str
    namespace: str
    cluster: ClusterEntry
    cluster_name: str
    cluster_file: Path
    user: User
    user_name: str
    user_file: Path
    files: tuple[Path, ...]  # that were merged

    @property
    def cluster_at(self) -> str:
        """For messages."""
        return f"{self.cluster_file}: cluster {self.cluster_name!r}"

    @property
    def user_at(self) -> str:
        return f"{self.user_file}: user {self.user_name!r}"


class _Entry(msgspec.Struct, frozen=True):
    name: str
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    context: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    api_version: str = msgspec.field(name="apiVersion", default="v1")
    kind: str = "Config"
    current_context: str = ""
    clusters: list[_Entry] = []
    users: list[_Entry] = []
    contexts: list[_Entry] = []


@dataclass(frozen=True)
class _Merged:
    files: tuple[Path, ...]
    current_context: str
    # section → name → the entry and its file
    entries: Mapping[str, Mapping[str, tuple[dict[str, Any], Path]]]

    @property
    def label(self) -> str:
        return os.pathsep.join(map(str, self.files))


class _Loader(yaml.SafeLoader):
    """Leaves what looks like a date as text, as kubectl does: a context may be called 2026-01-31."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def named_in(environ: Mapping[str, str]) -> list[Path]:
    """The files of $KUBECONFIG, each once.

    >>> named_in({"KUBECONFIG": "a::b:a"})
    [PosixPath('a'), PosixPath('b')]
    """
    return [Path(name) for name in dict.fromkeys(environ.get("KUBECONFIG", "").split(os.pathsep)) if name]


def choose(files: Sequence[Path], context: str | None = None) -> ContextChoice:
    """The cluster, user and namespace of `context`, or of the current one."""
    merged = _merge(files)
    name = context or merged.current_context
    if not name:
        there = _names(merged, "contexts")
        raise UsageError(f"{merged.label}: current-context is not set, and {there}; choose one with --context")
    chosen, _ = _typed(merged, "contexts", name, Context, "choose another with --context")
    why = f"context {name!r} names it"
    cluster, cluster_file = _typed(merged, "clusters", chosen.cluster, ClusterEntry, why)
    user, user_file = User(), cluster_file
    if chosen.user:  # a context without a user has no credentials
        user, user_file = _typed(merged, "users", chosen.user, User, why)
    return ContextChoice(
        context=name,
        namespace=chosen.namespace or "default",
        cluster=_located(cluster, cluster_file, "certificate_authority"),
        cluster_name=chosen.cluster,
        cluster_file=cluster_file,
        user=_located_user(user, user_file),
        user_name=chosen.user,
        user_file=user_file,
        files=merged.files,
    )


def data(text: str, what: str) -> bytes:
    """The bytes of a `…-data` field; line breaks in it are allowed."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{what} is not base64 ({error})") from error


def _merge(files: Sequence[Path]) -> _Merged:
    read: list[tuple[Path, _File]] = []
    for path in files:
        found = _read(path, only_one=len(files) == 1)
        if found is not None:
            read.append((path, found))
    if not read:
        missing = ", ".join(map(str, files))
        raise UsageError(f"none of the files in $KUBECONFIG exists ({missing}); set --kubeconfig")
    entries: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {section: {} for section in KEY_OF}
    for path, file in read:
        for section, key in KEY_OF.items():
            for entry in _each_once(path, section, getattr(file, section)):
                entries[section].setdefault(entry.name, (getattr(entry, key), path))
    current = next((file.current_context for _, file in read if file.current_context), "")
    return _Merged(tuple(path for path, _ in read), current, entries)


def _each_once(path: Path, section: str, entries: list[_Entry]) -> list[_Entry]:
    seen = set()
    for entry in entries:
        if entry.name in seen:
            raise UsageError(f"{path}: there are two {section} called {entry.name!r}; rename one")
        seen.add(entry.name)
    return entries


def _read(path: Path, *, only_one: bool) -> _File | None:
    """None if the file does not exist and it is not the only one."""
    try:
        plain = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a subclass of SafeLoader
        if plain is not None and not isinstance(plain, dict):
            raise UsageError(f"{path}: is not a usable kubeconfig: it is no mapping")
        file = msgspec.convert(_without_nulls(plain or {}), _File)
    except FileNotFoundError as error:
        if not only_one:
            return None
        raise UsageError(f"{path}: cannot be read ({error.strerror}); set --kubeconfig") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); set --kubeconfig") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a usable kubeconfig: it is not YAML ({_first_problem(error)})") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: is not a usable kubeconfig: {error}") from error
    if (file.api_version, file.kind) != ("v1", "Config"):
        raise UsageError(f"{path}: is not a usable kubeconfig but a {file.kind} of {file.api_version}")
    return file


def _first_problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(error).partition("\n")[0]


def _without_nulls(tree: Any) -> Any:
    """A null field counts as absent."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(value) for value in tree]
    return tree


T = TypeVar("T", ClusterEntry, User, Context)


def _typed(merged: _Merged, section: str, name: str, kind: type[T], why: str) -> tuple[T, Path]:
    if name not in merged.entries[section]:
        there = _names(merged, section)
        raise UsageError(f"{merged.label}: there is no {KEY_OF[section]} {name!r}, {there}; {why}")
    plain, file = merged.entries[section][name]
    where = f"{file}: {KEY_OF[section]} {name!r}"
    try:
        entry = msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from error
    if unknown := sorted(set(plain) - {field.encode_name for field in msgspec.structs.fields(kind)}):
        log.warning("%s: unknown fields are ignored, as kubectl ignores them: %s", where, ", ".join(unknown))
    return entry, file


def _names(merged: _Merged, section: str) -> str:
    names = ", ".join(map(repr, sorted(merged.entries[section])))
    return f"the {section} are {names}" if names else f"there are no {section} at all"


def _located(entry: T, file: Path, *fields: str) -> T:
    """Relative paths are relative to the file that contains them."""
    folder = file.absolute().parent
    named = {field: getattr(entry, field) for field in fields}
    return msgspec.structs.replace(entry, **{field: str(folder / path) for field, path in named.items() if path})


def _located_user(user: User, file: Path) -> User:
    user = _located(user, file, "client_certificate", "client_key", "token_file")
    if user.exec is None or os.sep not in user.exec.command:  # without a slash it is searched for in $PATH
        return user
    command = str(file.absolute().parent / user.exec.command)
    return msgspec.structs.replace(user, exec=msgspec.structs.replace(user.exec, command=command))
