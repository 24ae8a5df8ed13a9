"""The table of pods against a model that recomputes everything from all events received."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from carico.pod_class import class_of_images
from carico.runtime.pods import STARTING_AT_MOST, Member, PodListing, PodTable, Sandbox, WorkloadPod
from carico.settings import RuntimeSettings
from carico.types import ClassKey, PodCount

SETTINGS = RuntimeSettings(settle=2.0)
BOXES = ("box0", "box1", "box2", "box3")
UIDS = {"box0": "u0", "box1": "u1", "box2": "u2", "box3": "u0"}  # box3 is a second sandbox of u0's
CONTAINERS = {f"con{i}": box for i, box in enumerate((*BOXES, "box0", "box1"))}
IDS = (*BOXES, *CONTAINERS)
KEY = ClassKey("n", "n/told")


def sandbox(box: str) -> Sandbox:
    return Sandbox(UIDS[box], workload=box != "box2", namespace="n" if box == "box1" else "")


def image(container: str) -> str:
    return f"image-{container}"


class Naive:
    """What is true by definition, with a walk over everything at each question."""

    def __init__(self) -> None:
        self.boxes: set[str] = set()
        self.containers: set[str] = set()
        self.running: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.starts: dict[str, list[float]] = {}  # UID → all starts of its containers since it is known
        self.images: dict[str, set[str]] = {}
        self.told: dict[str, ClassKey | None] = {}

    def on_event(self, event: str, id: str, now: float) -> None:
        if event == "creating" and id not in self.running:
            self.created[id] = now
        elif event == "is":
            (self.boxes if id in UIDS else self.containers).add(id)
        elif event == "started":
            self.created.pop(id, None)
            self.running.setdefault(id, now)
        elif event in ("exited", "stopped", "removed"):
            self.created.pop(id, None)
            self.running.pop(id, None)
        self._remember()
        if event == "removed":
            self.boxes.discard(id)
            self.containers.discard(id)
        self._remember()

    def replace_all(self, alive: dict[str, float]) -> None:
        self.boxes, self.containers = set(BOXES), set(CONTAINERS)
        self.running = {id: self.running.get(id, start) for id, start in alive.items()}
        self.created = {id: at for id, at in self.created.items() if id not in alive}
        self._remember()

    def set_classes(self, uid: str, key: ClassKey | None) -> None:
        if uid in self._known():
            self.told[uid] = key

    def _known(self) -> set[str]:
        return {UIDS[box] for box in self.boxes}

    def _remember(self) -> None:
        known = self._known()
        for memory in (self.starts, self.images, self.told):
            for uid in memory.keys() - known:
                del memory[uid]
        for container in self.containers:
            box = CONTAINERS[container]
            if box in self.boxes:
                self.images.setdefault(UIDS[box], set()).add(image(container))
                if box in self.running and container in self.running:
                    self.starts.setdefault(UIDS[box], []).append(self.running[container])

    def pods(self) -> dict[str, list[str]]:
        """UID → its running sandboxes."""
        found: dict[str, list[str]] = {}
        for box in self.boxes & self.running.keys():
            found.setdefault(UIDS[box], []).append(box)
        return found

    def workload(self) -> dict[str, WorkloadPod]:
        return {uid: self._pod(uid, boxes) for uid, boxes in self.pods().items() if self._is_workload(uid)}

    def _is_workload(self, uid: str) -> bool:
        return uid != "u2" and not (uid == "u0" and uid in self.told and self.told[uid] is None)

    def _members(self, boxes: list[str]) -> set[str]:
        return {container for container in self.containers if CONTAINERS[container] in boxes}

    def _pod(self, uid: str, boxes: list[str]) -> WorkloadPod:
        key = self.told.get(uid) or (class_of_images("n", self.images.get(uid, ())) if uid == "u1" else None)
        first = min(self.starts[uid]) if uid in self.starts else None
        return WorkloadPod(uid, key, first, any(one in self.running for one in self._members(boxes)), None)

    def count(self, now: float) -> tuple[int, int]:
        loads = [self._load(uid, self.pods()[uid], now) for uid in self.workload()]
        return sum(running for running, _ in loads), sum(unsettled for _, unsettled in loads)

    def _load(self, uid: str, boxes: list[str], now: float) -> tuple[int, int]:
        members = self._members(boxes)
        if starts := [self.running[one] for one in members if one in self.running]:
            return 1, int(now < max(starts) + SETTINGS.settle)
        sandbox_start = max(self.running[box] for box in boxes)
        created = [self.created[one] for one in members if one in self.created]
        if not created and max(self.starts.get(uid, [-1.0])) >= sandbox_start:
            return 0, 0
        expected = now < max([sandbox_start, *created]) + STARTING_AT_MOST
        return int(expected), int(expected)


def tell(table: PodTable, event: str, id: str, now: float) -> None:
    if event != "is":
        getattr(table, event)(id, now)
    elif id in UIDS:
        table.add_sandbox(id, sandbox(id))
    else:
        table.add_container(id, CONTAINERS[id], image(id))


def listing(alive: dict[str, float]) -> PodListing:
    members = {id: Member(box, image(id)) for id, box in CONTAINERS.items()}
    return PodListing({box: sandbox(box) for box in BOXES}, members, alive)


events = st.tuples(
    st.sampled_from(("creating", "is", "is", "started", "started", "exited", "stopped", "removed")),
    st.sampled_from(IDS),
)
listings = st.tuples(st.just("replace_all"), st.sets(st.sampled_from(IDS)))
classes = st.tuples(st.just("classified"), st.sampled_from([("u0", KEY), ("u0", None), ("u1", KEY)]))
steps = st.lists(
    st.tuples(st.sampled_from((0.0, 0.3, 1.1, 2.0, 7.0, 20.0)), events | events | listings | classes), max_size=60
)


@given(steps=steps)
def test_the_table_equals_the_model_of_all_events(steps: list[tuple[float, tuple[str, Any]]]) -> None:
    table, naive, now = PodTable(SETTINGS), Naive(), 100.0
    for pause, (event, what) in steps:
        now += pause
        if event == "replace_all":
            alive = dict.fromkeys(sorted(what), now - 0.5)
            table.replace_all(listing(alive), now)
            naive.replace_all(alive)
        elif event == "classified":
            table.set_classes({what[0]: what[1]})
            naive.set_classes(*what)
        else:
            tell(table, event, what, now)
            naive.on_event(event, what, now)
        for later in (now, now + 0.1):
            running, unsettled = naive.count(later)
            assert table.count(later) == PodCount(running, table.count(later).churn, unsettled)
        now += 0.1
        assert table.workload() == naive.workload()
        assert table.counted() == naive.pods().keys()
