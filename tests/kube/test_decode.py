"""Objects as kube-apiserver 1.36 wrote them, with null and worse in every place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.kube import meta, objects, storage
from carico.kube.decode import decode, decode_patiently, read_remains, text_at, without_depths, without_nulls
from carico.kube.meta import KubeObject, KubeStruct
from carico.kube.objects import Node, Pod
from carico.scheduler.extender.messages import Arguments
from harness.kube.recorded import RECORDED, at, paths, without

STRUCTS = sorted(
    {kind for module in (meta, objects, storage) for kind in vars(module).values()
     if isinstance(kind, type) and issubclass(kind, KubeStruct)},
    key=lambda kind: kind.__name__,
)  # fmt: skip


def shown(obj: KubeObject) -> Any:
    """A few parts of a pod are kept as they came, and may hold nulls."""
    return without_nulls(msgspec.json.decode(msgspec.json.encode(obj)))


def encoded(obj: Any) -> bytes:
    return json.dumps(obj).encode()


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_field_has_a_default(kind: type[KubeStruct]) -> None:
    kind()


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.__name__)
def test_what_the_api_server_wrote_is_decoded(kind: type[KubeObject]) -> None:
    obj = decode(kind, encoded(RECORDED[kind]))
    assert obj.uid == RECORDED[kind]["metadata"]["uid"]


def test_an_image_without_a_name() -> None:
    recorded = RECORDED[Node]["status"]["images"]
    assert [image["names"] for image in recorded][-1] is None  # so it comes from the API server
    node = decode(Node, encoded(RECORDED[Node]))
    assert [len(image.names) for image in node.status.images] == [2, 0]


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.__name__)
def test_null_in_any_field_is_the_same_as_no_such_field(kind: type[KubeObject]) -> None:
    recorded = without_nulls(RECORDED[kind])
    for path in paths(recorded):
        nulled = copy.deepcopy(recorded)
        at(nulled, path[:-1])[path[-1]] = None
        assert shown(decode(kind, encoded(nulled))) == shown(decode(kind, encoded(without(recorded, path)))), path


@given(st.data())
def test_nulls_in_any_fields(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(RECORDED, key=lambda kind: kind.__name__)))
    obj = copy.deepcopy(RECORDED[kind])
    for _ in range(data.draw(st.integers(1, 8))):
        places = paths(obj)
        if places:
            path = data.draw(st.sampled_from(places))
            at(obj, path[:-1])[path[-1]] = None
    assert shown(decode(kind, encoded(obj))) == shown(msgspec.convert(without_nulls(obj), kind))


def test_good_objects_do_not_take_the_patient_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("it was decoded twice")

    monkeypatch.setattr("carico.kube.decode.decode_patiently", never)
    decode(Pod, encoded(without_nulls(RECORDED[Pod])))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "priority"), 2**31),
        (("spec", "priority"), -(2**31) - 1),
        (("spec", "priority"), 10**40),
        (("spec", "priority"), "1"),
        (("spec", "containers"), "none"),
        (("spec", "containers", 0, "ports", 0, "hostPort"), 2**31),
        (("spec", "nodeSelector"), ["disk"]),
        (("metadata", "labels"), {"app": 5}),
        (("status",), []),
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_and_leaves_its_name(path: tuple[str | int, ...], value: Any) -> None:
    obj = copy.deepcopy(RECORDED[Pod])
    at(obj, path[:-1])[path[-1]] = value
    with pytest.raises(msgspec.DecodeError):
        decode(Pod, encoded(obj))
    remains, meta = read_remains(encoded(obj)), obj["metadata"]
    assert remains.metadata.key == "default/web-0"
    assert (remains.metadata.uid, remains.metadata.resource_version) == (meta["uid"], meta["resourceVersion"])
    assert text_at(remains.content, "status", "phase") == ("Running" if path != ("status",) else "")


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b"5", b'"x"', b'{"metadata": 5}', b"[" * 5000, b"\xff"])
def test_what_is_no_object_at_all_is_an_error_and_has_no_name(data: bytes) -> None:
    if data != b'{"metadata": 5}':
        with pytest.raises(msgspec.DecodeError):
            decode(Node, data)
    assert read_remains(data).metadata.name == ""


def test_text_that_is_no_utf_8_is_replaced_as_go_does() -> None:
    node = decode_patiently(Node, b'{"metadata": {"name": "n", "labels": {"a": "\xff"}}}')
    assert node.metadata.labels == {"a": "\ufffd"}


def test_what_is_nested_too_deep_is_cut_off_and_the_rest_is_read() -> None:
    deep = b"[" * 100_000 + b'"]"' + b"]" * 100_000  # Python 3.13 decodes 9,000 levels
    data = b'{"metadata": {"name": "n", "managedFields": ' + deep + b', "labels": {"a\\"[": "b"}}}'
    with pytest.raises(RecursionError):
        msgspec.json.decode(data)
    assert decode(Node, data).metadata.labels == {'a"[': "b"}
    assert read_remains(data).metadata.name == "n"
    wrong = b'{"metadata": {"name": "n", "labels": 5}, "spec": ' + deep + b"}"
    with pytest.raises(msgspec.DecodeError):
        decode(Node, wrong)
    assert read_remains(wrong).metadata.name == "n"


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def cut(value: Any, deepest: int) -> Any:
    if isinstance(value, list | dict) and not deepest:
        return None
    if isinstance(value, dict):
        return {name: cut(member, deepest - 1) for name, member in value.items()}
    return [cut(member, deepest - 1) for member in value] if isinstance(value, list) else value


@given(JSON, st.integers(0, 4), st.booleans())
def test_cutting_off_depths_changes_nothing_above_them(value: Any, deepest: int, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert json.loads(without_depths(data, deepest)) == cut(value, deepest)


def test_what_a_kube_scheduler_sends_an_extender_about_a_node_with_a_nameless_image() -> None:
    arguments = {"Pod": RECORDED[Pod], "Nodes": {"items": [RECORDED[Node]]}, "NodeNames": None}
    assert decode(Arguments, encoded(arguments)).names == ["big"]


def test_the_recorded_objects_are_all_there() -> None:
    folder = Path(__file__).parent / "recorded"
    assert {kind.__name__ for kind in RECORDED} == {file.stem for file in folder.glob("*.json")}
