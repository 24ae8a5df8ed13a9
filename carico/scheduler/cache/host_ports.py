"""Host ports in use, indexed by port, so that only the rows that use one are checked."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from carico.kube.objects import PodSpec
from carico.scheduler.cache.template import PodInfo, PodTemplate

ANY_ADDRESS = "0.0.0.0"


class HostPort(NamedTuple):
    address: str
    protocol: str
    port: int

    def clashes(self, other: HostPort) -> bool:
        """Whether two pods with these ports cannot share a node; the wildcard address clashes with every other.

        >>> HostPort("10.0.0.1", "TCP", 80).clashes(HostPort(ANY_ADDRESS, "TCP", 80))
        True
        """
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


def host_ports(template: PodTemplate) -> tuple[HostPort, ...]:
    found: tuple[HostPort, ...] | None = template.memo.get("host_ports")
    if found is None:
        found = template.memo["host_ports"] = of_spec(template.spec)
    return found


def of_spec(spec: PodSpec) -> tuple[HostPort, ...]:
    """Of the containers that run together: init containers have ended before, unless they are sidecars."""
    sidecars = (c for c in spec.init_containers if c.restart_policy == "Always")
    return tuple(
        HostPort(p.host_ip or ANY_ADDRESS, p.protocol or "TCP", p.host_port)
        for container in (*sidecars, *spec.containers)
        for p in container.ports
        if p.host_port > 0
    )


class PortIndex:
    """Rows and addresses that use a port, by protocol and number."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, int], dict[int, Counter[str]]] = {}

    def change(self, pod: PodInfo, row: int, change: int) -> None:
        for wanted in host_ports(pod.template):
            users = self._users.setdefault((wanted.protocol, wanted.port), {})
            addresses = users.setdefault(row, Counter())
            addresses[wanted.address] += change
            if not addresses[wanted.address]:
                del addresses[wanted.address]
            if not addresses:
                del users[row]
            if not users:
                del self._users[wanted.protocol, wanted.port]

    def conflicts(self, wanted: HostPort) -> list[int]:
        """Rows where the port is taken; the wildcard address conflicts with every other."""
        users = self._users.get((wanted.protocol, wanted.port))
        if users is None:
            return []
        if wanted.address == ANY_ADDRESS:
            return list(users)
        return [row for row, addresses in users.items() if wanted.address in addresses or ANY_ADDRESS in addresses]
