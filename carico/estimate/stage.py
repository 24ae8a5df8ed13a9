"""What all stages of the pipeline have in common: a state that survives a restart of the agent.

How a stage is fed differs with its subject (one sample, one second, one pod); how it is saved does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Stage(Protocol):
    def save(self) -> dict[str, object]:
        """The complete state, serialisable as JSON."""

    def restore(self, state: Mapping[str, object]) -> None:
        """Loads the state that `save` returned. Raises ValueError if it does not fit; the stage is then unusable."""
