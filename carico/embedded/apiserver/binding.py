"""The binding of a pod to a node: once, and permanently."""

from __future__ import annotations

from typing import Any

from carico.embedded.apiserver.history import ObjectRecord, Plain
from carico.embedded.apiserver.kinds import PODS
from carico.embedded.apiserver.metadata import timestamp
from carico.embedded.apiserver.status_error import StatusError, bad_request, conflict
from carico.embedded.apiserver.store import ApiStore, Key


def check(key: Key, binding: Any) -> None:
    """Validate a Binding, independently of its pod."""
    if not isinstance(binding, dict):
        raise bad_request("a Binding is an object")
    if (binding.get("metadata") or {}).get("name", key[1]) != key[1]:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target")
    if not isinstance(target, dict) or not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")  # kube-apiserver's own code for it
    if target.get("kind", "Node") not in ("", "Node"):
        message = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise StatusError(500, "", message)


def bind(store: ApiStore, record: ObjectRecord, binding: Plain, wall: float, dry: bool) -> None:
    """Apply a checked Binding to the pod, or raise why it cannot be applied."""
    meta, spec = record.plain["metadata"], record.plain["spec"]
    wish = binding.get("metadata") or {}
    _check_pod(meta, spec, wish.get("uid"))
    since = timestamp(wall)
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
    others = [one for one in record.plain["status"].get("conditions") or [] if one.get("type") != "PodScheduled"]
    status = record.plain["status"] | {"conditions": [*others, condition]}
    meta = dict(meta)
    if noted := wish.get("annotations"):
        meta["annotations"] = (meta.get("annotations") or {}) | noted
    if not dry:
        bound = {"spec": spec | {"nodeName": binding["target"]["name"]}, "status": status, "metadata": meta}
        store.put(PODS, record.plain | bound)


def _check_pod(meta: Plain, spec: Plain, uid: str | None) -> None:
    name = meta["name"]
    if uid and uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise conflict(PODS, name, why)
    if "deletionTimestamp" in meta:
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", "binding")
    if node := spec.get("nodeName"):
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{node}"', "binding")
    if spec.get("schedulingGates"):
        raise conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates", "binding")
