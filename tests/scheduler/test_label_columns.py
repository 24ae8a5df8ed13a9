"""Requirements over columns of codes match what the requirement matches label by label."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from carico.kube.selectors import Requirement, Selector
from carico.scheduler.cache.label_columns import LabelColumns

KEYS = ("a", "b")
VALUES = ("", "1", "2", "10", "-3", "x", "1_0", "9" * 25)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")))
    most = {"In": 8, "NotIn": 8, "Gt": 1, "Lt": 1}.get(operator, 0)
    values = draw(st.frozensets(st.sampled_from(VALUES), min_size=min(1, most), max_size=most))
    return Requirement(draw(st.sampled_from(KEYS)), operator, values)


@given(st.lists(labels, min_size=1, max_size=12), st.lists(requirements(), max_size=3), st.data())
def test_columns_equal_labels(rows: list[dict[str, str]], wanted: list[Requirement], data: st.DataObject) -> None:
    columns = LabelColumns(lambda row: rows[row], lambda: len(rows))
    selector = Selector(frozenset(wanted))
    assert columns.selected(selector, None).tolist() == [selector.matches(row) for row in rows]
    # a node changes, another comes
    rows[0] = data.draw(labels)
    columns.update(0)
    rows.append(data.draw(labels))
    columns.update(len(rows) - 1)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)), dtype=np.intp)
    assert columns.selected(selector, None).tolist() == [selector.matches(row) for row in rows]
    assert columns.selected(selector, chosen).tolist() == [selector.matches(rows[row]) for row in chosen]
