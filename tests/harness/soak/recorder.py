"""The history while it is written: complete for the checks at the end, and as the current state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.soak.history import Event, State


class Recorder:
    def __init__(self) -> None:
        self.history: list[Event] = []
        self.state = State()
        self.listeners: list[Callable[[Event], None]] = []

    def note(self, event: Event) -> None:
        self.history.append(event)
        self.state.apply(event)
        for listener in self.listeners:
            listener(event)

    def save(self, file: Path) -> None:
        """One event per line, for analysis."""
        with file.open("wb") as out:
            for event in self.history:
                out.write(msgspec.json.encode(event) + b"\n")
