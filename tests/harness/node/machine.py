"""A machine out of tests/fixtures: its /proc and cgroup tree at two instants, in files that change under the reader."""

from __future__ import annotations

import shutil
from pathlib import Path

from carico.settings import TelemetrySettings

FIXTURES = Path(__file__).parents[2] / "fixtures"


class Machine:
    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self._kind = FIXTURES / kind
        self.at("before")

    def at(self, instant: str) -> None:
        """Writes an instant's texts into the same files, as a kernel would."""
        for file in (self._kind / instant).rglob("*"):
            if file.is_file():
                self.write(str(file.relative_to(self._kind / instant)), file.read_bytes())

    def write(self, name: str, text: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)

    def remove(self, name: str) -> None:
        path = self.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def settings(self, **others: object) -> TelemetrySettings:
        roots = {"proc_root": self.folder / "proc", "cgroup_root": self.folder / "sys/fs/cgroup"}
        return TelemetrySettings(**roots, **others)  # type: ignore[arg-type]
