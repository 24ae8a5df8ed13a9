"""The command of a job, and what happens between fork and exec."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from typing import NamedTuple, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ERROR_LIMIT = 4096  # bytes of the text that describes why exec failed
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_libc = ctypes.CDLL(None, use_errno=True)


class LaunchCommand(NamedTuple):
    """A process to start. Output is appended to files; an empty name is /dev/null."""

    argv: list[str]
    environment: dict[str, str]
    folder: str = "/"
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""  # the same name as stdout: one file, in the order of writing
    group: bool = False  # a control group also where limits are set, if one can be created
    cpu: float | None = None  # cores
    memory: int | None = None  # bytes
    blame: int = 0  # oom_score_adj: up to 1000; a higher value is killed first when memory runs out


def become_subreaper() -> None:
    """Make orphaned descendants children of this process (prctl(2))."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(command: LaunchCommand, join: list[str], address_space: int | None) -> int:
    """Fork and exec; returns the process number once the program has started, or raises OSError with the reason.

    `join` are `cgroup.procs` files of control groups. `address_space` limits memory if no group can.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, join, address_space, parent, writing)
    os.close(writing)
    try:
        problem = os.read(reading, ERROR_LIMIT)  # end-of-file means that exec closed the other end
    finally:
        os.close(reading)
    if problem:
        os.waitpid(pid, 0)
        number, _, what = problem.decode(errors="replace").partition(" ")
        raise OSError(int(number), f"{what}: {os.strerror(int(number))}")
    return pid


def _become(command: LaunchCommand, join: list[str], address_space: int | None, parent: int, report: int) -> NoReturn:
    """In the child: never returns, and never raises into code of the job supervisor."""
    doing = command.argv[0]
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the job supervisor died before PDEATHSIG was set
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        for doing in join:
            _write(doing, "0")
        if command.blame:
            _write("/proc/self/oom_score_adj", str(command.blame))
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        _connect(command)
        doing = command.folder
        os.chdir(doing)
        doing = command.argv[0]
        os.execvpe(doing, command.argv, command.environment)
    except OSError as error:
        os.write(report, f"{error.errno or errno.EINVAL} {doing}".encode()[:ERROR_LIMIT])
    except BaseException:
        os.write(report, f"{errno.EINVAL} {doing}".encode()[:ERROR_LIMIT])
    os._exit(127)


def _connect(command: LaunchCommand) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(command.stdin or os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(command.stdout or os.devnull, flags, 0o640), 1)
    if command.stderr == command.stdout:
        os.dup2(1, 2)
    else:
        os.dup2(os.open(command.stderr or os.devnull, flags, 0o640), 2)


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    os.write(file, text.encode())
    os.close(file)
