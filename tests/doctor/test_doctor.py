"""What the doctor finds: on trees of kernels, behind real certificates, in an embedded and in a real cluster."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carico.commands import doctor as command
from carico.doctor import endpoints, machine, runtime
from carico.doctor.finding import Finding
from carico.flags import CommandParser
from carico.http.server import HttpServer
from carico.kube.rights import Right, rights
from carico.scheduler import enabled_parts
from carico.settings import AgentSettings, SchedulerSettings, ServerTlsFiles, TlsFiles
from carico.wire.certificates import Authority
from carico.wire.server import GrpcServer
from harness.cluster.cluster import Cluster
from harness.cluster.fixtures import needs_scale
from harness.dashboard.stage import Stage, until
from harness.kube.made_tokens import unsigned
from harness.wire.listening import ListeningScheduler
from harness.wire.minimal_authority import minimal_authority

FIXTURES = Path(__file__).parents[1] / "fixtures"


def doctor(*flags: str) -> tuple[int, dict[str, Finding]]:
    command = [sys.executable, "-m", "carico.cli", "doctor", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not done.stderr, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    found = [Finding(**finding) for finding in report["findings"]]
    assert report["missing"] == sum(finding.state == "missing" for finding in found)
    for finding in found:
        assert bool(finding.fix) == (finding.state != "ok"), finding  # whatever is not well has a way to fix it
    return done.returncode, {finding.part: finding for finding in found}


# --- the machine ---


def test_pressure_is_there_missing_or_switched_off(tmp_path: Path) -> None:
    assert machine.pressure(FIXTURES / "cgroup-v2-host/after/proc").state == "ok"
    assert machine.pressure(FIXTURES / "no-psi/after/proc").found == "this kernel has no PSI"
    off = tmp_path / "pressure"
    off.mkdir()
    (off / "cpu").symlink_to("/proc/self/mem")  # can be opened, and fails when it is read
    finding = machine.pressure(tmp_path)
    assert (finding.found, finding.fix[:15]) == ("PSI is switched off", "boot with psi=1")


def test_limits_of_this_process(tmp_path: Path) -> None:
    tree = FIXTURES / "container-v1/after"
    assert machine.cgroup(tree / "proc", tree / "sys/fs/cgroup").found.startswith(
        "version 1, this process is limited to"
    )
    assert machine.cgroup(tmp_path, tmp_path).state == "warning"


def test_without_counters_nothing_works(tmp_path: Path) -> None:
    code, found = doctor("--proc-root", str(tmp_path))
    assert code == 1
    assert found["counters"].state == "missing"
    assert "--proc-root" in found["counters"].fix


def test_sockets(tmp_path: Path) -> None:
    def look(**settings: Any) -> list[Finding]:
        return asyncio.run(runtime.look(AgentSettings(cgroup_root=tmp_path, **settings)))

    nothing = {"containerd_socket": tmp_path / "none", "cri_socket": tmp_path / "none"}
    assert {finding.state for finding in look(**nothing)} == {"warning"}
    [asked] = look(runtime="containerd", **nothing)  # what is requested by name is needed
    assert (asked.state, asked.found) == ("missing", f"there is no socket {tmp_path}/none")
    (tmp_path / "kubepods").mkdir()
    [counted] = look(**nothing)
    assert "kubepods" in counted.found


# --- certificates ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def ask(target: str, **files: Any) -> Finding:
    return asyncio.run(endpoints.grpc("scheduler gRPC", target, TlsFiles(**files)))


def test_problems_with_tls_are_named(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("carico:scheduler", "localhost")
    other = Authority(tmp_path).cert
    with ListeningScheduler(pair.cert, pair.key) as server:
        port = server.target.rpartition(":")[2]
        found = ask(server.target, tls_ca=authority.cert)
        assert found.found == f"{server.target} answers over TLS, with a certificate for another 30 days"
        stranger = ask(server.target, tls_ca=other)
        assert "its certificate is refused" in stranger.found
        assert "--tls-ca" in stranger.fix
        wrong_name = ask(f"127.0.0.1:{port}", tls_ca=authority.cert)
        assert "IP address mismatch" in wrong_name.found
        assert ask(server.target, plaintext=True).found.endswith("it uses TLS")
        assert ask(server.target).state == "missing"  # no authority named
    assert ask(server.target, tls_ca=authority.cert).found.endswith("nothing listens there")


def test_a_certificate_that_grpc_accepts_is_not_called_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = ssl.create_default_context

    def strict(**places: Any) -> ssl.SSLContext:
        """As since Python 3.13."""
        context = default(**places)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    authority, pair = minimal_authority(tmp_path)
    with ListeningScheduler(pair.cert, pair.key) as server:
        target = server.target.replace("localhost", "127.0.0.1")
        assert "its certificate ends in 0.0 days" in ask(target, tls_ca=authority).found  # it is one of an hour


def test_a_server_that_wants_our_certificate(authority: Authority) -> None:
    pair, ours = authority.issue("carico:scheduler", "localhost"), authority.issue_node("n")
    files = ServerTlsFiles(client_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)

    async def scenario() -> list[Finding]:
        server = GrpcServer("127.0.0.1:0", files, {})
        target = f"localhost:{await server.start()}"
        without = await endpoints.grpc("g", target, TlsFiles(tls_ca=authority.cert))
        mine = TlsFiles(tls_ca=authority.cert, tls_cert=ours.cert, tls_key=ours.key)
        found = [without, await endpoints.grpc("g", target, mine)]
        await server.stop()
        return found

    without, with_ours = asyncio.run(scenario())
    assert without.found.endswith("it requires a client certificate")
    assert with_ours.state == "ok"


def test_a_certificate_that_was_not_renewed(tmp_path: Path) -> None:
    authority = Authority(tmp_path, life=datetime.timedelta(days=1))
    pair = authority.issue("localhost", "localhost", "127.0.0.1")
    with ListeningScheduler(pair.cert, pair.key) as server:
        found = ask(server.target, tls_ca=authority.cert)
    assert found.state == "warning"
    assert "its certificate ends in 1.0 days" in found.found


def test_the_token_of_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content, state, text in (
        (unsigned(), "ok", "on n1, audience carico, for another 1h"),
        (unsigned(life=-30.0), "missing", "that ended 30 s ago"),
        (unsigned(node=""), "missing", "names no node"),
        ("guessed", "missing", "holds no ServiceAccount token"),
    ):
        file.write_text(content)
        found = endpoints.token(file)
        assert (found.state, text in found.found) == (state, True), found
        assert content not in found.found
    assert "cannot read" in endpoints.token(tmp_path / "none").found


def test_the_port_of_the_pages_is_not_the_port_of_grpc() -> None:
    async def scenario() -> Finding:
        server = HttpServer("127.0.0.1:0", {})
        finding = await endpoints.grpc("g", f"127.0.0.1:{await server.start()}", TlsFiles(plaintext=True))
        await server.stop()
        return finding

    assert asyncio.run(scenario()).found.endswith("the server there does not serve gRPC")


# --- the cluster ---


@pytest.mark.slow
def test_a_cluster_that_works_and_one_that_does_not(tmp_path: Path) -> None:
    with Stage(tmp_path, ["node-1", "node-2"]) as stage:
        stage.create_node("silent")
        asked = ("--kubeconfig", str(stage.kubeconfig), "--server", stage.url, "--plaintext")
        grpc = ("--schedulers", f"127.0.0.1:{stage.grpc_port}")
        until(lambda: doctor(*asked)[1]["leader"].state == "ok", "leader")
        until(lambda: "1 of 3" in doctor(*asked)[1]["reports"].found, "reports of the others")
        code, found = doctor(*asked, *grpc)
        assert code == 0
        for part in ("api server", "clocks", "rights", "leader", "scheduler", "scheduler gRPC"):
            assert found[part].state == "ok", found[part]
        assert found["reports"].found == "1 of 3 nodes have no recent report: silent (never)"
        code, found = doctor(*asked, "--aggregator", "127.0.0.1:1")
        assert code == 1
        assert found["aggregator gRPC"].found == "127.0.0.1:1: nothing listens there"
    code, found = doctor(*asked)
    assert code == 1
    assert found["api server"].state == found["scheduler"].state == "missing"


@pytest.mark.cluster
@needs_scale
def test_missing_rights_of_a_user_are_named(scale_cluster: Callable[[int], Cluster]) -> None:
    cluster = scale_cluster(5)
    code, found = doctor("--kubeconfig", str(cluster.kubeconfig))
    assert found["rights"].state == "ok"
    code, found = doctor("--kubeconfig", str(cluster.kubeconfig_of("nobody")))
    assert code == 1
    assert found["api server"].state == "ok"
    assert found["rights"].found.startswith("may not list pods, watch pods, list nodes, watch nodes and ")


def test_the_table_has_no_colours_in_a_pipe() -> None:
    done = subprocess.run([sys.executable, "-m", "carico.cli", "doctor"], capture_output=True, text=True, timeout=60)
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("PART ")


def needed(**settings: Any) -> list[Right]:
    return rights(enabled_parts.parts(SchedulerSettings(**settings)))


def test_the_rights_are_all_that_the_scheduler_uses() -> None:
    plain = {str(right) for right in needed()}
    assert {"get pods", "create pods/binding", "delete pods", "patch events.events.k8s.io"} <= plain
    assert "patch nodes" not in plain
    assert "patch nodes" in {str(right) for right in needed(extender_listen="127.0.0.1:9470")}


def test_a_scheduler_whose_pages_are_open_to_the_network_needs_the_rights_to_review_callers() -> None:
    reviews = {"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"}
    plain = {str(right) for right in needed()}
    beyond = {str(right) for right in needed(debug_listen="0.0.0.0:9469")}
    assert beyond - plain == reviews


def test_the_doctor_reads_what_the_scheduler_listens_on_where_the_scheduler_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "carico.toml").write_text('[scheduler]\ndebug_listen = "0.0.0.0:1"\nextender_listen = "127.0.0.1:2"\n')
    monkeypatch.setenv("CARICO_SCHEDULER__EXTENDER_LISTEN", "127.0.0.1:3")
    parser = CommandParser(prog="carico doctor")
    command.add_arguments(parser)
    args = parser.parse_args(["--lease", "team/ours"])
    args.config = tmp_path / "carico.toml"
    found = command._scheduler(args)
    assert (found.debug_listen, found.extender_listen) == ("0.0.0.0:1", "127.0.0.1:3")
    assert (found.leader_elect_resource_namespace, found.leader_elect_resource_name) == ("team", "ours")
    args.debug_listen = "127.0.0.1:4"
    assert command._scheduler(args).debug_listen == "127.0.0.1:4"
