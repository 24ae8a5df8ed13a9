"""The agent and the scheduler give a pod the same class, whatever stands in it: one by what the kubelet told the
runtime, the other by the Pod object."""

from __future__ import annotations

import hashlib
import json
import string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from carico.pod_class import DEFAULT_IGNORED, class_of
from carico.runtime.api import containerd_containers_pb2 as containers_pb
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.containerd import CONTAINER_JSON, KIND, SANDBOX_JSON, sandbox_of
from carico.runtime.containerd import member_of as containerd_member_of
from carico.runtime.cri import member_of as cri_member_of
from carico.runtime.cri import sandbox_of as cri_sandbox_of
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings
from carico.types import ClassKey

Pod = dict[str, Any]

word = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=12)
label_keys = st.sampled_from(
    [
        *("app", "app.kubernetes.io/name", "app.kubernetes.io/component", "pod-template-hash", "controller-uid"),
        *("job-name", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index", "role", "tier"),
        *("controller-revision-hash", "apps.kubernetes.io/pod-index", "spark-role", "spark-exec-id", "version"),
        *("workflows.argoproj.io/workflow", "statefulset.kubernetes.io/pod-name", "team"),
    ]
)
pods = st.fixed_dictionaries(
    {
        "namespace": word,
        "name": word,
        "uid": word,
        "labels": st.dictionaries(label_keys, word, max_size=4),
        "annotations": st.dictionaries(
            st.sampled_from(["carico.dev/cost-class", "workflows.argoproj.io/node-name", "note"]), word, max_size=2
        ),
        "images": st.lists(
            st.sampled_from(["busybox", "nginx:1.27", "r.example:5000/a/b@sha256:12"]) | word, min_size=1, max_size=3
        ),
        "zone": st.booleans(),
    }
)


def by_the_scheduler(pod: Pod) -> ClassKey:
    return class_of(pod["namespace"], pod["name"], pod["labels"], pod["annotations"], pod["images"])


def sandbox_config(pod: Pod) -> Pod:
    """As the kubelet makes it: newPodLabels and newPodAnnotations; the zone came with the binding."""
    own = {f"io.kubernetes.pod.{key}": pod[key] for key in ("name", "namespace", "uid")}
    zone = {"topology.kubernetes.io/zone": "z"} if pod["zone"] else {}
    return {
        "metadata": {key: pod[key] for key in ("name", "namespace", "uid")},
        "labels": pod["labels"] | own | zone,
        "annotations": pod["annotations"] | {"kubernetes.io/config.source": "api", "kubernetes.io/config.seen": "now"},
    }


def resolved(image: str) -> str:
    """The image in the kubelet's request to the runtime: it has resolved the name."""
    return f"sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def by_containerd(pod: Pod) -> ClassKey | None:
    table = PodTable(RuntimeSettings())
    config = sandbox_config(pod)
    box = containers_pb.Container(id="box", labels=config["labels"] | {KIND: "sandbox", "of.the.pause": "image"})
    stored = {"Version": "v1", "Metadata": {"Config": config}}
    box.extensions[SANDBOX_JSON].value = json.dumps(stored).encode()
    table.add_sandbox("box", sandbox_of(box, config, DEFAULT_IGNORED))
    table.started("box", 0.0)
    for number, image in enumerate(pod["images"]):
        container = containers_pb.Container(id=str(number), labels={KIND: "container", "app": "of-the-image"})
        asked = {"image": {"image": resolved(image), "user_specified_image": image}}
        stored = {"Version": "v1", "Metadata": {"SandboxID": "box", "Config": asked}}
        container.extensions[CONTAINER_JSON].value = json.dumps(stored).encode()
        member = containerd_member_of(container)
        assert member is not None
        table.add_container(container.id, *member)
    return table.workload()[pod["uid"]].key


def by_cri(pod: Pod) -> ClassKey | None:
    table = PodTable(RuntimeSettings())
    config = sandbox_config(pod)
    metadata = cri_pb.PodSandboxMetadata(**config["metadata"])
    box = cri_pb.PodSandbox(id="box", metadata=metadata, labels=config["labels"], annotations=config["annotations"])
    table.add_sandbox("box", cri_sandbox_of(box, DEFAULT_IGNORED, None))
    table.started("box", 0.0)
    for number, image in enumerate(pod["images"]):
        spec = cri_pb.ImageSpec(image=resolved(image), user_specified_image=image)
        container = cri_pb.Container(id=str(number), pod_sandbox_id="box", image=spec)
        table.add_container(container.id, *cri_member_of(container))
    return table.workload()[pod["uid"]].key


@given(pod=pods)
def test_agent_and_scheduler_agree(pod: Pod) -> None:
    assert by_the_scheduler(pod) == by_containerd(pod) == by_cri(pod)
