"""What `carico top` shows, as lines of text: no terminal in here.

Colours are names until the very end (`paint`), so that widths are counted on what is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carico.types import Estimate, NodeSize

SPARKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
LABEL = 17  # columns of the names on the left
CODES = {"green": "32", "yellow": "33", "red": "31", "bold": "1", "dim": "2", "": "0"}

Piece = tuple[str, str]  # colour, text
Line = list[Piece]


@dataclass
class View:
    """Everything on the screen at one moment."""

    dimensions: tuple[str, ...]
    size: NodeSize
    own_limits: bool  # the size is that of a cgroup limit
    usage: Sequence[float]
    raw: Mapping[str, float]
    estimate: Estimate | None
    history: Sequence[Estimate]  # the last minute
    pods_from: str  # the runtime source; empty while there is none
    notice: str  # what is wrong, or empty
    left: float | None  # s until the end


def frame(view: View, width: int, height: int) -> list[Line]:
    lines = [_title(view, width), [], *_bars(view, width), [], *_answer(view, width), [], *_minute(view, width)]
    if view.notice:
        lines += [[], [("yellow", view.notice)]]
    return [cut(line, width) for line in lines[:height]]


def _title(view: View, width: int) -> Line:
    where = "this process's limits" if view.own_limits else "this machine"
    size = f"{where}: {view.size.cores:g} cores, {view.size.memory_bytes / 2**30:.1f} GiB"
    end = "Ctrl-C ends" if view.left is None else f"{max(0, view.left):.0f} s left"
    gap = max(2, width - len("carico top") - 3 - len(size) - len(end))
    return [("bold", "carico top"), ("", f"   {size}"), ("dim", " " * gap + end)]


def _bars(view: View, width: int) -> list[Line]:
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


def _answer(view: View, width: int) -> list[Line]:
    estimate = view.estimate
    if estimate is None:
        return [[("dim", "the first estimate comes after a second …")]]
    pods = f"{estimate.pods}   (counted by {view.pods_from})" if view.pods_from else "not counted"
    assumed = "" if any(e.pods for e in view.history) else "   (assumed: no pod has been seen here)"
    lines: list[Line] = [
        [("", f"{'Pod-Capacity':<{LABEL}}"), ("bold", f"{estimate.pod_capacity:.1f}"), ("", " more pods fit here")],
        [("", f"{'pods':<{LABEL}}{pods}")],
        [("", f"{'cost of a pod':<{LABEL}}{_shares(view.dimensions, estimate.cost)}"), ("dim", assumed)],
        [("", f"{'without pods':<{LABEL}}{_shares(view.dimensions, estimate.baseline)}")],
        [("", f"{'signal k':<{LABEL}}{estimate.capacity:.2f} times the recent load would still fit")],
    ]
    mode = f"   ({estimate.mode.value})"
    if width > 60:
        lines[0].append(("dim", mode))
    return lines


def _minute(view: View, width: int) -> list[Line]:
    """One sparkline per dimension, full height = 1, and one of Pod-Capacity, full height = its highest."""
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
