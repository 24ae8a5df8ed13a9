"""Log lines on standard error: text or JSON, with times in RFC 3339; stack dumps of a process that hangs."""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
from datetime import UTC, datetime


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002
        return timestamp(record.created)


class JsonFormatter(logging.Formatter):
    """One object per line, so that the end of a message is unambiguous for a collector."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def timestamp(wall: float) -> str:
    """
    >>> timestamp(0.25)
    '1970-01-01T00:00:00.250Z'
    """
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def start(level: str = "info", form: str = "text") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def is_json() -> bool:
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def failed(why: str) -> None:
    """Why the command ends with an error: in JSON where the log is, for its collector, otherwise for a reader."""
    if is_json():
        logging.getLogger("carico").error(why)
        return
    for line in why.splitlines():
        print(f"carico: {line}", file=sys.stderr)


def dump_stacks_on_signal() -> None:
    """`kill -USR1` prints the stack of every thread to standard error; the process continues."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
