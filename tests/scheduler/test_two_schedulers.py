"""Two schedulers in one process share nothing: not what they cache about pods that are alike, and no settings."""

from __future__ import annotations

from carico.testing import make_pod
from harness.scheduler.offline import World

LABELS = {"app": "web", "shard": "7"}


def test_settings_of_one_do_not_determine_the_classes_of_the_other() -> None:
    ignoring, other = World({"a": 4.0}, class_ignored_labels=("shard",)), World({"a": 4.0})
    families = [
        world.parts.classes.claim(world.parts.snapshot.templates.info(make_pod("p", labels=LABELS))).key.family
        for world in (ignoring, other)
    ]
    assert families[0] != families[1]


def test_pods_that_are_alike_share_a_template_within_one_scheduler_only() -> None:
    one, two = World({"a": 4.0}).parts.snapshot.templates, World({"a": 4.0}).parts.snapshot.templates
    assert one.info(make_pod("p")).template is one.info(make_pod("q")).template
    assert one.info(make_pod("p")).template is not two.info(make_pod("p")).template
    assert one.info(make_pod("p")).identity is not two.info(make_pod("p")).identity


def test_both_schedule_the_same_pods_on_clusters_of_their_own() -> None:
    small, large = World({"a": 1.0}), World({"a": 4.0, "b": 4.0})
    for world in (small, large):
        for number in range(3):
            world.see(make_pod(f"p{number}"))
    assert (len(small.drain()), len(large.drain())) == (1, 3)
    assert small.queue.counts()["waiting"] == 2
