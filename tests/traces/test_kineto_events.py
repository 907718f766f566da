"""Which events of Kineto traces matter, and what is read of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.traces.kineto import file as kineto_file
from fabricsim.traces.kineto import trace_events as kinds
from fabricsim.traces.kineto.events import Events, read_events
from fabricsim.traces.kineto.file import MOST_NESTED, NO_JSON, past_value

PS_PER_NS = 1000
Found = "Callable[[object], Events]"


def kernel(**changes: object) -> dict[str, object]:
    arguments = {"External id": 7, "device": 0, "stream": 20, "correlation": 12, "bytes": 64}
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 20, "ts": 5, "dur": 2, "args": arguments}
    return {**event, **changes}


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Read a list of events, or a text."""

    def read(content: object) -> Events:
        file = tmp_path / "a.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        (only,) = (read_events(source) for source in sources([file]))
        return only

    return read


def test_numbers_of_an_event(found: Found) -> None:
    read = found([kernel(ts=100.25, dur=1.007), kernel(ts=99, name="second", args={})])

    assert read.origin == 100
    assert read.rows["start"].tolist() == [250 * PS_PER_NS, -1000 * PS_PER_NS]
    assert read.rows["duration"].tolist() == [1007 * PS_PER_NS, 2000 * PS_PER_NS]
    columns = ("category", "mark", "external", "correlation", "bytes", "awaited_stream", "awaited_record")
    assert [read.rows[column][0] for column in columns] == [kinds.KERNEL, kinds.PLAIN, 7, 12, 64, NONE, NONE]
    assert [read.names[number] for number in read.rows["name"]] == ["k", "second"]
    assert [read.places[number] for number in read.rows["place"]] == [(True, 0, 20)] * 2


@pytest.mark.parametrize(
    ("category", "code"),
    [
        ("Kernel", kinds.KERNEL),
        ("gpu_memcpy", kinds.COPY),
        ("gpu_memset", kinds.COPY),
        ("cuda_runtime", kinds.CALL),
        ("cuda_driver", kinds.CALL),
        ("Runtime", kinds.CALL),
        ("cuda_sync", kinds.SYNC),
    ],
)
def test_categories(found: Found, category: str, code: int) -> None:
    assert found([kernel(cat=category)]).rows["category"].tolist() == [code]


@pytest.mark.parametrize(
    ("category", "name", "mark"),
    [
        ("cpu_op", "record_param_comms", kinds.PARAMETERS),
        ("Operator", "record_param_comms", kinds.PARAMETERS),
        ("user_annotation", "nccl:all_reduce", kinds.COLLECTIVE),
    ],
)
def test_marks(found: Found, category: str, name: str, mark: int) -> None:
    assert found([kernel(cat=category, name=name)]).rows["mark"].tolist() == [mark]


def test_steps(found: Found) -> None:
    read = found([kernel(), kernel(cat="user_annotation", name="ProfilerStep#3", ts=6)])
    assert read.steps == [(3, 10**6, 3 * 10**6)]
    assert len(read.rows) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"cat": "python_function"},
        {"cat": "cpu_op", "name": "aten::mm"},
        {"cat": "user_annotation", "name": "record_param_commas"},
        {"cat": "ac2g", "ph": "s"},
        {"ph": "M"},
        {"ph": None},
        {"cat": "kernels"},
        {"cat": ["kernel"]},
        {"name": 5},
        {"name": None},
    ],
)
def test_what_does_not_matter(found: Found, changes: dict[str, object]) -> None:
    event = kernel(**changes)
    for order in (event, dict(reversed(event.items()))):
        read = found([order, {"a": [{}, [1, {"b": "]}"}]]}, kernel(name="last")])

        assert [read.names[number] for number in read.rows["name"]] == ["last"]


@pytest.mark.parametrize(
    ("number", "whole", "ps"),
    [
        ("4458677009853.422", 4458677009853, 422_000),
        ("1694128201435418.123456", 1694128201435418, 123_456),
        ("5e-05", 0, 50),
        ("1.5E+3", 1500, 0),
        ("0.0000009", 0, 0),
    ],
)
def test_times_are_exact(found: Found, number: str, whole: int, ps: int) -> None:
    read = found(json.dumps([kernel(ts=0)]).replace('"ts": 0', f'"ts": {number}'))

    assert (read.origin, read.rows["start"].tolist()) == (whole, [ps])


@pytest.mark.parametrize("number", ['"5"', "null", "true", "NaN", "1e999", "9" * 30, "[1]", "4e15"])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_times_that_are_none(found: Found, key: str, number: str) -> None:
    good = json.dumps(kernel(ts=1, dur=1))
    bad = good.replace(f'"{key}": 1,', f'"{key}": {number},')
    with pytest.raises(TraceError, match=f"at byte {len(good) + 2}: the {key} of the event 'k' is missing"):
        found(f"[{good},{bad}]")


def test_a_negative_duration_is_none(found: Found) -> None:
    read = found([kernel(dur=-3)])

    assert (read.rows["duration"].tolist(), read.negative) == ([0], 1)


@pytest.mark.parametrize("number", ['"a"', "1.5", "9" * 30, "9" * 5000, "true", "null", "[]"])
def test_a_number_that_is_none_is_not_there(found: Found, number: str) -> None:
    text = json.dumps([kernel(tid="b")])

    assert found(text.replace('"stream": 20', f'"stream": {number}')).places == [(True, 0, NONE)]
    assert found(text.replace('"b"', number).replace("stream", "other")).places == [(True, 0, NONE)]


@pytest.mark.parametrize("arguments", ["[]", '"a"', "5", "null"])
def test_arguments_that_are_no_object_say_nothing(found: Found, arguments: str) -> None:
    event = kernel(name="ncclKernel_AllReduce", tid=3)
    read = found(json.dumps([event]).replace(json.dumps(event["args"]), arguments))
    assert (read.places, read.rows["correlation"].tolist()) == ([(True, 0, 3)], [NONE])


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        ('"k\t\x01"', "k\t\x01"),
        (r'"k\ud800"', "k\ufffd"),
        (r'"C:\Users"', r"C:\Users"),  # as PyTorch on Windows writes paths
        ('"k", "occupancy": NaN, "a": -inf', "k"),
    ],
)
def test_what_is_not_quite_json_is_read(found: Found, odd: str, name: str) -> None:
    events = json.dumps([kernel(), kernel(ts=100.25, name="here"), kernel(ts=200.5)])
    read = found(events.replace('"here"', odd).replace("}, ", "}, , "))

    assert [read.names[number] for number in read.rows["name"]] == ["k", name, "k"]
    assert read.rows["start"].tolist() == [0, 95_250 * PS_PER_NS, 195_500 * PS_PER_NS]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 100, 1000])
def test_any_cut_is_said(found: Found, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(kineto_file, "_CHUNK", chunk)
    first = json.dumps(kernel(args={"correlation": 3, "a": {"b": ['\\"', 1.5]}}))
    content = "[" + first + ", " + json.dumps(kernel())
    for cut in range(1, len(content) + 1, 3):
        number = 1 + (cut > len(first)) + (cut == len(content))
        with pytest.raises(TraceError, match=f"ends in or after event {number};"):
            found(content[:cut])
    assert len(found(content + "]").rows) == 2


@pytest.mark.parametrize(
    "content",
    ["5]", "{5}", '{"a" 5}', '{"a":}', '{"a":[}', '{"a":{]}', '{"a":5"b"}', "x", '{"a":"b",:}', '"a"', "{{}}"],
)
def test_no_json(found: Found, content: str) -> None:
    with pytest.raises(TraceError, match=r"at byte \d+: this .*is no JSON"):
        found(f"[{json.dumps(kernel())}, {content}]")


def test_nesting_is_bounded(found: Found) -> None:
    deep = 2000
    with pytest.raises(TraceError, match=f"at byte 1: more than {MOST_NESTED} brackets"):
        found('[{"a":' + "[" * deep + "]" * deep + "}]")


@pytest.mark.parametrize("value", ['"a\\"]"', "12.5", "null", "[[], {}]", '{"a": ["}"]}'])
def test_past_value(value: str) -> None:
    assert past_value(f"{value} ,".encode(), 0) == len(value)
    assert past_value(b"1{", 0) == NO_JSON
