"""ImageLocality: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

import msgspec

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def test_images_that_are_there_already() -> None:
    megabyte = 1024 * 1024
    have = make_node("have")
    image = {"names": ["example.com/work:1"], "sizeBytes": 1000 * megabyte}
    plain = msgspec.to_builtins(have)
    plain["status"]["images"] = [image]
    world = World([msgspec.convert(plain, type(have)), make_node("lack")])
    # half of the nodes have it: 500 MB of at most 1000 MB, above the threshold of 23 MB
    expected = round(100 * (500 - 23) / (1000 - 23), 1)
    assert world.scores(make_pod("p"), "ImageLocality") == {"have": expected, "lack": 0}
    world.snapshot.set_node(have)  # the kubelet has cleaned up
    assert world.scores(make_pod("p"), "ImageLocality") == {}
