"""Records what a command shows on a terminal: tools/record.py FILE.cast COMMAND [WORD …]

FILE.cast is in asciinema's format, version 2: `asciinema play FILE.cast` shows it again at its own pace. The command
runs on a terminal of its own, of the same size everywhere, so that two recordings can be compared.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path

COLUMNS, LINES = 100, 36


def record(file: Path, command: list[str]) -> int:
    """Run the command and record its output, which is also shown here; returns its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:  # the size is set in the child, before the command can read it
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.execvpe(command[0], command, os.environ | {"TERM": "xterm-256color"})
    began = time.monotonic()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with file.open("w") as out:
        header = {"version": 2, "width": COLUMNS, "height": LINES, "title": " ".join(command)}
        out.write(json.dumps(header) + "\n")
        while data := _read(terminal):
            text = decoder.decode(data)
            out.write(json.dumps([round(time.monotonic() - began, 3), "o", text], ensure_ascii=False) + "\n")
            sys.stdout.write(text)
            sys.stdout.flush()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the command has ended, which closes its terminal
        return b""


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    return record(Path(argv[0]), argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
