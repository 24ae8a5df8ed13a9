"""The programs in the demo's pods. Run as a file, with Python alone:

programs.py pi DIGITS              π to this number of decimal places
programs.py memory MEGABYTES CPU   holds memory and writes all over it until CPU seconds are spent
programs.py serve PORT             an HTTP server whose every answer takes about a millisecond of work
"""

import hashlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GUARD_DIGITS = 10
MEGABYTE = 1 << 20
PAGE = 4096  # bytes
GROW = 16  # MB at a time: memory grows as in real programs, not all at once


def pi(digits: int) -> str:
    """By Machin's formula, π/4 = 4·arctan(1/5) − arctan(1/239), in integers.

    >>> pi(20)
    '3.14159265358979323846'
    """
    one = 10 ** (digits + GUARD_DIGITS)
    scaled = 4 * (4 * _arctan_of_inverse(5, one) - _arctan_of_inverse(239, one)) // 10**GUARD_DIGITS
    text = str_of(scaled)
    return f"{text[0]}.{text[1:]}"


def _arctan_of_inverse(x: int, one: int) -> int:
    power, total, divisor, sign = one // x, one // x, 1, 1
    square = x * x
    while power:
        power //= square
        divisor += 2
        sign = -sign
        total += sign * (power // divisor)
    return total


def str_of(number: int) -> str:
    """Without Python's limit on the length of numbers in text."""
    sys.set_int_max_str_digits(0)
    return str(number)


def fill(megabytes: int, cpu_seconds: float) -> None:
    held: list[bytearray] = []
    while len(held) * GROW < megabytes:
        held.append(bytearray(GROW * MEGABYTE))
    stamp = 0
    while time.process_time() < cpu_seconds:
        stamp = (stamp + 1) % 256
        for block in held:
            block[::PAGE] = bytes([stamp]) * (len(block) // PAGE)


class WebHandler(BaseHTTPRequestHandler):
    """Each response takes a millisecond of work, so that it needs a processor as real ones do."""

    def do_GET(self) -> None:
        digest = b""
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            digest = hashlib.sha256(digest).digest()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_: object) -> None:
        """Log nothing per request."""


def main(argv: list[str]) -> int:
    match argv:
        case ["pi", digits]:
            print("… " + pi(int(digits))[-20:])
        case ["memory", megabytes, cpu]:
            fill(int(megabytes), float(cpu))
        case ["serve", port]:
            ThreadingHTTPServer(("127.0.0.1", int(port)), WebHandler).serve_forever()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
