"""One line of the doctor's report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from carico.table import Colours, table

OK, WARNING, MISSING = "ok", "warning", "missing"
PAINT = {OK: "green", WARNING: "yellow", MISSING: "red"}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    part: str
    state: str
    found: str
    fix: str = ""  # empty when there is nothing to fix


def ok(part: str, found: str) -> Finding:
    return Finding(part, OK, found)


def problem(part: str, found: str, fix: str, *, needed: bool) -> Finding:
    """Missing if the user requested it, otherwise a warning."""
    return Finding(part, MISSING if needed else WARNING, found, fix)


def as_table(findings: Sequence[Finding], colours: Colours) -> str:
    """
    >>> from io import StringIO
    >>> found = [ok("cores", "8"), problem("psi", "switched off", "boot with psi=1", needed=False)]
    >>> print(as_table(found, Colours(StringIO())))
    PART   STATE    FOUND
    cores  ok       8
    psi    warning  switched off
                    fix: boot with psi=1
    <BLANKLINE>
    1 ok, 1 warning, 0 missing
    """
    head = ("PART", "STATE", "FOUND")
    lines = table(head, [(f.part, f.state, f.found) for f in findings]).splitlines()
    indent = " " * lines[0].index("FOUND")
    shown = [colours.paint(lines[0], "bold")]
    for finding, line in zip(findings, lines[1:], strict=True):
        at = lines[0].index("STATE")
        state = line[at : at + len(finding.state)]
        shown.append(line[:at] + colours.paint(state, PAINT[finding.state]) + line[at + len(state) :])
        if finding.fix:
            shown.append(f"{indent}{colours.paint('fix:', 'quiet')} {finding.fix}")
    return "\n".join([*shown, "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    states = [finding.state for finding in findings]
    warnings = states.count(WARNING)
    return f"{states.count(OK)} ok, {warnings} warning{'' if warnings == 1 else 's'}, {states.count(MISSING)} missing"
