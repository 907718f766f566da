from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from fabricsim.errors import ResultError
from fabricsim.results.difference import difference
from fabricsim.results.hdf5 import read, read_any, write
from fabricsim.results.packets import congested
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise, to_json
from fabricsim.results.traffic import DEMAND, Matrix, ResourceUse, TrafficRecord, summarise_traffic
from tests.reference import factory


@pytest.fixture
def recorded(two_ranks: RunRecord) -> RunRecord:
    return replace(two_ranks, engine="packet", packets=factory.packets())


# ---- the most congested wires -------------------------------------------------------------------


def test_losses_count_more_than_marks_than_depth_than_pauses() -> None:
    packets = factory.packets(
        wires={
            "paused": {"packets": 9, "deepest": 1, "pauses": 5, "paused": 10**9},
            "deep": {"packets": 9, "deepest": 9000},
            "marking": {"packets": 9, "deepest": 100, "marks": 3},
            "trimming": {"packets": 9, "deepest": 100, "trims": 2},
            "dropping": {"packets": 9, "deepest": 100, "drops": 2, "errors": 1},
            "idle": {},
        }
    )

    rows = congested(packets)
    assert [row["name"] for row in rows] == ["dropping", "trimming", "marking", "deep", "paused"]
    assert rows[-1]["paused_s"] == pytest.approx(1e-3)
    assert (rows[0]["drops"], rows[0]["errors"], rows[3]["deepest_queue_bytes"]) == (2, 1, 9000)


def test_summary_of_a_packet_run_has_queues_and_that_of_a_flow_run_has_not(
    recorded: RunRecord, two_ranks: RunRecord
) -> None:
    assert [row["name"] for row in summarise(recorded)["queues"]] == ["host0 > leaf0"]
    assert '"deepest_queue_bytes": 64000' in to_json(summarise(recorded))
    assert "queues" not in summarise(two_ranks)


# ---- the file -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_written_is_read(recorded: RunRecord, tmp_path: Path) -> None:
    write(recorded, tmp_path / "x.h5")
    packets, expected = read(tmp_path / "x.h5").packets, recorded.packets
    assert packets is not None
    assert expected is not None

    assert packets.names == expected.names
    assert packets.wires.tobytes() == expected.wires.tobytes()
    for found, tap in zip(packets.taps, expected.taps, strict=True):
        assert (found.kind, found.of) == (tap.kind, tap.of)
        assert np.array_equal(found.time, tap.time)
        assert np.array_equal(found.value, tap.value)
    assert packets.log is not None
    assert expected.log is not None
    assert packets.log.entries.tobytes() == expected.log.entries.tobytes()
    for name in ("wires", "payload", "overhead", "protocol", "ecn"):
        assert getattr(packets.log, name) == getattr(expected.log, name)
    assert (packets.log.source.tolist(), packets.log.target.tolist()) == ([0], [1])


@pytest.mark.slow
def test_a_tap_whose_time_goes_back_is_refused(recorded: RunRecord, tmp_path: Path) -> None:
    write(recorded, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["series/tap0/time"][...] = file["series/tap0/time"][()][::-1]

    with pytest.raises(ResultError, match="the times of series/tap0 do not ascend"):
        read(tmp_path / "x.h5")


@pytest.mark.slow
def test_flow_run_has_no_packets(two_ranks: RunRecord, tmp_path: Path) -> None:
    write(two_ranks, tmp_path / "x.h5")

    assert read(tmp_path / "x.h5").packets is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "kind"), [("series/tap0", "queue"), ("series/tap1", "window"), ("packets", ""), ("packet_log", "")]
)
def test_xarray_opens_each_group(recorded: RunRecord, tmp_path: Path, group: str, kind: str) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    write(recorded, tmp_path / "x.h5")
    with xarray.open_dataset(tmp_path / "x.h5", group=group, engine="h5netcdf") as content:
        if kind:
            assert content.attrs["kind"] == kind
            assert content["value"].dims == ("time",)
            assert content["value"].attrs["units"] == {"queue": "B", "window": "packets"}[kind]
        else:
            assert len(content.data_vars) >= 9


@pytest.fixture
def sent(recorded: RunRecord) -> TrafficRecord:
    flows = np.array([(7, 0, 1, 1000, 0), (8, 2, 1, 5000, 40)], DEMAND)
    took, alone = np.array([900, 2000]), np.array([800, 1000])
    links = tuple(ResourceUse(link._replace(calls=()), number) for number, link in enumerate(recorded.links))
    about = {name: getattr(recorded, name) for name in ("name", "transport", "seed", "version", "source", "resolved")}
    about |= {name: getattr(recorded, name) for name in ("counters", "packets", "series")}
    return TrafficRecord(
        **about,
        engine="packet",
        matrix=Matrix(flows, 3, "mine.csv"),
        completion=took,
        alone=alone,
        links=links,
        wall_seconds=0.0,
    )


@pytest.mark.slow
def test_a_traffic_run_is_read_as_it_was_written(sent: TrafficRecord, tmp_path: Path) -> None:
    write(sent, tmp_path / "x.h5")

    again = read_any(tmp_path / "x.h5")

    assert isinstance(again, TrafficRecord)
    assert again.matrix.flows.tolist() == sent.matrix.flows.tolist()
    assert summarise_traffic(again) == summarise_traffic(sent)
    assert (again.links, again.source, again.resolved) == (sent.links, sent.source, sent.resolved)
    with h5py.File(tmp_path / "x.h5") as file:
        assert list(file) == ["demand", "links", "packet_log", "packets", "series"]
        assert file["series/tap0/value"][()].tolist() == [0.0, 64000.0, 0.0]
    with pytest.raises(ResultError, match="is the result of fabricsim traffic, not of a job"):
        read(tmp_path / "x.h5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("source", 1, "flows that no matrix has"),
        ("target", 3, "flows that no matrix has"),
        ("source", -1, "flows that no matrix has"),
        ("bytes", 0, "flows that no matrix has"),
        ("start", -1, "flows that no matrix has"),
        ("id", 8, "flows that no matrix has"),
        ("alone", 0, "flows that take no time"),
    ],
)
def test_a_damaged_traffic_run_is_refused(
    sent: TrafficRecord, tmp_path: Path, column: str, value: int, message: str
) -> None:
    write(sent, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file["demand"][column][0] = value

    with pytest.raises(ResultError, match=message):
        read_any(tmp_path / "x.h5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "damage", "message"),
    [
        ("series", {"taps": np.int64(9)}, "group series/tap2 is missing"),
        ("series/tap0", {"kind": "temperature"}, "unknown kind 'temperature'"),
        ("packet_log", {"protocol": "token ring"}, "unknown protocol 'token ring'"),
        ("packet_log/wire", 9, "names a wire that is not there"),
        ("packet_log/flow", -1, "names a flow that is not there"),
        ("packet_log/number", -1, "packet without number"),
    ],
)
def test_damaged_recording_is_refused(
    recorded: RunRecord, tmp_path: Path, path: str, damage: dict[str, object] | int, message: str
) -> None:
    write(recorded, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        if isinstance(damage, dict):
            file[path].attrs.update(damage)
        else:
            file[path][0] = damage

    with pytest.raises(ResultError, match=message):
        read(tmp_path / "x.h5")


# ---- two runs -----------------------------------------------------------------------------------


def test_difference_of_two_runs() -> None:
    fast, slow = factory.pipeline(), factory.pipeline(slow=2)
    found = difference(fast, slow)

    assert found.iteration.first == pytest.approx(fast.iteration / 1e12)
    assert found.iteration.change == pytest.approx(slow.iteration / fast.iteration - 1)
    by_name = {pair.name: pair for pair in found.calls}
    reduce = by_name["data all_reduce, 4 ranks, 104,857,600 B"]
    assert (reduce.first, reduce.second) == (pytest.approx(30e-3), pytest.approx(60e-3))
    assert {pair.name: pair.change for pair in found.timers}["optimizer"] == pytest.approx(0)


def test_links_with_the_largest_difference_come_first(two_ranks: RunRecord) -> None:
    wire, *others = two_ranks.links
    found = difference(two_ranks, replace(two_ranks, links=(wire._replace(load=wire.load / 2), *others)))

    # both wires carry a share of what the link can, 0.5 and 0.25, and the thread works for 0.8 of the time
    assert found.links[0] == (wire.name, pytest.approx(0.5), pytest.approx(0.25))
    assert {pair.name: pair.first for pair in found.links[1:]} == pytest.approx(
        {others[0].name: 0.25, "host0 proxy": 0.8}
    )
    assert [pair.second - pair.first for pair in found.links[1:]] == [0, 0]
