"""What a pod occupies, worked out by hand."""

from __future__ import annotations

from typing import Any

from carico.scheduler.cache import requests
from carico.scheduler.cache.template import PodTemplates
from carico.testing import make_pod


def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def cpu(spec: Any, **status: Any) -> int:
    return requests.of_pod(make_pod("p", spec=spec, status=status), running=bool(status))["cpu"]


def test_containers_run_together() -> None:
    assert cpu({"containers": [container("a", "1"), container("b", "250m")]}) == 1250


def test_init_containers_run_before_and_alone() -> None:
    spec = {"containers": [container("a", "1")], "initContainers": [container("i", "3"), container("j", "2")]}
    assert cpu(spec) == 3000


def test_sidecars_run_beside_what_comes_after_them() -> None:
    sidecar = container("s", "1", restartPolicy="Always")
    later = {"containers": [container("a", "1")], "initContainers": [sidecar, container("i", "3")]}
    assert cpu(later) == 4000  # the sidecar and i
    earlier = {"containers": [container("a", "1")], "initContainers": [container("i", "3"), sidecar]}
    assert cpu(earlier) == 3000  # i alone, before the sidecar
    both = {"containers": [container("a", "3")], "initContainers": [sidecar, container("i", "1")]}
    assert cpu(both) == 4000  # the sidecar and a


def test_sums_are_rounded_once() -> None:
    # 1.5 m each: 3 m together, not 2 m + 2 m
    assert cpu({"containers": [container("a", "1500u"), container("b", "1500u")]}) == 3


def test_the_pod_as_a_whole_and_its_overhead() -> None:
    whole = {"requests": {"cpu": "5"}}
    assert cpu({"containers": [container("a", "1")], "resources": whole, "overhead": {"cpu": "100m"}}) == 5100


def resized(wanted: str, granted: str, actual: str, **status: Any) -> int:
    state = {"name": "a", "resources": {"requests": {"cpu": actual}}, "allocatedResources": {"cpu": granted}}
    return cpu({"containers": [container("a", wanted)]}, containerStatuses=[state], **status)


def test_a_resize_occupies_the_largest_of_three() -> None:
    assert resized("1", "2", "3") == 3000
    assert resized("3", "2", "1") == 3000
    infeasible = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert resized("3", "2", "1", conditions=infeasible) == 2000


def test_pods_of_a_job_are_one_template() -> None:
    def of_job(number: int, cpu: str = "1") -> Any:
        token = {"name": f"kube-api-access-{number}", "projected": {}}
        labels = {"batch.kubernetes.io/job-completion-index": str(number)}
        return make_pod(f"j-{number}", labels=labels, spec={"volumes": [token], "containers": [container("a", cpu)]})

    templates = PodTemplates()
    first, second = templates.info(of_job(1)), templates.info(of_job(2))
    assert first.template is second.template
    assert first.identity is not second.identity
    assert templates.template_of(of_job(3, cpu="2")) is not first.template
