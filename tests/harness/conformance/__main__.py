"""Any number of pods, from any seed: `python -m harness.conformance --pods 20000 --seed 1`.

A long run must outlive a machine that stalls: a cluster whose API server or oracle gave no answer is created again from
its seed on a new control plane, and nothing of the broken try is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from carico.testing.random_cluster.cluster import make
from harness.cluster.errors import ClusterError

from . import compare
from .plane import Plane

TRIES = 5  # for one seed, before it is the comparison that is broken and not the machine


class Planes:
    """A control plane that can be thrown away for a new one."""

    def __init__(self) -> None:
        self._plane: Plane | None = None

    def compared(self, seed: int, pods: int) -> compare.Result:
        for attempt in range(1, TRIES + 1):
            try:
                return self._once(seed, pods)
            except (OSError, ClusterError) as error:
                self.stop()
                if attempt == TRIES:
                    raise
                print(f"seed {seed} is tried again: {error}", file=sys.stderr, flush=True)
        raise AssertionError("not reached")

    def _once(self, seed: int, pods: int) -> compare.Result:
        if self._plane is None:
            self._plane = Plane()
            compare.prepare(self._plane.api)
        world = make(seed, pods)
        compare.write(self._plane, world)
        result = compare.run(self._plane, world, world.waiting)
        compare.erase(self._plane.api, world)
        return result

    def stop(self) -> None:
        plane, self._plane = self._plane, None
        if plane is None:
            return
        try:
            plane.stop()
        except ClusterError:  # it ran out of patience, perhaps because this process was stopped meanwhile
            plane.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods-per-world", type=int, default=100)
    args = parser.parse_args()
    began, seed, total = time.monotonic(), args.seed, compare.Result()
    planes = Planes()
    try:
        while total.pods < args.pods:
            result = planes.compared(seed, args.pods_per_world)
            total.add(result)
            for difference in result.differences:
                print(json.dumps({"seed": seed, **difference.__dict__}, default=sorted), flush=True)
            rate = total.pods / (time.monotonic() - began)
            line = f"seed {seed}: {total.pods} pods, {len(total.differences)} differences, {rate:.0f} pods/s"
            print(line, file=sys.stderr, flush=True)
            seed += 1
    finally:
        planes.stop()
    print(f"{total.pods} pods in {seed - args.seed} clusters, seeds {args.seed} to {seed - 1}")
    print(f"{len(total.differences)} differences; {total.feasible_somewhere} pods fit somewhere")
    print("decisive: " + ", ".join(f"{name} {count}" for name, count in total.decisive.most_common()))
    print("invalid: " + "; ".join(f"{count} {text}" for text, count in total.invalid.most_common()))
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main())
