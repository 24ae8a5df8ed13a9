"""The picture of `carico top` as lines of text, independent of the terminal.

Colours are names until the last step (`paint`), so that widths are computed on visible characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carico.terminal.processes import ProcessListing
from carico.types import Estimate, NodeSize

SPARKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
LABEL = 17  # columns of the names on the left
MIB = 1 << 20
KEYS = (
    ("q, Ctrl-C", "quit"),
    ("?", "show or hide this help"),
    ("c, m", "sort the list by cpu or by memory"),
    ("Tab", "list pods or processes"),
    ("up, down, page up, page down, home, end", "scroll the list"),
    ("Ctrl-Z", "suspend"),
)
CODES = {"green": "32", "yellow": "33", "red": "31", "bold": "1", "dim": "2", "": "0"}

NOTHING = ProcessListing()
Piece = tuple[str, str]  # colour, text
Line = list[Piece]


@dataclass
class ScreenView:
    """Everything on the screen at one moment."""

    dimensions: tuple[str, ...]
    size: NodeSize
    own_limits: bool  # the size is that of a cgroup limit
    usage: Sequence[float]
    raw: Mapping[str, float]
    estimate: Estimate | None
    history: Sequence[Estimate]  # the last minute
    pods_from: str  # the runtime source; empty while there is none
    why_no_pods: str  # the reason for that
    notice: str  # what is wrong, or empty
    left: float | None  # s until the end
    listing: ProcessListing = NOTHING
    pods_first: bool = True  # list pods, if there are any, and not processes
    by_memory: bool = False
    offset: int = 0  # rows of the list that are scrolled out of view
    help: bool = False


def frame(view: ScreenView, width: int, height: int) -> list[Line]:
    lines = [_title(view, width), [], *_bars(view, width), [], *_answer(view, width), [], *_minute(view, width)]
    end: list[Line] = [[("yellow", view.notice)]] if view.notice else []
    if view.help:
        lines += [[], *_help()]
    else:
        lines += [[], *_list(view, height - len(lines) - 1 - len(end))]
    lines = [*lines[: max(0, height - len(end))], *end]
    return [cut(line, width) for line in lines[:height]]


def _title(view: ScreenView, width: int) -> Line:
    where = "this process's limits" if view.own_limits else "this machine"
    size = f"{where}: {view.size.cores:g} cores, {view.size.memory_bytes / 2**30:.1f} GiB"
    end = "q: quit  ?: help" if view.left is None else f"{max(0, view.left):.0f} s left  q: quit  ?: help"
    gap = max(2, width - len("carico top") - 3 - len(size) - len(end))
    return [("bold", "carico top"), ("", f"   {size}"), ("dim", " " * gap + end)]


def _bars(view: ScreenView, width: int) -> list[Line]:
    about = (
        f"   utilisation {view.raw.get('util', 0):.2f}, pressure {view.raw.get('psi', 0):.2f}" if width >= 80 else ""
    )
    room = max(5, min(40, width - LABEL - 6 - len(about)))
    notes = {"cpu": about}
    pairs = zip(view.dimensions, view.usage, strict=True)
    return [_bar_line(name, value, room, notes.get(name, "")) for name, value in pairs]


def _bar_line(name: str, value: float, room: int, about: str) -> Line:
    colour = "green" if value < 0.7 else "yellow" if value < 0.9 else "red"
    return [("", f"{_label(name):<{LABEL}}"), (colour, bar(value, room)), ("", f" {value:>4.0%}"), ("dim", about)]


def _answer(view: ScreenView, width: int) -> list[Line]:
    estimate = view.estimate
    if estimate is None:
        return [[("dim", "the first estimate comes after a second …")]]
    pods = f"{estimate.pods}   (counted by {view.pods_from})" if view.pods_from else "not counted"
    why_not = f"   ({view.why_no_pods})" if view.why_no_pods and not view.pods_from else ""
    assumed = "" if any(e.pods for e in view.history) else "   (assumed: no pod has been seen here)"
    lines: list[Line] = [
        [("", f"{'Pod-Capacity':<{LABEL}}"), ("bold", f"{estimate.pod_capacity:.1f}"), ("", " more pods fit here")],
        [("", f"{'pods':<{LABEL}}{pods}"), ("dim", why_not)],
        [("", f"{'cost of a pod':<{LABEL}}{_shares(view.dimensions, estimate.cost_ratio)}"), ("dim", assumed)],
        [("", f"{'without pods':<{LABEL}}{_shares(view.dimensions, estimate.baseline_ratio)}")],
        [("", f"{'signal k':<{LABEL}}{estimate.signal_k:.2f} times the recent load would still fit")],
    ]
    mode = f"   ({estimate.mode.value})"
    if width > 60:
        lines[0].append(("dim", mode))
    return lines


def _minute(view: ScreenView, width: int) -> list[Line]:
    """One sparkline per dimension, full height = 1, and one of Pod-Capacity, full height = its maximum."""
    if not view.history:
        return []
    room = min(60, width - LABEL - 12)
    lines: list[Line] = [[("dim", "the last minute")]]
    for i, name in enumerate(view.dimensions):
        lines.append(_spark_line(_label(name), [e.usage[i] for e in view.history], 1.0, room, "full is 100%"))
    fits = [e.pod_capacity for e in view.history]
    most = max(fits)
    lines.append(_spark_line("Pod-Capacity", fits, most, room, f"full is {most:.1f}"))
    return lines


def _list(view: ScreenView, room: int) -> list[Line]:
    """A heading and as many rows as fit."""
    listing, rows = view.listing, max(0, room - 1)
    if listing.problem:
        return [[("dim", listing.problem)]]
    if not listing.total:
        return []
    if view.pods_first and listing.pods:
        count, what = len(listing.pods), f"{len(listing.pods)} pods"
        head = f"{'CPU':>8}  {'MEMORY':>10}  {'PROCESSES':>9}  POD"
        text = [
            f"{pod.cpu:>8.0%}  {_size(pod.memory):>10}  {pod.processes:>9}  {pod.name}"
            for pod in listing.pods[view.offset : view.offset + rows]
        ]
    else:
        count, what = len(listing.processes), f"{listing.total} processes"
        head = f"{'CPU':>8}  {'MEMORY':>10}  {'PID':>9}  {'USER':<10}  COMMAND"
        text = [
            f"{one.cpu:>8.0%}  {_size(one.memory):>10}  {one.pid:>9}  {one.user[:10]:<10}  {one.command}"
            for one in listing.processes[view.offset : view.offset + rows]
        ]
    place = f", from {view.offset + 1}" if view.offset else ""
    about = f"   ({what} by {'memory' if view.by_memory else 'cpu'}{place if count else ''})"
    heading: Line = [("bold", head), ("dim", about)]
    return [heading, *([("", line)] for line in text)]


def _help() -> list[Line]:
    width = max(len(keys) for keys, _ in KEYS)
    keys: list[Line] = [[("bold", f"{keys:<{width}}"), ("", f"  {about}")] for keys, about in KEYS]
    terms = "CPU of the list is in cores: 100% is one of them. docs/signal.md explains the other figures."
    return [*keys, [("dim", terms)]]


def _size(size: float) -> str:
    """
    >>> _size(5 * 2**20), _size(3 * 2**30)
    ('5 MiB', '3.0 GiB')
    """
    return f"{size / MIB:.0f} MiB" if size < 1024 * MIB else f"{size / (1024 * MIB):.1f} GiB"


def _spark_line(name: str, values: Sequence[float], full: float, room: int, about: str) -> Line:
    return [("", f"{name:<{LABEL}}"), ("green", spark(values, full, room)), ("dim", f" {about}")]


def bar(value: float, room: int) -> str:
    """
    >>> bar(0.5, 4), bar(0.0, 4), bar(1.0, 4), bar(0.56, 4)
    ('██░░', '░░░░', '████', '██▎░')
    """
    eighths = round(value * room * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[part].strip()).ljust(room, "░")


def spark(values: Sequence[float], full: float, room: int) -> str:
    """The last `room` values as a row of blocks; a value above 0 is never blank.

    >>> spark([0.0, 0.1, 0.5, 1.0], 1.0, 10)
    ' ▁▄█'
    """
    top = len(SPARKS) - 1
    heights = [min(top, max(int(value > 0), int(value / full * top))) if full > 0 else 0 for value in values]
    return "".join(SPARKS[height] for height in heights[-max(1, room) :])


def cut(line: Line, width: int) -> Line:
    """
    >>> cut([("bold", "abc"), ("", "defg")], 5)
    [('bold', 'abc'), ('', 'de')]
    """
    result: Line = []
    for colour, text in line:
        result.append((colour, text[:width]))
        width -= len(text)
        if width <= 0:
            break
    return result


def paint(line: Line, colours: bool) -> str:
    if not colours:
        return "".join(text for _, text in line).rstrip()
    return "".join(f"\x1b[{CODES[colour]}m{text}\x1b[0m" if colour else text for colour, text in line)


def _label(name: str) -> str:
    return name.replace("_", " ")


def _shares(names: Sequence[str], values: Sequence[float]) -> str:
    return "   ".join(f"{_label(name)} {value:.1%}" for name, value in zip(names, values, strict=True))
