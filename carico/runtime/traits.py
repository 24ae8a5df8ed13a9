"""What a runtime's words about a sandbox come to: the pod and its class."""

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


def specified_image(asked: str, image: str) -> str:
    """The image as the pod asks for it; empty where only its identity is known.

    >>> specified_image("nginx:1.27", "sha256:…"), specified_image("", "nginx:1.27"), specified_image("", "f" * 64)
    ('nginx:1.27', 'nginx:1.27', '')
    """
    return asked or ("" if IMAGE_ID.match(image) else image)


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def texts(value: Any) -> dict[str, str]:
    """A mapping of texts to texts out of somebody's JSON."""
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}


def part(whole: Any, *keys: str) -> dict[str, Any]:
    """The mapping at the end of the keys; {} where there is none."""
    for key in keys:
        whole = whole.get(key) if isinstance(whole, dict) else None
    return whole if isinstance(whole, dict) else {}
