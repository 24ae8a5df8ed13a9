"""The objects of the API server, watched without the proxies and written into the history.

Threads with the standard library's HTTP client and plain JSON: nothing that Carico itself uses, so that an object which
Carico cannot decode is seen nevertheless.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from harness.cluster.api import Api, ApiError, Object
from harness.soak.history import (
    Announced,
    ApiAnswers,
    Bound,
    Event,
    Gone,
    Leaving,
    NodeDown,
    NodeUp,
    Nominated,
    PodSeen,
    Preempted,
    Renewed,
    Started,
)
from harness.soak.recorder import Recorder

QUIET = 90.0  # s without a byte after which a watch is closed; bookmarks come every minute
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/carico-scheduler"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/events"
SCHEDULED = quote("reason=Scheduled")
PREEMPTED = quote("reason=Preempted")
ENDED = ("Succeeded", "Failed")
UNITS = "carico.dev/units"
PLAIN = "carico.test/plain"  # label of pods for which the benchmark itself can compute where they fit
SUFFIXES = {"m": 1, "": 1000, "k": 10**6, "P": 10**18}


def millicores(text: str) -> int:
    """
    >>> millicores("250m"), millicores("2"), millicores("10P")
    (250, 2000, 10000000000000000000)
    """
    number = text.rstrip("mkP")
    return int(number or 0) * SUFFIXES[text[len(number) :]]


class Watch(threading.Thread):
    """List and watch of one kind; `handle` is called in the event loop with the type of the event and the object."""

    def __init__(self, api: Api, path: str, handle: Callable[[str, Object], None], selector: str = "") -> None:
        super().__init__(daemon=True)
        self._api, self._path, self._handle, self._selector = api, path, handle, selector
        self._stop = False
        self._known: dict[str, Object] = {}
        self.synced = asyncio.Event()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        super().start()

    def end(self) -> None:
        self._stop = True

    def run(self) -> None:
        version = ""
        while not self._stop:
            try:
                version = version or self._list()
                version = self._follow(version)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.2)

    def _record(self, kind: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            self._known.pop(uid, None)
        else:
            kept = ("uid", "name", "namespace")
            self._known[uid] = {"metadata": {k: v for k, v in obj["metadata"].items() if k in kept}}
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._handle, kind, obj)

    def _list(self) -> str:
        found = self._get(f"{self._path}?{self._selector}")
        items = sorted(found["items"], key=lambda item: int(item["metadata"]["resourceVersion"]))
        for uid in self._known.keys() - {item["metadata"]["uid"] for item in items}:
            self._record("DELETED", self._known[uid])
        for item in items:
            self._record("ADDED", item)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.synced.set)
        return str(found["metadata"]["resourceVersion"])

    def _get(self, path: str) -> Any:
        connection = self._connect()
        try:
            connection.request("GET", path, headers=self._api._headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                raise ApiError(answer.status, content[:200].decode(errors="replace"))
            return json.loads(content)
        finally:
            connection.close()

    def _follow(self, version: str) -> str:
        """Returns the version to continue from; empty: list again."""
        connection = self._connect()
        try:
            query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion={version}&{self._selector}"
            connection.request("GET", f"{self._path}?{query}", headers=self._api._headers)
            answer = connection.getresponse()
            if answer.status == 410:
                return ""
            if answer.status != 200:
                raise ApiError(answer.status, "")
            while not self._stop and (line := answer.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._record(event["type"], event["object"])
            return version
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.2)
            return version
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._api.address, context=self._api._tls, timeout=QUIET)


class _Known(NamedTuple):
    """What was last recorded of a pod."""

    units: float = -1.0
    node: str = ""
    started: bool = False
    leaving: bool = False
    nominated: str = ""


class Observer:
    """Writes watch events into the history."""

    def __init__(self, api: Api, recorder: Recorder, ours: str = "carico") -> None:
        self._api, self._recorder, self._ours = api, recorder, ours
        self._pods: dict[str, _Known] = {}
        self._open_nodes: set[str] = set()
        self.objects: dict[str, Object] = {}  # namespace/name to the pod as last seen
        self.holder = ""
        self.answers = True
        self.watches = [
            Watch(api, PODS, self.pod),
            Watch(api, NODES, self._node),
            Watch(api, EVENTS, self._event, f"fieldSelector={SCHEDULED}"),
            Watch(api, EVENTS, self._event, f"fieldSelector={PREEMPTED}"),
        ]

    async def start(self) -> None:
        for watch in self.watches:
            watch.start()
        for watch in self.watches:
            await watch.synced.wait()

    def end(self) -> None:
        for watch in self.watches:
            watch.end()

    def _note(self, event: Event) -> None:
        self._recorder.note(event)

    def pod(self, kind: str, pod: Object) -> None:
        meta, now = pod["metadata"], time.monotonic()
        uid = meta["uid"]
        if kind == "DELETED" or pod["status"].get("phase") in ENDED:
            if self._pods.pop(uid, None) is not None:
                self._note(Gone(at=now, uid=uid))
            if kind == "DELETED" and (key := _key(pod)) in self.objects and self.objects[key]["metadata"]["uid"] == uid:
                del self.objects[key]
            return
        self.objects[_key(pod)] = pod
        had, has = self._pods.get(uid, _Known()), _known(pod)
        self._pods[uid] = has
        if has.units != had.units:
            self._note(_seen(pod, self._ours, has, now))
        if has.nominated != had.nominated and not has.node:
            self._note(Nominated(at=now, uid=uid, node=has.nominated))
        if has.node != had.node:
            self._note(Bound(at=now, uid=uid, node=has.node))
        if has.started and not had.started:
            self._note(Started(at=now, uid=uid))
        if has.leaving and not had.leaving:
            self._note(Leaving(at=now, uid=uid))

    def _node(self, kind: str, node: Object) -> None:
        """A tainted node, as a new one is until its life-cycle controller has processed it, counts as absent."""
        name, now = node["metadata"]["name"], time.monotonic()
        is_open = kind != "DELETED" and not (node["spec"].get("taints") or node["spec"].get("unschedulable"))
        if is_open and name not in self._open_nodes:
            cpu = millicores(node["status"]["allocatable"]["cpu"])
            self._note(NodeUp(at=now, node=name, cpu=cpu, labels=node["metadata"]["labels"]))
            self._open_nodes.add(name)
        elif not is_open and name in self._open_nodes:
            self._note(NodeDown(at=now, node=name))
            self._open_nodes.discard(name)

    def _event(self, kind: str, event: Object) -> None:
        if kind == "DELETED" or "regarding" not in event:
            return
        uid, now = event["regarding"].get("uid", ""), time.monotonic()
        if event["reason"] == "Scheduled":
            self._note(Announced(at=now, uid=uid, name=event["metadata"]["name"]))
        else:
            self._note(Preempted(at=now, uid=uid, preemptor=event.get("related", {}).get("uid", "")))

    async def follow_lease(self) -> None:
        """Check twice a second which replica leads, and whether the API server answers."""
        seen = ""
        while True:
            now = time.monotonic()
            try:
                lease = await asyncio.to_thread(self._api.get, LEASE)
            except ApiError as error:
                self._set_answers(now, 0 < error.status < 500)
            except (OSError, http.client.HTTPException, ValueError):
                self._set_answers(now, False)
            else:
                self._set_answers(now, True)
                self.holder = lease["spec"].get("holderIdentity") or ""
                if lease["metadata"]["resourceVersion"] != seen:
                    seen = lease["metadata"]["resourceVersion"]
                    self._note(Renewed(at=now, holder=self.holder))
            await asyncio.sleep(0.5)

    def _set_answers(self, now: float, yes: bool) -> None:
        if yes != self.answers:
            self.answers = yes
            self._note(ApiAnswers(at=now, yes=yes))


def _key(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def _known(pod: Object) -> _Known:
    status, meta = pod["status"], pod["metadata"]
    try:
        units = float(meta.get("annotations", {}).get(UNITS, "1"))
    except ValueError:
        units = 1.0  # as such a pod counts when it runs
    return _Known(
        units,
        pod["spec"].get("nodeName", ""),
        status.get("phase") == "Running",
        "deletionTimestamp" in meta,
        status.get("nominatedNodeName", ""),
    )


def _seen(pod: Object, ours: str, known: _Known, now: float) -> PodSeen:
    meta, spec = pod["metadata"], pod["spec"]
    requests = [c.get("resources", {}).get("requests", {}) for c in spec["containers"]]
    return PodSeen(
        at=now,
        uid=meta["uid"],
        key=_key(pod),
        ours=spec.get("schedulerName") == ours,
        priority=spec.get("priority", 0),
        cpu=sum(millicores(r.get("cpu", "0")) for r in requests),
        units=known.units,
        selector=spec.get("nodeSelector", {}),
        plain=PLAIN in meta.get("labels", {}),
    )
