"""The pod and its class from a runtime's fields of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from carico.pod_class import IMAGE_ID, class_of, needs_images
from carico.runtime.pods import Sandbox, is_workload


def sandbox_from(
    *,
    uid: str,
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    cgroup: str | None,
    ignored: tuple[str, ...],
) -> Sandbox:
    bare = needs_images(labels, annotations, ignored)
    key = None if bare else class_of(namespace, name, labels, annotations, (), ignored)
    return Sandbox(uid, is_workload(labels, annotations), namespace, key, cgroup)


def specified_image(specified: str, image: str) -> str:
    """The image as in the pod's specification; empty where only its id is known.

    >>> specified_image("nginx:1.27", "sha256:…"), specified_image("", "nginx:1.27"), specified_image("", "f" * 64)
    ('nginx:1.27', 'nginx:1.27', '')
    """
    return specified or ("" if IMAGE_ID.match(image) else image)


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def texts(value: Any) -> dict[str, str]:
    """The string values of a mapping in decoded JSON."""
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}


def part(whole: Any, *keys: str) -> dict[str, Any]:
    """The nested mapping at the path `keys`; {} where there is none."""
    for key in keys:
        whole = whole.get(key) if isinstance(whole, dict) else None
    return whole if isinstance(whole, dict) else {}
