"""The pods/eviction subresource: deletes a pod if its PodDisruptionBudget allows it.

As kube-apiserver does (pkg/registry/core/pod/storage/eviction.go): the budget is checked and charged before the
preconditions, a pod that does not run needs no budget, and a pod with two budgets is answered
with 500. No controller updates budgets here: a new one allows nothing until a client writes its status.
"""

from __future__ import annotations

from typing import Any

import msgspec

from carico.embedded.apiserver.history import ObjectRecord, Plain
from carico.embedded.apiserver.kinds import DISRUPTION_BUDGETS, PODS
from carico.embedded.apiserver.metadata import timestamp
from carico.embedded.apiserver.status_error import StatusError, bad_request, forbidden
from carico.embedded.apiserver.store import Key
from carico.embedded.apiserver.verbs import ApiVerbs, DeleteOptions
from carico.kube.objects import PodDisruptionBudget
from carico.kube.selectors import from_selector

_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_SOON = 10  # s after which a client should retry while a budget is not processed yet
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def check(key: Key, body: Any) -> Plain:
    """The delete options of an Eviction, which is validated independently of its pod."""
    if not isinstance(body, dict):
        raise bad_request("an Eviction is an object")
    if (body.get("metadata") or {}).get("name") != key[1]:
        raise bad_request("name in URL does not match name in Eviction object")
    options = body.get("deleteOptions") or {}
    if not isinstance(options, dict):
        raise bad_request("DeleteOptions are an object")
    return options


def evict(verbs: ApiVerbs, key: Key, options: DeleteOptions, wall: float) -> None:
    record = verbs.read(PODS, key)
    if not _needs_no_budget(record.plain):
        budgets = _budgets(verbs, record)
        if len(budgets) > 1:
            raise StatusError(500, "", _TWO_BUDGETS)
        for budget in budgets:
            if not _is_spared(record.plain, budget.plain):
                _charge(verbs, budget, key[1], wall, options.dry)
    if not options.dry:
        _check_preconditions(record, options)
        verbs.store.put(PODS, _with_condition(record.plain, wall))
    verbs.delete(PODS, key, options._replace(version="") if not options.dry else options)


def _needs_no_budget(pod: Plain) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budgets(verbs: ApiVerbs, record: ObjectRecord) -> list[ObjectRecord]:
    labels = record.plain["metadata"].get("labels") or {}
    found = verbs.found(DISRUPTION_BUDGETS, record.plain["metadata"]["namespace"], None)
    return [
        one
        for one in found
        if from_selector(msgspec.convert(one.plain, PodDisruptionBudget).spec.selector).matches(labels)
    ]


def _is_spared(pod: Plain, budget: Plain) -> bool:
    """Whether the eviction is not charged to the budget: the pod is not ready, and the budget holds without it."""
    conditions = pod["status"].get("conditions") or []
    if any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
        return False
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    always: bool = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or healthy >= desired > 0


def _charge(verbs: ApiVerbs, budget: ObjectRecord, pod: str, wall: float, dry: bool) -> None:
    status, name = budget.plain.get("status") or {}, budget.plain["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget.plain["metadata"].get("generation", 0):
        raise _violated(f"The disruption budget {name} is still being processed by the server.", _SOON)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden(DISRUPTION_BUDGETS, name, "pdb disruptions allowed is negative")
    if allowed == 0:
        raise _violated(_why_not(name, status))
    if not dry:
        disrupted = (status.get("disruptedPods") or {}) | {pod: timestamp(wall)}
        changed = status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
        verbs.store.put(DISRUPTION_BUDGETS, budget.plain | {"status": changed})


def _why_not(name: str, status: Plain) -> str:
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _violated(why: str, retry_after: int = 0) -> StatusError:
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return StatusError(429, "TooManyRequests", _VIOLATES, details)


def _check_preconditions(record: ObjectRecord, options: DeleteOptions) -> None:
    meta = record.plain["metadata"]
    pairs = (
        ("UID", options.uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.version, meta["resourceVersion"], "modified"),
    )
    for word, wanted, there, what in pairs:
        if wanted and wanted != there:
            why = f"the {word} in the precondition ({wanted}) does not match the {word} in record ({there})."
            details = f'Operation cannot be fulfilled on Pod "{meta["name"]}": {why} The object might have been {what}'
            raise StatusError(409, "Conflict", details, {"name": meta["name"], "kind": "Pod"})


def _with_condition(pod: Plain, wall: float) -> Plain:
    since = timestamp(wall)
    others = [one for one in pod["status"].get("conditions") or [] if one.get("type") != _CONDITION["type"]]
    condition = _CONDITION | {"lastProbeTime": None, "lastTransitionTime": since}
    return pod | {"status": pod["status"] | {"conditions": [*others, condition]}}
