"""Detects from the counters of a pod that its processes have ended, before the runtime reports it.

On a busy node that report comes seconds late. What the counters show until then would be taken for the demand of the
pod: a change to nothing, which lowers the cost of its class.

A process that ends frees its memory and uses no cpu after that. One that only frees memory has to run to do so, and
goes on using cpu, however little.
"""

from __future__ import annotations

from carico.types import PodCounters

GONE_SHARE = 0.25  # of the working set of the reading before, below which a pod may have ended
ALIVE = 0.001  # cores; less than that after it means that it has


class EndDetector:
    """The readings of one pod.

    >>> running = PodCounters(5.0, None, 0.0, memory_working_set=8e6, swap=0, memory_limit=None, cpu_limit_cores=None)
    >>> gone = running._replace(usage_seconds=5.4, memory_working_set=4e5)
    >>> pod = EndDetector()
    >>> pod.leaves_out(running, running, 1.0), pod.leaves_out(running, gone, 1.0), pod.ended
    (False, True, False)
    >>> pod.leaves_out(gone, gone, 1.0), pod.ended
    (True, True)
    """

    __slots__ = ("_doubted", "_held", "ended")

    def __init__(self) -> None:
        self._doubted = False  # its memory is gone
        self._held = 0.0  # working set of the last reading
        self.ended = False

    def leaves_out(self, before: PodCounters, after: PodCounters, seconds: float) -> bool:
        """Whether `after`, read this many s after `before`, is not a reading of a running pod. Updates `ended`."""
        if self._doubted:
            self._doubted = self.ended = after.usage_seconds - before.usage_seconds < ALIVE * seconds
        else:
            self._doubted = after.memory_working_set < GONE_SHARE * self._held
        self._held = after.memory_working_set
        return self._doubted
