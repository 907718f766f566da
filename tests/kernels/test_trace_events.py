from __future__ import annotations

import json

import numpy as np
import pytest

from fabricsim.engine.flow.state import table
from fabricsim.records.program import NONE
from fabricsim.traces.kineto import json_text
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.json_text import past_value
from fabricsim.traces.kineto.trace_events import TRACE_EVENT, TRACE_SCAN, scan

PS_PER_NS = 1000


def text(content: str | bytes) -> np.ndarray:
    return np.frombuffer(bytearray(content.encode() if isinstance(content, str) else content), np.uint8)


def found(content: str | bytes, room: int = 50) -> tuple[np.ndarray, np.record, int]:
    events, states = table(room, TRACE_EVENT), table(1, TRACE_SCAN)
    data = text(content)
    with np.errstate(over="ignore"):  # hashes wrap around, which only uncompiled code minds
        position = int(scan(data, 0, len(data), events, states))
    return events[: states[0].count], states[0], position


def kernel(**changes: object) -> dict[str, object]:
    arguments = {"External id": 7, "device": 0, "stream": 20, "correlation": 12, "bytes": 64}
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 20, "ts": 5, "dur": 2, "args": arguments}
    return {**event, **changes}


def test_numbers_of_an_event() -> None:
    content = json.dumps(kernel(ts=100.25, dur=1.007)) + "," + json.dumps(kernel(ts=99, name="second")) + "]"

    events, state, position = found(content)

    assert (state.status, state.seen, position) == (scanner.END, 2, len(content))
    assert state.origin == 100
    assert events["start"].tolist() == [250 * PS_PER_NS, -1000 * PS_PER_NS]
    assert events["duration"].tolist() == [1007 * PS_PER_NS, 2000 * PS_PER_NS]
    assert events["category"].tolist() == [scanner.KERNEL] * 2
    columns = ("external", "device", "stream", "correlation", "bytes", "awaited_stream", "awaited_record")
    assert [events[column][0] for column in columns] == [7, 0, 20, 12, 64, NONE, NONE]
    names = [content[event["name"] : event["name_end"]] for event in events]
    assert names == ["k", "second"]
    assert events["name_hash"][0] != events["name_hash"][1]
    assert json.loads(content[events["arguments"][0] : events["arguments_end"][0]])["stream"] == 20


@pytest.mark.parametrize(
    ("category", "code"),
    [
        ("Kernel", scanner.KERNEL),
        ("gpu_memcpy", scanner.COPY),
        ("gpu_memset", scanner.COPY),
        ("cuda_runtime", scanner.CALL),
        ("cuda_driver", scanner.CALL),
        ("Runtime", scanner.CALL),
        ("cuda_sync", scanner.SYNC),
    ],
)
def test_categories(category: str, code: int) -> None:
    events, _, _ = found(json.dumps(kernel(cat=category)) + "]")

    assert events["category"].tolist() == [code]


@pytest.mark.parametrize(
    ("category", "name", "mark"),
    [
        ("cpu_op", "record_param_comms", scanner.PARAMETERS),
        ("Operator", "record_param_comms", scanner.PARAMETERS),
        ("user_annotation", "nccl:all_reduce", scanner.COLLECTIVE),
        ("user_annotation", "ProfilerStep#3", scanner.STEP),
    ],
)
def test_marks(category: str, name: str, mark: int) -> None:
    events, _, _ = found(json.dumps(kernel(cat=category, name=name)) + "]")

    assert events["mark"].tolist() == [mark]


@pytest.mark.parametrize(
    "changes",
    [
        {"cat": "python_function"},
        {"cat": "cpu_op", "name": "aten::mm"},
        {"cat": "user_annotation", "name": "record_param_commas"},
        {"cat": "ac2g", "ph": "s"},
        {"ph": "M"},
        {"cat": "kernels"},
        {"name": 5},
    ],
)
def test_what_does_not_matter(changes: dict[str, object]) -> None:
    event = kernel(**changes)
    for order in (event, dict(reversed(event.items()))):
        events, state, _ = found(json.dumps(order) + ',{"a":[{},[1,{"b":"]}"}]]}]')

        assert len(events) == 0
        assert (state.status, state.seen) == (scanner.END, 2)


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
def test_times_are_exact(number: str, whole: int, ps: int) -> None:
    content = json.dumps(kernel(ts=0)).replace('"ts": 0', f'"ts": {number}') + "]"

    events, state, _ = found(content)

    assert (state.origin, events["start"][0], events["defects"][0]) == (whole, ps, 0)


@pytest.mark.parametrize("number", ['"x"', "null", "-", "1e", "1e999", "9" * 30, "1.2.3", "[1]", "4e15", "1e1x"])
def test_times_that_are_none(number: str) -> None:
    content = json.dumps(kernel(ts=0)).replace('"ts": 0', f'"ts": {number}') + "]"
    events, _, _ = found(content)
    assert events["defects"].tolist() == [scanner.BAD_START]

    content = json.dumps(kernel(dur=0)).replace('"dur": 0', f'"dur": {number}') + "]"
    events, _, _ = found(content)
    assert events["defects"].tolist() == [scanner.BAD_DURATION]


def test_a_negative_duration_is_none() -> None:
    events, _, _ = found(json.dumps([kernel(dur=-3)])[1:])

    assert (events["duration"].tolist(), events["defects"].tolist()) == ([0], [scanner.NEGATIVE])


@pytest.mark.parametrize("number", ['"a"', "1.5", "9" * 30, "true", "-"])
def test_a_number_that_is_none_is_not_there(number: str) -> None:
    content = json.dumps(kernel()).replace('"stream": 20', f'"stream": {number}') + "]"

    events, _, _ = found(content)

    assert events["stream"].tolist() == [NONE]


def test_any_cut_waits_for_more() -> None:
    first = json.dumps(kernel(args={"correlation": 3, "a": {"b": ['\\"', 1.5]}}))
    content = first + ", " + json.dumps(kernel())
    for cut in range(len(content) + 1):
        events, state, position = found(content[:cut])

        assert state.status == scanner.MORE
        assert len(events) == (cut >= len(first)) + (cut == len(content))
        assert position <= cut


def test_no_room() -> None:
    content = json.dumps([kernel(), kernel(), kernel()])[1:]

    events, state, position = found(content, 2)

    assert (len(events), state.status) == (2, scanner.FULL)
    assert content[position] == "{"


@pytest.mark.parametrize(
    "content",
    ["5]", "{5}", '{"a" 5}', '{"a":}', '{"a":[}', '{"a":{]}', '{"a":5"b"}', "x", '{"a":"b",:}', '"a"', "{{}}"],
)
def test_no_json(content: str) -> None:
    _, state, _ = found(content)

    assert state.status == json_text.NO_JSON


def test_nesting_is_bounded() -> None:
    deep = json_text.MOST_NESTED
    assert found('{"a":' + "[" * deep + "]" * deep + "}]")[1].status == scanner.END
    assert found('{"a":' + "[" * (deep + 1) + "]" * (deep + 1) + "}]")[1].status == json_text.TOO_DEEP


@pytest.mark.parametrize("value", ['"a\\"]"', "12.5", "null", "[[], {}]", '{"a": ["}"]}'])
def test_past_value(value: str) -> None:
    data = text(value + " ,")

    assert past_value(data, 0, len(data)) == len(value)
