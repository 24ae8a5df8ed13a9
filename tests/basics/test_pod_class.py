"""Which pods are one class, with the labels that real controllers write."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.pod_class import DEFAULT_IGNORED, class_of, class_of_images, needs_images
from carico.types import ClassKey

Labels = dict[str, str]


def family(
    labels: Labels, *, namespace: str = "team-a", images: tuple[str, ...] = ("nginx:1",), **annotations: str
) -> str:
    return class_of(namespace, "some-pod", labels, annotations, images).family


def deployment(template: str, **labels: str) -> Labels:
    return {"pod-template-hash": template, **labels}


def stateful_set(name: str, index: int, revision: str) -> Labels:
    return {
        "app": name,
        "apps.kubernetes.io/pod-index": str(index),
        "controller-revision-hash": revision,
        "statefulset.kubernetes.io/pod-name": f"{name}-{index}",
    }


def job(name: str, uid: str = "1f3a", index: int | None = None, **labels: str) -> Labels:
    own = {"job-name": name, "controller-uid": uid}
    own |= {f"batch.kubernetes.io/{key}": value for key, value in own.items()}
    return own | labels | ({} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)})


def test_pods_of_a_deployment_are_a_family_and_each_rollout_a_revision() -> None:
    old = class_of("team-a", "web-5d-abcde", deployment("5d", app="web"), {}, ["web:1"])
    new = class_of("team-a", "web-7f-fghjk", deployment("7f", app="web"), {}, ["web:2"])
    assert old == ClassKey("team-a", "team-a/web", "5d")
    assert new == ClassKey("team-a", "team-a/web", "7f")


def test_the_pods_of_a_stateful_set_are_one_class() -> None:
    keys = {class_of("team-a", f"db-{i}", stateful_set("db", i, "db-6c"), {}, ["db"]) for i in range(3)}
    assert keys == {ClassKey("team-a", "team-a/db", "db-6c")}


def test_two_jobs_are_two_families_and_the_pods_of_one_are_one() -> None:
    assert family(job("import")) == "team-a/job:import"
    assert family(job("export")) == "team-a/job:export"
    assert len({family(job("shards", index=index)) for index in range(5)}) == 1


def test_two_runs_of_a_cron_job_are_one_family() -> None:
    runs = [
        class_of("team-a", f"sum-{minute}-x", job(f"sum-{minute}", uid=str(minute)), {}, ["sum"])
        for minute in (29384760, 29384820)
    ]
    assert runs[0] == runs[1] == ClassKey("team-a", "team-a/job:sum", "")


def test_jobs_whose_names_were_generated_are_one_family() -> None:
    assert family(job("render-x7k2p")) == family(job("render-bcdf9")) == "team-a/job:render"


def test_jobs_whose_labels_name_an_application_are_one_family_with_a_revision_for_each() -> None:
    one = class_of("team-a", "a", job("load-29384760", app="etl"), {}, ["etl"])
    again = class_of("team-a", "b", job("load-29384820", app="etl"), {}, ["etl"])
    other = class_of("team-a", "c", job("clean-29384760", app="etl"), {}, ["etl"])
    assert one == again == ClassKey("team-a", "team-a/etl", "load")
    assert other == ClassKey("team-a", "team-a/etl", "clean")


def test_jobs_with_labels_that_name_nothing_stay_two_families() -> None:
    assert family(job("import", stage="prod")) != family(job("export", stage="prod"))
    assert family(job("import", stage="prod")).startswith("team-a/job:import~")


def test_bare_pods_are_distinguished_by_their_images() -> None:
    one = class_of("team-a", "try-1", {}, {}, ["docker.io/library/busybox:1.36"])
    two = class_of("team-a", "try-2", {}, {}, ["busybox:1.36"])
    newer = class_of("team-a", "try-3", {}, {}, ["busybox:1.37"])
    assert one == two
    assert one.family == newer.family == "team-a/image:busybox"
    assert one.revision != newer.revision
    assert family({}, images=("r.example:5000/x/tool:2",)) != family({}, images=("tool:2",))
    assert family({}, images=("a", "b")) == family({}, images=("b", "a", "a"))


def test_spark_executors_of_two_runs_are_one_family_and_their_driver_another() -> None:
    def spark(role: str, run: str, executor: str) -> Labels:
        own = {"spark-role": role, "spark-app-name": "pagerank", "spark-app-selector": f"spark-{run}"}
        return own | {"spark-exec-id": executor, "spark-version": "3.5.1", "spark-exec-resourceprofile-id": "0"}

    executors = {family(spark("executor", run, executor)) for run in "ab" for executor in "123"}
    assert len(executors) == 1
    assert executors.pop().startswith("team-a/pagerank.executor~")
    assert family(spark("driver", "a", "")).startswith("team-a/pagerank.driver~")


def test_the_steps_of_an_argo_workflow_are_families_and_its_runs_are_not() -> None:
    def argo(run: str, step: str) -> str:
        labels = {"workflows.argoproj.io/workflow": f"build-{run}", "workflows.argoproj.io/completed": "false"}
        return class_of("ci", "p", labels, {"workflows.argoproj.io/node-name": f"build-{run}{step}"}, ["x"]).family

    assert argo("x7k2p", "[0].compile") == argo("bcdf9", "[2].compile(1)") == argo("zzzzz", "[0].compile(0:linux)")
    assert argo("x7k2p", "[0].compile") != argo("x7k2p", "[1].test")
    assert argo("x7k2p", "[0].compile").startswith("ci/build.compile~")
    assert argo("x7k2p", "") == "ci/build"


def test_an_annotation_overrules_everything_within_its_namespace() -> None:
    chosen = {"carico.dev/cost-class": "heavy"}
    by_labels = class_of("team-a", "p", deployment("5d", app="web"), chosen, ["web"])
    assert by_labels == class_of("team-a", "q", job("sum"), chosen, ["sum"]) == ClassKey("team-a", "team-a/heavy", "")
    assert class_of("team-b", "p", {}, chosen, []).family == "team-b/heavy"


def test_charts_and_versions_change_nothing() -> None:
    chart = {"helm.sh/chart": "web-1.2.3", "app.kubernetes.io/version": "1.2.3", "app.kubernetes.io/managed-by": "Helm"}
    assert family({"app.kubernetes.io/name": "web", **chart}) == "team-a/web"


def test_a_hash_follows_where_labels_say_more_than_the_name() -> None:
    blue, green = (family({"app": "web", "colour": colour}) for colour in ("blue", "green"))
    assert re.fullmatch(r"team-a/web~[0-9a-f]{8}", blue)
    assert blue != green
    assert family({"app": "web", "app.kubernetes.io/instance": "web"}) == "team-a/web"
    assert family({"app.kubernetes.io/name": "pg", "app.kubernetes.io/component": "primary"}).startswith(
        "team-a/pg.primary~"
    )


def test_labels_without_a_name_are_shown_by_their_values() -> None:
    assert re.fullmatch(r"team-a/gold\.batch~[0-9a-f]{8}", family({"pool": "gold", "queue": "batch"}))


def test_what_the_kubelet_and_the_binding_add_changes_nothing() -> None:
    """The kubelet writes who the pod is into its sandbox; the API server copies the node's zone to the pod that it
    binds, after the scheduler has decided."""
    added = {
        "io.kubernetes.pod.name": "web-1",
        "io.kubernetes.pod.namespace": "team-a",
        "io.kubernetes.pod.uid": "1",
        "topology.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r1",
    }
    assert family({"app": "web"} | added) == "team-a/web"
    assert family(added) == "team-a/image:nginx"


def test_a_list_of_ones_own_replaces_the_default_or_adds_to_it() -> None:
    labels = {"app": "web", "ticket": "4711", "version": "1"}
    assert class_of("n", "p", labels, {}, []).family != "n/web"
    assert class_of("n", "p", labels, {}, [], ("default", "ticket")).family == "n/web"
    assert class_of("n", "p", labels, {}, [], ("tick*",)).family != "n/web"
    assert class_of("n", "p", labels, {}, [], ("tick*", "version")).family == "n/web"


@pytest.mark.parametrize("image", ["", "sha256:" + "a" * 64, "b" * 64])
def test_an_image_known_by_its_digest_alone_gives_no_class(image: str) -> None:
    assert class_of_images("n", [image]) is None


keys = st.sampled_from(
    ["app", "name", "pod-template-hash", "job-name", "stage", "role", "workflows.argoproj.io/workflow"]
)
wild = st.text(max_size=80) | st.text(string.printable, max_size=200)
pods: Any = st.fixed_dictionaries(
    {
        "namespace": wild,
        "name": wild,
        "labels": st.dictionaries(keys | wild, wild, max_size=8),
        "annotations": st.dictionaries(
            st.sampled_from(["carico.dev/cost-class", "workflows.argoproj.io/node-name"]) | wild, wild, max_size=3
        ),
        "images": st.lists(wild, max_size=4),
    }
)


@given(pod=pods)
def test_whatever_is_in_the_labels_a_class_is_short_and_plain(pod: dict[str, Any]) -> None:
    key = class_of(**pod)
    assert re.fullmatch(r"[A-Za-z0-9._-]{0,63}", key.namespace)
    assert re.fullmatch(r"[A-Za-z0-9._-]{0,63}/(job:|image:|pod:)?[A-Za-z0-9._-]{0,63}(~[0-9a-f]{8})?", key.family)
    assert re.fullmatch(r"[A-Za-z0-9._-]{0,63}(~[0-9a-f]{8})?", key.revision)
    assert key == class_of(**{**pod, "images": reversed(pod["images"])})


@given(pod=pods)
def test_where_images_are_not_needed_they_make_no_difference(pod: dict[str, Any]) -> None:
    if not needs_images(pod["labels"], pod["annotations"], DEFAULT_IGNORED):
        assert class_of(**pod) == class_of(**{**pod, "images": []})
