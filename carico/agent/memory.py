"""What the agent learned, kept in a file, so that a restart does not forget what a pod costs.

The file is replaced whole: a crash at any line leaves the old one or the new one. A file that cannot be used is named
and left out, because a node that starts fresh is right again within a minute and one that starts poisoned is not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from carico.settings import AUTO

log = logging.getLogger(__name__)

FORMAT = 1
FOLDER = Path("/var/lib/carico")
NAME = "agent.json"


def place(chosen: Path | None, environ: Mapping[str, str], folder: Path = FOLDER) -> Path | None:
    """The file that the setting means; None, with a line in the log, where there is no folder that can be written.

    A folder is never made: whoever installs the agent makes it (a volume, or systemd's StateDirectory), and an agent
    that somebody tries out leaves nothing behind.
    """
    if chosen != AUTO:
        return chosen
    folder = Path(environ.get("STATE_DIRECTORY", "").split(":")[0] or folder)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return folder / NAME
    log.info("no folder %s that can be written: what is learned is forgotten at a restart", folder)
    return None


class Rememberer(Protocol):
    """What has something to remember: the pipeline."""

    def save(self) -> dict[str, object]: ...
    def restore(self, state: Mapping[str, object]) -> None: ...


class Memory:
    """Keeps the state of `learner` in `path`; with no path it keeps nothing."""

    def __init__(self, path: Path | None, learner: Rememberer) -> None:
        self._path = path
        self._learner = learner
        self._failing = False

    def recall(self) -> bool:
        """Restores what the file holds; False when there was nothing to use."""
        if self._path is None:
            return False
        try:
            document = msgspec.json.decode(self._path.read_bytes())
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise ValueError(f"it is not of format {FORMAT}")
            if not isinstance(document.get("state"), dict):
                raise ValueError("it holds no state")
            self._learner.restore(document["state"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
            log.warning("%s cannot be used (%s); starting without memory", self._path, error)
            return False
        log.info("restored from %s", self._path)
        return True

    def keep(self) -> None:
        """Writes the file; a full disk costs the memory, never the agent."""
        if self._path is None:
            return
        # In a folder of many users, a name that can be guessed could be a link into root's files.
        fresh = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode({"format": FORMAT, "state": self._learner.save()}))
            os.replace(fresh, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            if not self._failing:
                log.warning(
                    "%s cannot be written (%s); a restart will start without memory", self._path, error.strerror
                )
            self._failing = True
        else:
            self._failing = False
