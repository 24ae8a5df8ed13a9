"""The state file of the agent, so that learned costs survive a restart.

The file is replaced atomically: a crash at any point leaves the old one or the new one. A file that cannot be used is
logged and ignored: a node without state is accurate again within a minute, one with invalid state is not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from carico.estimate.stage import Stage
from carico.settings import AUTO

log = logging.getLogger(__name__)

FORMAT = 1
FOLDER = Path("/var/lib/carico")
NAME = "agent.json"


def place(chosen: Path | None, environ: Mapping[str, str], folder: Path = FOLDER) -> Path | None:
    """The file that the setting means; None, with a line in the log, where there is no writable folder.

    The folder is never created here: the installation creates it (a volume, or systemd's StateDirectory), and an agent
    that is started for a test leaves no files.
    """
    if chosen != AUTO:
        return chosen
    folder = Path(environ.get("STATE_DIRECTORY", "").split(":")[0] or folder)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return folder / NAME
    log.info("no folder %s that can be written: what is learned is forgotten at a restart", folder)
    return None


class Checkpoint:
    """Saves the state of `learner` in `path`; without a path it does nothing."""

    def __init__(self, path: Path | None, learner: Stage) -> None:
        self._path = path
        self._learner = learner
        self._failing = False

    def load(self) -> bool:
        """Restores the state from the file; False if there was no usable file."""
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
            log.warning("%s cannot be used (%s); starting without saved state", self._path, error)
            return False
        log.info("restored from %s", self._path)
        return True

    def save(self) -> None:
        """Writes the file; an error, such as a full disk, is logged and does not stop the agent."""
        if self._path is None:
            return
        # In a folder with several users, a predictable name could be a symlink to one of root's files.
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
                    "%s cannot be written (%s); a restart will start without saved state", self._path, error.strerror
                )
            self._failing = True
        else:
            self._failing = False
