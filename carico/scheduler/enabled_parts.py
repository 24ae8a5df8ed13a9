"""Which parts of the scheduler the settings switch on, and so which rights it needs in the API server."""

from __future__ import annotations

from collections.abc import Iterator

from carico.http.address import is_loopback, split_address
from carico.kube.calls import NeededBy
from carico.settings import SchedulerSettings


def parts(settings: SchedulerSettings) -> frozenset[NeededBy]:
    return frozenset(_parts(settings))


def _parts(settings: SchedulerSettings) -> Iterator[NeededBy]:
    yield NeededBy.SCHEDULER
    if settings.leader_elect:
        yield NeededBy.ELECTION
    if settings.extender_listen:
        yield NeededBy.EXTENDER
    if not is_loopback(split_address(settings.debug_listen)[0]):
        yield NeededBy.PRIVATE_PAGES
    if settings.token_audience:
        yield NeededBy.TOKENS
    if settings.node_capacities:
        yield NeededBy.NODE_CAPACITIES
    if settings.issue_certificates:
        yield NeededBy.CERTIFICATES
