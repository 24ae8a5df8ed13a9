"""A peer that disappears without closing its connection, as after a power failure, and clients that notice it soon."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct

import pytest

from carico.kube import socket as sockets

needs_linux = pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a filter and options of Linux")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEEPALIVE_AFTER", "KEEPALIVE_EVERY", "RECEIPT_WITHIN"):
        monkeypatch.setattr(sockets, name, 1)


def deafen(writer: asyncio.StreamWriter) -> None:
    """Make the kernel drop everything that arrives for this socket, including ACKs and probes, as if it were gone."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0
    program = Filter(1, ctypes.cast(drop, ctypes.c_void_p))
    attach_filter = 26
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, attach_filter, bytes(program))
