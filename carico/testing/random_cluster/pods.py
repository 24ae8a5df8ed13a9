"""Random pods: those that run already, and those whose feasible nodes are compared.

Each constraint is drawn with a modest chance, so that most pods combine two or three and still fit somewhere.
"""

from __future__ import annotations

from random import Random
from typing import Any

from carico.testing.random_cluster.nodes import GPU, HOSTNAME, REGION, TAINT_KEYS, TAINT_VALUES, ZONE, ZONES, Object

APPS = ("web", "db", "cache")
TEAMS = ("red", "blue")
PORTS = (80, 443, 9000)
ADDRESSES = ("", "0.0.0.0", "10.0.0.1", "10.0.0.2")
DOMAINS = (HOSTNAME, ZONE, "rack")
OVERHEAD_CLASS = "sandboxed"


def running(rng: Random, name: str, namespace: str, node: str) -> Object:
    """A pod that is on a node; few constraints matter any more: those that bind others."""
    pod = _pod(rng, name, namespace)
    pod["spec"]["nodeName"] = node
    if rng.random() < 0.25:
        pod["spec"]["containers"][0]["ports"] = [_port(rng)]
    if rng.random() < 0.25:
        terms = [_term(rng)]
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if rng.random() < 0.3:
        pod["spec"]["volumes"] = [_claimed("data", f"bound-{rng.randrange(12)}")]
    elif rng.random() < 0.15:
        pod["spec"]["volumes"] = [_disk(rng)]
    draw = rng.random()
    pod["status"] = {"phase": "Succeeded" if draw < 0.08 else "Running"}
    if 0.08 <= draw < 0.2:
        _resize(rng, pod)
    pod["leaving"] = 0.2 <= draw < 0.3
    return pod


def waiting(rng: Random, name: str, namespace: str, nodes: list[Object]) -> Object:
    pod = _pod(rng, name, namespace)
    spec = pod["spec"]
    affinity: Object = {}
    if rng.random() < 0.15:
        spec["nodeSelector"] = rng.choice(({"disk": "ssd"}, {ZONE: "a"}, {"disk": ""}, {"rack": "r1", ZONE: "b"}))
    if rng.random() < 0.3:
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": _node_terms(rng, nodes)}
    if rng.random() < 0.15:
        affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": _terms(rng)}
    if rng.random() < 0.2:
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": _terms(rng)}
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.5:
        spec["tolerations"] = [_toleration(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.2:
        spec["containers"][0]["ports"] = [_port(rng)]
    if rng.random() < 0.3:
        spec["topologySpreadConstraints"] = _spread(rng)
    if rng.random() < 0.3:
        spec["volumes"] = _volumes(rng)
    _more_containers(rng, spec)
    _features(rng, spec)
    return pod


def _pod(rng: Random, name: str, namespace: str) -> Object:
    labels = {"app": rng.choice(APPS)}
    if rng.random() < 0.6:
        labels["team"] = rng.choice(TEAMS)
    if rng.random() < 0.3:
        labels["version"] = rng.choice(("1", "2"))
    if rng.random() < 0.03:
        labels = {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [_container(rng, "main")], "terminationGracePeriodSeconds": 0},
    }


def _container(rng: Random, name: str) -> Object:
    container: Object = {"name": name, "image": "example.com/nothing:1"}
    requests = _requests(rng)
    if requests:
        container["resources"] = {"requests": requests, "limits": _fixed(requests)}
    return container


def _requests(rng: Random) -> dict[str, str]:
    amounts = {}
    if rng.random() < 0.6:
        amounts["cpu"] = rng.choice(("100m", "0.5", "1", "1500u", "3"))
    if rng.random() < 0.5:
        amounts["memory"] = rng.choice(("100M", "512Mi", "1Gi", "1500k"))
    if rng.random() < 0.15:
        amounts["ephemeral-storage"] = rng.choice(("100Mi", "2Gi"))
    if rng.random() < 0.1:
        amounts[GPU] = rng.choice(("1", "2"))
    if rng.random() < 0.08:
        amounts["hugepages-2Mi"] = "4Mi"
        amounts.setdefault("memory", "64Mi")
    return amounts


def _fixed(requests: dict[str, str]) -> dict[str, str]:
    """Extended resources and huge pages cannot be overcommitted: the API wants limits equal to requests."""
    return {name: amount for name, amount in requests.items() if "/" in name or name.startswith("hugepages")}


def _more_containers(rng: Random, spec: Object) -> None:
    if rng.random() < 0.3:
        spec["initContainers"] = [_container(rng, f"init-{i}") for i in range(rng.randint(1, 3))]
        for container in spec["initContainers"]:
            if rng.random() < 0.4:
                container["restartPolicy"] = "Always"
                if rng.random() < 0.3:
                    container["ports"] = [_port(rng)]
    if rng.random() < 0.3:
        spec["containers"].append(_container(rng, "second"))
    if rng.random() < 0.12:
        spec["runtimeClassName"] = OVERHEAD_CLASS
    if rng.random() < 0.12:
        spec["resources"] = {"requests": {"cpu": rng.choice(("4", "9")), "memory": rng.choice(("2Gi", "5Gi"))}}


def _features(rng: Random, spec: Object) -> None:
    draw = rng.random()
    if draw < 0.04 and "hostPort" not in str(spec):
        spec["hostNetwork"], spec["hostUsers"] = True, False
    elif draw < 0.08:
        rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}
        spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}


def _resize(rng: Random, pod: Object) -> None:
    """A resize in progress: wanted, granted and actual amounts differ."""
    container = pod["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": rng.choice(("100m", "2"))}}
    granted, actual = rng.choice(("100m", "1")), rng.choice(("100m", "1500m"))
    pod["status"]["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "resources": {"requests": {"cpu": actual}},
            "allocatedResources": {"cpu": granted},
        }
    ]
    if rng.random() < 0.3:
        pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


def ports_of(pod: Object) -> set[tuple[str, int]]:
    """Protocol and number of a running pod's host ports."""
    return {(port["protocol"], port["hostPort"]) for port in pod["spec"]["containers"][0].get("ports", ())}


def _port(rng: Random) -> Object:
    number = rng.choice(PORTS)
    port: Object = {"containerPort": number, "hostPort": number, "protocol": rng.choice(("TCP", "TCP", "UDP"))}
    address = rng.choice(ADDRESSES)
    return port | ({"hostIP": address} if address else {})


def _toleration(rng: Random) -> Object:
    draw = rng.random()
    if draw < 0.15:
        return {"operator": "Exists"}
    effect = rng.choice(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    toleration: Object = {"key": rng.choice(TAINT_KEYS), **({"effect": effect} if effect else {})}
    if draw < 0.6:
        return toleration | {"operator": "Exists"}
    return toleration | {"operator": "Equal", "value": rng.choice(TAINT_VALUES)}


def _node_terms(rng: Random, nodes: list[Object]) -> Object:
    return {"nodeSelectorTerms": [_node_term(rng, nodes) for _ in range(rng.randint(1, 2))]}


def _node_term(rng: Random, nodes: list[Object]) -> Object:
    term: Object = {}
    if rng.random() < 0.85:
        term["matchExpressions"] = [_node_expression(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.15:
        name = rng.choice(nodes)["metadata"]["name"]
        term["matchFields"] = [{"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [name]}]
    return term


def _node_expression(rng: Random) -> Object:
    draw = rng.random()
    if draw < 0.2:
        return {"key": "cores", "operator": rng.choice(("Gt", "Lt")), "values": [rng.choice(("3", "8", "0"))]}
    key, values = rng.choice(((ZONE, ZONES), ("disk", ("ssd", "hdd", "")), ("rack", ("r0", "r1", "r2", "r3", "r4"))))
    if draw < 0.4:
        return {"key": key, "operator": rng.choice(("Exists", "DoesNotExist"))}
    chosen = rng.sample(values, rng.randint(1, len(values)))
    return {"key": key, "operator": rng.choice(("In", "In", "NotIn")), "values": chosen}


def _selector(rng: Random) -> Object:
    draw = rng.random()
    if draw < 0.6:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    if draw < 0.7:
        return {}
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = {"values": rng.sample(TEAMS, rng.randint(1, 2))} if operator in ("In", "NotIn") else {}
    return {"matchExpressions": [{"key": "team", "operator": operator, **values}]}


def _terms(rng: Random) -> list[Object]:
    return [_term(rng) for _ in range(1 if rng.random() < 0.75 else 2)]


def _term(rng: Random) -> Object:
    term: Object = {"topologyKey": rng.choice((*DOMAINS, REGION)), "labelSelector": _selector(rng)}
    draw = rng.random()
    if draw < 0.15:
        term["namespaces"] = ["NAMESPACE-other"]
    elif draw < 0.3:
        term["namespaceSelector"] = rng.choice(({}, {"matchLabels": {"kind": "other"}}))
    if rng.random() < 0.1:
        term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    if rng.random() < 0.05:
        del term["labelSelector"]
        term.pop("matchLabelKeys", None)
        term.pop("mismatchLabelKeys", None)
    return term


def _spread(rng: Random) -> list[Object]:
    keys = rng.sample(DOMAINS, rng.randint(1, 2))
    return [_constraint(rng, key) for key in keys]


def _constraint(rng: Random, key: str) -> Object:
    hard = rng.random() < 0.85
    constraint: Object = {
        "maxSkew": rng.randint(1, 3),
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": _selector(rng),
    }
    if hard and rng.random() < 0.25:
        constraint["minDomains"] = rng.randint(1, 5)
    if rng.random() < 0.3:
        constraint["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
    if rng.random() < 0.3:
        constraint["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
    if rng.random() < 0.15:
        constraint["matchLabelKeys"] = ["version"]
    return constraint


def _claimed(name: str, claim: str) -> Object:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def _disk(rng: Random) -> Object:
    if rng.random() < 0.5:
        monitors = rng.sample(("m1", "m2", "m3"), 2)
        rbd = {"monitors": monitors, "image": rng.choice(("i1", "i2")), "pool": "p", "readOnly": rng.random() < 0.5}
        return {"name": "disk", "rbd": rbd}
    target = {"targetPortal": "10.0.0.9", "iqn": f"iqn.2001-04.com.example:{rng.choice('ab')}", "lun": 0}
    return {"name": "disk", "iscsi": target | {"readOnly": rng.random() < 0.5}}


def _volumes(rng: Random) -> list[Any]:
    volumes = [{"name": "scratch", "emptyDir": {}}]
    draw = rng.random()
    if draw < 0.4:
        volumes.append(_claimed("data", f"bound-{rng.randrange(13)}"))
    if 0.3 <= draw < 0.85:
        claims = rng.sample(range(15), rng.randint(1, 2))
        volumes += [_claimed(f"more-{i}", f"open-{i}") for i in claims]
    if rng.random() < 0.2:
        volumes.append(_disk(rng))
    if rng.random() < 0.04:
        template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}
        volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": template}})
    return volumes
