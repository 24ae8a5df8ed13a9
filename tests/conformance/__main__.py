"""Any number of pods, from any seed: `PYTHONPATH=tests python -m conformance --pods 20000 --seed 1`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from . import compare
from .plane import Plane
from .world import make


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods-per-world", type=int, default=100)
    args = parser.parse_args()
    began, seed, total = time.monotonic(), args.seed, compare.Result()
    with Plane() as plane:
        compare.prepare(plane.api)
        while total.pods < args.pods:
            world = make(seed, args.pods_per_world)
            compare.write(plane.api, world)
            result = compare.run(plane, world, world.waiting)
            compare.erase(plane.api, world)
            total.add(result)
            for difference in result.differences:
                print(json.dumps({"seed": seed, **difference.__dict__}, default=sorted), flush=True)
            rate = total.pods / (time.monotonic() - began)
            line = f"seed {seed}: {total.pods} pods, {len(total.differences)} differences, {rate:.0f} pods/s"
            print(line, file=sys.stderr, flush=True)
            seed += 1
    print(f"{total.pods} pods in {seed - args.seed} clusters, seeds {args.seed} to {seed - 1}")
    print(f"{len(total.differences)} differences; {total.feasible_somewhere} pods fit somewhere")
    print("decisive: " + ", ".join(f"{name} {count}" for name, count in total.decisive.most_common()))
    print("invalid: " + "; ".join(f"{count} {text}" for text, count in total.invalid.most_common()))
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main())
