"""Scheduler and aggregator: whether they respond, whether the certificates fit, and which nodes no longer report."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from carico import token_claims
from carico.doctor.finding import Finding, ok, problem
from carico.durations import show
from carico.errors import CaricoError, TokenRefused, UsageError
from carico.http.address import split_address
from carico.scheduler.http.client import PageClient, error_text
from carico.settings import AgentSettings, TlsFiles
from carico.tls import lenient_context

PATIENCE = 5.0  # s
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # HTTP/2 preface, empty SETTINGS
SETTINGS_FRAME, TLS_ALERT = 0x04, 0x15
DAY = 86400.0  # s
SOON = 3 * DAY  # before the end of a certificate that should have been renewed
SHOWN = 4  # names of nodes without a recent report


async def look(settings: AgentSettings, pages: PageClient, *, named: bool) -> list[Finding]:
    """`pages` are the scheduler's; `named` if the user requested them."""
    found = await _pages(pages, named)
    if settings.token_file is not None:
        found.append(token(settings.token_file))
    for part, target in [
        *(("scheduler gRPC", t) for t in settings.schedulers),
        ("aggregator gRPC", settings.aggregator),
    ]:
        if target:
            found.append(await grpc(part, target, settings))
    return found


# --- pages ---


async def _pages(pages: PageClient, named: bool) -> list[Finding]:
    start = "start `carico scheduler`, or name its pages with --server"
    try:
        async with asyncio.timeout(PATIENCE):
            ready, ledger = await pages.get("/readyz"), await pages.get("/debug/ledger")
        rows = json.loads(ledger.body) if ledger.status == HTTPStatus.OK else None
    except (CaricoError, TimeoutError) as error:
        return [problem("scheduler", str(error) or f"{pages.url}: no answer in {PATIENCE:.0f} s", start, needed=named)]
    except ValueError:
        return [problem("scheduler", f"{pages.url}: the server there is not a scheduler", start, needed=named)]
    if (text := ready.body.decode(errors="replace").strip()) != "ok":
        fix = "wait, or look at its log: it cannot read the API server"
        return [problem("scheduler", f"{pages.url} is not ready: {text}", fix, needed=True)]
    if rows is None:
        found, _, fix = error_text(ledger).partition("; ")
        return [problem("scheduler", f"{pages.url} is ready, but: {found}", fix or start, needed=named)]
    if not (isinstance(rows, dict) and "leader" in rows and isinstance(rows.get("nodes"), dict)):
        return [problem("scheduler", f"{pages.url}: the server there is not a scheduler", start, needed=named)]
    role = "leads" if rows["leader"] else "stands by"
    return [ok("scheduler", f"{pages.url} {role}"), reports(rows["nodes"])]


def reports(nodes: dict[str, dict[str, Any]]) -> Finding:
    """
    >>> reports({"a": {"stale": False, "age": 1.0}, "b": {"stale": True, "age": None}}).found
    '1 of 2 nodes have no recent report: b (never)'
    """
    fix = "look at `carico agent` there: does it run, and is --schedulers this scheduler?"
    if not nodes:
        return problem("reports", "no node has reported", fix, needed=False)
    silent = {name: row["age"] for name, row in nodes.items() if row["stale"]}
    if not silent:
        return ok("reports", f"{len(nodes)} of {len(nodes)} nodes report")
    shown = [f"{name} ({'never' if age is None else f'{age:.0f} s ago'})" for name, age in list(silent.items())[:SHOWN]]
    more = " …" if len(silent) > SHOWN else ""
    return problem(
        "reports",
        f"{len(silent)} of {len(nodes)} nodes have no recent report: {', '.join(shown)}{more}",
        fix,
        needed=False,
    )


# --- gRPC ---


def token(path: Path) -> Finding:
    """The agent's, of which only the claims can be seen here; servers have the API server verify it."""
    mount = "mount a projected volume with a serviceAccountToken, whose audience is the servers' token_audience"
    try:
        claims = token_claims.read(token_claims.from_file(path))
    except (UsageError, TokenRefused) as error:
        return problem("token", str(error), mount, needed=True)
    left, who = claims.ends_at - time.time(), f"{path}: a token of {claims.subject}"
    if left <= 0:
        why = f"{who} that ended {-left:.0f} s ago"
        return problem("token", why, "see why the kubelet does not replace it, and compare the clocks", needed=True)
    if not claims.node:
        fix = "Kubernetes 1.30 or newer puts it there; identify agents by certificates in older clusters"
        return problem("token", f"{who} that names no node", fix, needed=True)
    audiences = ", ".join(claims.audiences) or "none"
    return ok("token", f"{who} on {claims.node}, audience {audiences}, for another {show(round(left))}")


async def grpc(part: str, target: str, files: TlsFiles) -> Finding:
    """Connects up to HTTP/2's first frame: by then certificates of both sides have been verified."""
    try:
        host, port = split_address(target)
        context = None if files.plaintext else _context(files)
    except (UsageError, OSError, ValueError) as error:
        return problem(
            part, f"{target}: {error}", "check --tls-ca, --tls-cert and --tls-key, or use --plaintext", needed=True
        )
    try:
        async with asyncio.timeout(PATIENCE):
            first, ends_at = await _first_words(host, port, context)
    except OSError as error:  # a timeout and every TLS error too
        found, fix = explained(error)
        return problem(part, f"{target}: {found}", fix, needed=True)
    if len(first) >= 4 and first[3] == SETTINGS_FRAME:
        return _answers(part, target, ends_at)
    if context is not None and not first:  # gRPC closes silently on a certificate that it rejects
        ours = "does not trust our certificate" if files.tls_cert else "requires a client certificate"
        return problem(
            part, f"{target}: it {ours}", "name --tls-cert and --tls-key that its --client-ca signed", needed=True
        )
    if context is None and (not first or first[0] == TLS_ALERT):
        return problem(part, f"{target}: it uses TLS", "leave --plaintext out and name --tls-ca", needed=True)
    return problem(
        part,
        f"{target}: the server there does not serve gRPC",
        "check the port: pages and gRPC have different ones",
        needed=True,
    )


def _context(files: TlsFiles) -> ssl.SSLContext:
    if files.tls_ca is None:
        raise UsageError("no --tls-ca is named")
    context = lenient_context(cafile=str(files.tls_ca))
    if files.tls_cert is not None:
        context.load_cert_chain(str(files.tls_cert), None if files.tls_key is None else str(files.tls_key))
    context.set_alpn_protocols(["h2"])
    return context


async def _first_words(host: str, port: int, context: ssl.SSLContext | None) -> tuple[bytes, float | None]:
    """The beginning of the response, and the Unix time at which the server's certificate ends."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        certificate = writer.get_extra_info("peercert") or {}
        ends_at = ssl.cert_time_to_seconds(certificate["notAfter"]) if "notAfter" in certificate else None
        writer.write(PREFACE)
        return await reader.read(9), ends_at
    finally:
        writer.transport.abort()  # a TLS shutdown would wait for the peer's
        await asyncio.sleep(0)


def _answers(part: str, target: str, ends_at: float | None) -> Finding:
    if ends_at is None:
        return ok(part, f"{target} answers")
    left = ends_at - time.time()
    if left < SOON:
        fix = (
            "renew it; with issue_certificates the log of the scheduler that leads has the reason why it is not renewed"
        )
        return problem(part, f"{target} answers, but its certificate ends in {left / DAY:.1f} days", fix, needed=False)
    return ok(part, f"{target} answers over TLS, with a certificate for another {left / DAY:.0f} days")


def explained(error: OSError) -> tuple[str, str]:
    """What is wrong and how to fix it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is refused: {error.verify_message}",
            "name the authority that signed it with --tls-ca, and dial a name that is in the certificate",
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "wrong version number" in reason or "record layer failure" in reason:
            return "it does not use TLS", "use --plaintext, or give the other side a certificate"
        if "certificate required" in reason or "handshake failure" in reason:
            return "it requires a client certificate", "name --tls-cert and --tls-key"
        return f"TLS failed: {reason}", "check --tls-ca, --tls-cert and --tls-key"
    if isinstance(error, TimeoutError):
        return f"no answer in {PATIENCE:.0f} s", "check the network and its policies"
    if isinstance(error, socket.gaierror):
        return "the name is not known", "check the name, and the cluster's DNS"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there", "start it, or check the address"
    return str(error), "check the address and the network"
