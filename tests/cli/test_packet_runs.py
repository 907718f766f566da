from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

Fabricsim = Callable[..., tuple[int, str, str]]

RATE = 12.5e9  # bytes/s of ideal-100g
PACKET = 4096  # bytes, without header
INCAST = ("traffic", "incast", "--engine", "packet", "--flows", "4")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def summary(fabricsim: Fabricsim, *arguments: str) -> dict[str, Any]:
    code, out, err = fabricsim(*arguments, "--json")
    assert (code, err) == (0, "")
    content: dict[str, Any] = json.loads(out)
    return content


# ---- traffic ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_traffic_shows_use_queues_and_counts_of_packets(fabricsim: Fabricsim) -> None:
    content = summary(fabricsim, *INCAST, "--size", f"{100 * PACKET}B")

    assert content["engine"] == "packet"
    # the last link is busy from the first packet to the last; the first one needs two cables and a header before it
    makespan = 400 * PACKET / RATE + 50e-9 + 64 / RATE
    assert content["makespan_s"] == pytest.approx(makespan, rel=1e-6)
    hottest = content["links"][0]
    assert (hottest["name"], hottest["flows"], hottest["payload_bytes"]) == ("switch0->host0", 4, 400 * PACKET)
    assert hottest["utilisation"] == pytest.approx(400 * PACKET / RATE / makespan, rel=1e-6)
    worst = content["queues"][0]
    assert (worst["name"], worst["packets"], worst["drops"], worst["marks"]) == ("switch0->host0", 400, 0, 0)
    # four come for one that leaves
    assert worst["deepest_queue_bytes"] == pytest.approx(300 * PACKET, rel=0.02)
    assert content["counters"]["data_hops"] == 2 * 400
    assert content["counters"]["retransmissions"] == 0


@pytest.mark.slow
def test_what_was_dropped_is_sent_again_and_told(fabricsim: Fabricsim) -> None:
    arguments = (*INCAST, "--transport", "cubic-100g", "--size", "1MB", "--set", "transport.switch.buffer.shared=30kB")
    content = summary(fabricsim, *arguments)

    worst = content["queues"][0]
    assert worst["name"] == "switch0->host0"
    assert worst["drops"] == content["counters"]["drops"] > 0
    assert content["counters"]["retransmissions"] >= worst["drops"]
    assert worst["deepest_queue_bytes"] <= 30_000
    _, out, _ = fabricsim(*arguments)
    assert f"Most congested: switch0->host0, {worst['drops']:,} packets dropped" in out


@pytest.mark.slow
def test_traffic_records_what_is_asked_for(fabricsim: Fabricsim, tmp_path: Path) -> None:
    taps = ("--tap", "queue:switch0->host0", "--tap", "flow:1", "--tap", "rate:switch0->*", "--pcap", "*->host0")
    code, _, err = fabricsim(*INCAST, "--size", "100kB", *taps, "-o", "out")

    assert code == 0
    (stem,) = [path.stem for path in (tmp_path / "out").glob("*.h5")]
    written = [f"{stem}-{name}.png" for name in ("fct", "packets", "queues", "rates", "windows")]
    written += [f"{stem}.{end}" for end in ("h5", "json", "pcapng")]
    assert stem.startswith("incast-")
    assert names(tmp_path / "out") == written
    assert sorted(re.findall(r"wrote out/(.*)", err)) == written
    with h5py.File(tmp_path / "out" / f"{stem}.h5") as file:
        queue = file["series/tap0"]
        assert (queue.attrs["kind"], queue.attrs["of"]) == ("queue", "switch0->host0")
        assert queue["value"][-1] == 0
        assert file["series/tap1"].attrs["of"] == "1->0"
        carried = file["series/rate"][()].sum(axis=1) * file["series"].attrs["interval_ps"] / 1e12
        to_host0 = [name.decode() for name in file["series/link"][()]].index("switch0->host0")
        assert carried[to_host0] == pytest.approx(4 * 100_000)
        assert np.count_nonzero(carried) == 1
    image = (tmp_path / "out" / f"{stem}.pcapng").read_bytes()
    assert image[:4] == b"\x0a\x0d\x0d\x0a"
    assert b"switch0->host0" in image


@pytest.mark.slow
def test_nothing_is_recorded_that_was_not_asked_for(fabricsim: Fabricsim, tmp_path: Path) -> None:
    assert fabricsim(*INCAST, "--size", "10kB", "-o", "out")[0] == 0

    assert [name.rpartition("packet")[2] for name in names(tmp_path / "out")] == ["-fct.png", ".h5", ".json"]


# ---- run, plot, rerun ---------------------------------------------------------------------------


@pytest.mark.slow
def test_run_records_and_plot_draws_it(fabricsim: Fabricsim, small: Path, tmp_path: Path) -> None:
    taps = ("--tap", "queue:host0->*", "--tap", "flow:0->1", "--tap", "rate:*->host1", "--pcap", "*->host1")
    code, out, err = fabricsim("run", small.name, "--engine", "packet", *taps, "-o", "mine.h5")

    assert (code, err) == (0, "wrote mine.h5\nwrote mine.pcapng\n")
    assert "Most congested wires, and the queues before them" in out
    assert fabricsim("plot", "mine.h5", "-o", "pictures")[0] == 0
    kinds = ("breakdown", "packets", "queues", "timeline", "utilisation", "windows")
    assert names(tmp_path / "pictures") == [f"mine-{kind}.png" for kind in kinds]


@pytest.mark.slow
def test_packet_run_without_taps_draws_what_held_its_calls(fabricsim: Fabricsim, small: Path, tmp_path: Path) -> None:
    assert fabricsim("run", small.name, "--engine", "packet", "-o", "mine.h5")[0] == 0
    assert fabricsim("plot", "mine.h5", "-o", "pictures")[0] == 0

    assert names(tmp_path / "pictures") == ["mine-breakdown.png", "mine-timeline.png", "mine-utilisation.png"]


@pytest.mark.slow
def test_rerun_of_a_packet_result_gives_the_same_file(fabricsim: Fabricsim, small: Path, tmp_path: Path) -> None:
    assert fabricsim("run", small.name, "--engine", "packet", "--seed", "5", "-o", "first.h5")[0] == 0
    assert fabricsim("rerun", "first.h5", "-o", "second.h5")[0] == 0

    assert (tmp_path / "first.h5").read_bytes() == (tmp_path / "second.h5").read_bytes()


# ---- compare ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compare_of_engines_tells_where_they_differ(fabricsim: Fabricsim, small: Path, tmp_path: Path) -> None:
    code, out, err = fabricsim("compare", small.name, "--engine", "flow,packet", "-o", "out")

    assert (code, err) == (0, "wrote out/comparison.png\n")
    for title in (
        "Collectives, time as the mean",
        "Timers",
        "Links whose use differs the most",
        "Most congested wires",
    ):
        assert title in out
    assert re.search(r"^forward-compute .* \+0\.0 %$", out, re.MULTILINE)
    assert names(tmp_path / "out") == ["comparison.png"]
    assert re.search(r"^switch0->host0 .* pp$", out, re.MULTILINE)


@pytest.mark.slow
def test_compare_of_engines_as_json(fabricsim: Fabricsim, small: Path) -> None:
    code, out, _ = fabricsim("compare", small.name, "--engine", "packet,flow", "--json")
    packet, flow = json.loads(out)

    assert code == 0
    assert (packet["engine"], flow["engine"]) == ("packet", "flow")
    assert packet["timers_s"]["optimizer"] == pytest.approx(flow["timers_s"]["optimizer"])
    assert "queues" in packet
    assert "queues" not in flow


def test_headroom_that_is_too_small_is_warned_of_once_before_the_run(fabricsim: Fabricsim) -> None:
    scarce = ("--transport", "roce-100g-pfc", "--set", "transport.switch.pfc.headroom=1000B", "--size", "1MB")
    code, out, err = fabricsim(*INCAST, *scarce)

    assert (code, "Most congested" in out) == (0, True)
    assert err.startswith("warning: transport.switch.pfc.headroom: 1000 B are too few on 16 of 32 links")
    assert err.count("\n") == 1
