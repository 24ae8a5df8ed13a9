"""Which pods are one entry of the queue, by the GroupPods plugins of all profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.framework.contract import Code, error
from carico.scheduler.queue.entries import Gate
from carico.scheduler.queue.pod_groups import GroupKey


class ProfileGrouping:
    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles

    def key_of(self, pod: PodInfo) -> GroupKey | None:
        """By the first plugin that names a group; a plugin that raises names none."""
        profile = self._profiles[pod.pod.spec.scheduler_name]
        for plugin in profile.groupings:
            try:
                name = plugin.group_of(pod)
            except Exception as problem:
                profile.contain(plugin.name, problem)
                continue
            if name:
                return profile.name, plugin.name, name
        return None

    def gate(self, key: GroupKey, waiting: Sequence[PodInfo]) -> Gate | None:
        profile = self._profiles[key[0]]
        plugin = next(plugin for plugin in profile.groupings if plugin.name == key[1])
        try:
            status = plugin.group_ready(key[2], waiting)
        except Exception as problem:
            profile.contain(plugin.name, problem)
            status = error(f"{plugin.name} broke: {problem}")
        if status.ok:
            return None
        return Gate(plugin.name, status, profile.interests({plugin.name}), broken=status.code is Code.ERROR)
