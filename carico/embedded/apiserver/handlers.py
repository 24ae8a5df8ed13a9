"""From a request to its response: which verb on which object, in which format."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

import msgspec

from carico.clock import Clock
from carico.embedded.apiserver import (
    binding,
    discovery,
    eviction,
    logs,
    representations,
    routes,
    selection,
    status_error,
)
from carico.embedded.apiserver.history import ObjectRecord, Plain
from carico.embedded.apiserver.http import ApiRequest, ApiResponse, ApiStream
from carico.embedded.apiserver.kinds import PODS
from carico.embedded.apiserver.representations import Form
from carico.embedded.apiserver.reviews import AccessReviews
from carico.embedded.apiserver.routes import Target
from carico.embedded.apiserver.status_error import bad_request
from carico.embedded.apiserver.verbs import ApiVerbs, DeleteOptions
from carico.embedded.apiserver.watching import ApiWatch, WatchParameters

OPEN_LISTS = 64  # lists with a continue token; the oldest is dropped first
YES = ("true", "1")
CREATED: Plain = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
HEALTH = ("/healthz", "/livez", "/readyz")


class ApiHandlers:
    def __init__(self, clock: Clock, verbs: ApiVerbs, reviews: AccessReviews) -> None:
        self._clock, self._verbs, self._store, self._reviews = clock, verbs, verbs.store, reviews
        self._pages: OrderedDict[str, tuple[int, list[ObjectRecord]]] = OrderedDict()
        self._tokens = itertools.count(1)
        self.logs: logs.LogFile = lambda _uid, _container: None

    def __call__(self, request: ApiRequest) -> ApiResponse | ApiStream:
        target = routes.find(request.path)
        if target is None:
            return self._about(request)
        if target.kind.hidden:
            return self._review(request, target)
        special = {"binding": self._bind, "eviction": self._evict, "log": self._log}.get(target.sub)
        if special is not None:
            return special(request, target)
        method = {
            "GET": self._get,
            "POST": self._create,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }.get(request.method)
        if method is None or not _fits(request.method, target):
            raise status_error.METHOD_NOT_ALLOWED
        return method(request, target)

    def _about(self, request: ApiRequest) -> ApiResponse:
        if request.path.rstrip("/") in HEALTH:
            return ApiResponse(200, b"ok", "text/plain")
        found = discovery.page(request.path.rstrip("/"), request.headers.get("accept", ""))
        if found is None:
            raise status_error.NO_SUCH_PATH
        media, content = found
        return ApiResponse(200, msgspec.json.encode(content), media)

    def _review(self, request: ApiRequest, target: Target) -> ApiResponse:
        if request.method != "POST":
            raise status_error.METHOD_NOT_ALLOWED
        requested = _decoded(request)
        if not isinstance(requested, dict) or not isinstance(spec := requested.get("spec", {}), dict):
            raise bad_request("a review is an object with a spec")
        return ApiResponse(201, msgspec.json.encode(requested | {"status": self._reviews.status(target.kind, spec)}))

    def _form(self, request: ApiRequest, target: Target) -> Form:
        return representations.requested(target.kind, request.headers.get("accept", ""), request.query)

    def _one(self, code: int, request: ApiRequest, target: Target, record: ObjectRecord) -> ApiResponse:
        return ApiResponse(code, self._form(request, target).one(record, self._clock.wall()))

    def _get(self, request: ApiRequest, target: Target) -> ApiResponse | ApiStream:
        if target.name:
            return self._one(200, request, target, self._verbs.read(target.kind, (target.namespace, target.name)))
        if request.query.get("watch") in YES:
            return self._watch(request, target)
        return self._list(request, target)

    def _list(self, request: ApiRequest, target: Target) -> ApiResponse:
        query = request.query
        if token := query.get("continue"):
            version, records = self._continued(token)
        else:
            test = selection.matching(target.kind, query)
            version, records = self._store.version, self._verbs.found(target.kind, target.namespace, test)
        limit = logs.whole_number(query, "limit") or len(records)
        meta: Plain = {"resourceVersion": str(version)}
        if len(records) > limit:
            meta |= {"continue": self._keep(version, records[limit:]), "remainingItemCount": len(records) - limit}
        return ApiResponse(200, self._form(request, target).many(records[:limit], meta, self._clock.wall()))

    def _keep(self, version: int, rest: list[ObjectRecord]) -> str:
        """Keep the rest of a list as it was when the first page was requested; returns the continue token."""
        token = f"{version}-{next(self._tokens)}"
        self._pages[token] = (version, rest)
        while len(self._pages) > OPEN_LISTS:
            self._pages.popitem(last=False)
        return token

    def _continued(self, token: str) -> tuple[int, list[ObjectRecord]]:
        if token not in self._pages:
            raise status_error.expired(
                "The provided continue parameter is too old to display a consistent list result."
            )
        return self._pages[token]

    def _watch(self, request: ApiRequest, target: Target) -> ApiStream:
        query, namespace = request.query, target.namespace
        test = selection.matching(target.kind, query)

        def sees(plain: Plain) -> bool:
            inside = not namespace or plain["metadata"].get("namespace") == namespace
            return inside and (test is None or test(plain))

        wanted = WatchParameters(
            form=self._form(request, target),
            test=sees,
            since=query.get("resourceVersion", ""),
            bookmarks=query.get("allowWatchBookmarks") in YES,
            initial=query.get("sendInitialEvents") in YES,
            seconds=logs.whole_number(query, "timeoutSeconds"),
        )
        return ApiWatch(
            wanted, self._store, self._clock, lambda: self._verbs.found(target.kind, target.namespace, test)
        )  # fmt: skip

    def _create(self, request: ApiRequest, target: Target) -> ApiResponse:
        record = self._verbs.create(target.kind, self._home(target), _decoded(request), _dry(request))
        return self._one(201, request, target, record)

    def _home(self, target: Target) -> str:
        if target.kind.namespaced and not target.namespace:
            raise status_error.METHOD_NOT_ALLOWED
        return target.namespace

    def _update(self, request: ApiRequest, target: Target) -> ApiResponse:
        key = (target.namespace, target.name)
        record, made = self._verbs.update(
            target.kind, key, _decoded(request), status=target.sub == "status", dry=_dry(request)
        )
        return self._one(201 if made else 200, request, target, record)

    def _patch(self, request: ApiRequest, target: Target) -> ApiResponse:
        media = request.headers.get("content-type", "").partition(";")[0].strip()
        key, patch = (target.namespace, target.name), _decoded(request, any_media=True)
        record = self._verbs.patch(target.kind, key, media, patch, status=target.sub == "status", dry=_dry(request))
        return self._one(200, request, target, record)

    def _delete(self, request: ApiRequest, target: Target) -> ApiResponse:
        options = _delete_options(request, _decoded(request) if request.body.strip() else {})
        if not target.name:
            return self._delete_all(request, target, options)
        record = self._verbs.delete(target.kind, (target.namespace, target.name), options)
        if target.kind.gives_deleted or "deletionTimestamp" in record.plain["metadata"]:
            return self._one(200, request, target, record)
        return ApiResponse(200, msgspec.json.encode(_success(target, record)))

    def _delete_all(self, request: ApiRequest, target: Target, options: DeleteOptions) -> ApiResponse:
        test = selection.matching(target.kind, request.query)
        gone = self._verbs.found(target.kind, self._home(target), test)
        for record in gone:
            if self._store.get(target.kind, record.key) is not None:  # it may have been deleted with its owner
                self._verbs.delete(target.kind, record.key, options)
        meta = {"resourceVersion": str(self._store.version)}
        return ApiResponse(200, self._form(request, target).many(gone, meta, self._clock.wall()))

    def _bind(self, request: ApiRequest, target: Target) -> ApiResponse:
        if request.method != "POST":
            raise status_error.METHOD_NOT_ALLOWED
        key, requested = (target.namespace, target.name), _decoded(request)
        binding.check(key, requested)
        binding.bind(self._store, self._verbs.read(PODS, key), requested, self._clock.wall(), _dry(request))
        return ApiResponse(201, msgspec.json.encode(CREATED))

    def _evict(self, request: ApiRequest, target: Target) -> ApiResponse:
        if request.method != "POST":
            raise status_error.METHOD_NOT_ALLOWED
        key = (target.namespace, target.name)
        options = _delete_options(request, eviction.check(key, _decoded(request)))
        eviction.evict(self._verbs, key, options, self._clock.wall())
        return ApiResponse(201, msgspec.json.encode(CREATED))

    def _log(self, request: ApiRequest, target: Target) -> ApiResponse | ApiStream:
        if request.method != "GET":
            raise status_error.METHOD_NOT_ALLOWED
        key, query = (target.namespace, target.name), request.query
        pod = self._verbs.read(PODS, key).plain
        container = logs.container_of(pod, query)
        if not pod["spec"].get("nodeName"):
            return ApiResponse(200, b"", logs.TEXT)
        tail, limit = logs.whole_number(query, "tailLines"), logs.whole_number(query, "limitBytes")
        uid = pod["metadata"]["uid"]
        file = logs.opened(self.logs(uid, container), pod, container)
        if tail is not None:
            logs.skip_to_tail(file, tail)
        if query.get("follow") not in YES:
            return logs.read(file, limit)
        return logs.Following(file, lambda: self._has_ended(key, uid, container), self._clock)

    def _has_ended(self, key: tuple[str, str], uid: str, container: str) -> bool:
        record = self._store.get(PODS, key)
        if record is None or record.plain["metadata"]["uid"] != uid:
            return True
        status = record.plain.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return True
        both = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
        return any(one.get("name") == container and "terminated" in (one.get("state") or {}) for one in both)


def _fits(method: str, target: Target) -> bool:
    """Whether the method applies to one object or to a collection, whichever the path names."""
    if target.sub:
        return method in ("GET", "PUT", "PATCH")
    return method in (("GET", "PUT", "PATCH", "DELETE") if target.name else ("GET", "POST", "DELETE"))


def _decoded(request: ApiRequest, any_media: bool = False) -> Any:
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if not any_media and media not in ("application/json", "*/*", ""):
        raise status_error.NOT_JSON
    try:
        return msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from error


def _dry(request: ApiRequest) -> bool:
    wanted = request.query.get("dryRun", "")
    if wanted not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{wanted}": supported values: "All"')
    return wanted == "All"


def _delete_options(request: ApiRequest, body: Any) -> DeleteOptions:
    if not isinstance(body, dict):
        raise bad_request("DeleteOptions are an object")
    grace = body.get("gracePeriodSeconds", logs.whole_number(request.query, "gracePeriodSeconds"))
    before = body.get("preconditions") or {}
    policy = body.get("propagationPolicy") or request.query.get("propagationPolicy")
    dry = _dry(request) or body.get("dryRun") == ["All"]
    return DeleteOptions(
        grace, before.get("uid") or "", before.get("resourceVersion") or "", policy == "Orphan", dry
    )  # fmt: skip


def _success(target: Target, record: ObjectRecord) -> Plain:
    about = status_error.details(target.kind, target.name, uid=record.plain["metadata"]["uid"])
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}
