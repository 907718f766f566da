"""Each what-if of the documentation is one command, whose answer has the sign and size that a formula says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome

Rows = list[dict[str, Any]]

PAGE = (Path(__file__).resolve().parents[1] / "docs/howto/what-if.md").read_text("utf-8")
COMMANDS = dict(re.findall(r"^### (.+?)\n(?:(?!^###).)*?^\$ fabricsim (compare .+?)$", PAGE, re.MULTILINE | re.DOTALL))
GRADIENTS = 709_742_592
"""Bytes of what GPT-2 medium reduces: 354,871,296 parameters in fp16."""
RATE = 12.5e9
"""Bytes/s of 100 Gb/s."""


def _communication(row: dict[str, Any]) -> float:
    return float(row["exposed_communication_s"])


def _ring(ranks: int, rate: float) -> float:
    return 2 * (ranks - 1) / ranks * GRADIENTS / rate


def _of_spine(rows: Rows) -> None:
    """8 messages share 400 Gb/s, and have their own 100 of 800."""
    shared, free = (job["exposed_communication_s"] for row in rows for job in row["jobs"][:1])
    assert shared == pytest.approx(2 * free, rel=0.02)
    assert "shared with blue" in str(rows[0]["jobs"][0]["causes"])
    assert "shared with blue" not in str(rows[1]["jobs"][0]["causes"])


def _oversubscribed(rows: Rows) -> None:
    two, four = map(_communication, rows)
    assert four == pytest.approx(2 * two, rel=0.01)


def _faster(rows: Rows) -> None:
    for row, rate in zip(rows, (4 * RATE, 8 * RATE), strict=True):
        assert _communication(row) == pytest.approx(_ring(16, rate), rel=1e-3)


def _nvl72(rows: Rows) -> None:
    """No wire carries anything, and what experts exchange is bounded by NVLink: 300 GB/s against 25."""
    hosts, domain = rows
    assert not [row for row in domain["resources"] if row["kind"] == "wire"]
    experts = [row["breakdown_s"]["exposed_communication"]["expert"] for row in rows]
    assert 25 / 300 < experts[1] / experts[0] < 1
    assert domain["iteration_time_s"] < hosts["iteration_time_s"]


def _rail_only(rows: Rows) -> None:
    """4 uplinks of 16 ports down: what crosses the spine gains up to 4 times, and 2 of 8 hosts do not cross it."""
    spine, rails = (row["breakdown_s"]["exposed_communication"]["expert"] for row in rows)
    assert 2 < spine / rails < 4.2
    assert rows[0]["breakdown_s"]["compute"] == rows[1]["breakdown_s"]["compute"]


def _torus(rows: Rows) -> None:
    """15 MB leave each host, by one cable of 12.5 GB/s; or by four, with 8 of them on each if all were used alike."""
    switch, torus = (row["makespan_s"] for row in rows)
    assert switch == pytest.approx(15e6 / RATE, rel=0.01)
    assert 8e6 / RATE <= torus <= 12e6 / RATE * 1.01


def _dragonfly(rows: Rows) -> None:
    """64 MB cross two cables of 12.5 GB/s, which ECMP does not use alike."""
    switch, dragonfly = (row["makespan_s"] for row in rows)
    assert 64e6 / 2 / RATE <= dragonfly <= 64e6 / RATE
    assert dragonfly > 2 * switch


def _sharp(rows: Rows) -> None:
    """A rank sends all that it has once, and the ring 15/8 times."""
    ring, sharp = map(_communication, rows)
    assert sharp == pytest.approx(GRADIENTS / RATE, rel=0.01)
    assert ring == pytest.approx(_ring(16, RATE), rel=0.01)


def _per_step(rows: Rows, more: float) -> None:
    """77 all-reduces of 6 steps each."""
    calls = sum(row["count"] for row in rows[0]["collectives"])
    assert calls == 77
    before, after = map(_communication, rows)
    assert after - before == pytest.approx(calls * 6 * more, rel=1e-6)
    assert rows[1]["iteration_time_s"] > 1.05 * rows[0]["iteration_time_s"]


def _switches(rows: Rows) -> None:
    _per_step(rows, 1e-6)


def _cables(rows: Rows) -> None:
    _per_step(rows, 2 * (2000 - 5) * 5e-9)


def _buffer(rows: Rows) -> None:
    """While 1/8 of 4 MB leaves, 7/8 of it wait: 3.5 MB, 1.5 more than 2 MB hold, in packets of 4 KiB and headers."""
    enough, half = (row["counters"]["drops"] for row in rows)
    assert enough == 0
    assert half >= 1.5e6 / 4200
    assert rows[0]["makespan_s"] == pytest.approx(8 * 500e3 / RATE, rel=0.01)


def _slow_cable(rows: Rows) -> None:
    good, slow = map(_communication, rows)
    assert slow == pytest.approx(2 * good, rel=0.01)
    assert "host3" in str(rows[1]["causes"][:2])


def _lossy_cable(rows: Rows) -> None:
    """Of what crosses the cable, what was sent first and what was sent again, each packet is lost with 1 - (1-e)^8B."""
    good, lossy = rows
    errors, again = (lossy["counters"][name] for name in ("errors", "retransmissions"))
    packets = 2 * 2 * 15 / 16 * lossy["collectives"][0]["size_bytes"] / 4096  # out of the host, and into it
    lost = 1 - (1 - 1e-6) ** (8 * 4150)
    assert good["counters"]["errors"] == 0
    assert lost * packets * 0.9 < errors < lost * (packets + again) * 1.1
    assert lossy["iteration_time_s"] > good["iteration_time_s"] + 4.29 * bool(lossy["counters"]["timeouts"])
    assert "host0-* loses packets" in str(lossy["causes"][0])


def _slow_hosts(rows: Rows) -> None:
    before, after = (row["iteration_time_s"] for row in rows)
    assert after == pytest.approx(before / 0.9, rel=0.01)


def _mixed_transports(rows: Rows) -> None:
    """The ring goes at the pace of its slowest host, whose thread copies each byte."""
    rdma, mixed, sockets = map(_communication, rows)
    assert mixed == pytest.approx(sockets, rel=0.01)
    assert mixed > 2 * rdma
    assert rows[1]["causes"][0]["cause"] == "proxy thread"


def _mixed_gpus(rows: Rows) -> None:
    """All wait for the older ones."""
    new, mixed, old = (row["iteration_time_s"] for row in rows)
    assert mixed == pytest.approx(old, rel=1e-3)
    assert mixed > new
    assert rows[1]["critical_rank"] in {6, 7}


def _slow_gpu(rows: Rows) -> None:
    before, after = (row["iteration_time_s"] for row in rows)
    compute = rows[0]["breakdown_s"]["compute"]
    assert after - before == pytest.approx(compute / 0.8 - compute, rel=1e-3)
    assert rows[1]["critical_rank"] == 3


def _jitter(rows: Rows) -> None:
    """The slowest of 16 ranks takes longer than a mean one, and at most a tenth longer than without jitter."""
    little, much = (row["iteration_time_s"] for row in rows)
    compute = rows[0]["breakdown_s"]["compute"]
    assert 0 < much - little < 0.101 * compute
    assert "drawn from seed 0" in str(rows[1]["notes"])


def _link_down(rows: Rows) -> None:
    """At least the 50 ms that it is down, and at most these and a timeout of the transport, 100 ms."""
    before, after = (row["iteration_time_s"] for row in rows)
    assert 0.05 <= after - before <= 0.05 + 0.1 + 1e-3


def _plane_lost(rows: Rows) -> None:
    """15 MB of each host go by one port of 6.25 GB/s; before, by two, which ECMP does not use alike."""
    both, one = (row["makespan_s"] for row in rows)
    assert one == pytest.approx(15e6 / 6.25e9, rel=0.01)
    assert 15e6 / RATE <= both < 0.95 * one


def _two_jobs(rows: Rows) -> None:
    shared, apart = (row["jobs"] for row in rows)
    for one, other in zip(shared, apart, strict=True):
        assert one["exposed_communication_s"] == pytest.approx(2 * other["exposed_communication_s"], rel=0.02)
    assert "shared with red" in str(shared[1]["causes"])


def _storage(rows: Rows) -> None:
    """8 GB come into host 0 beside the ring, which has 1 of 9 parts of the wire at least."""
    before, after = map(_communication, rows)
    assert 1.5 * before < after < 9.1 * before
    assert "traffic checkpoint" in str(rows[1]["causes"])


CHECKS: dict[str, Callable[[Rows], None]] = {
    "Twice the rate of the spine only": _of_spine,
    "2:1 and 4:1": _oversubscribed,
    "800G": _faster,
    "NVL72": _nvl72,
    "Rail-only": _rail_only,
    "Torus": _torus,
    "Dragonfly": _dragonfly,
    "SHARP": _sharp,
    "+1 us per switch": _switches,
    "2 km cables": _cables,
    "Half the buffer": _buffer,
    "One slow cable": _slow_cable,
    "One lossy cable": _lossy_cable,
    "10 % slower hosts": _slow_hosts,
    "RDMA hosts beside IPoIB hosts": _mixed_transports,
    "Older GPUs beside newer ones": _mixed_gpus,
    "One GPU at 80 %": _slow_gpu,
    "Jitter": _jitter,
    "A link down in the middle of an all-reduce": _link_down,
    "A plane lost": _plane_lost,
    "Two jobs on shared and on disjoint leaves": _two_jobs,
    "Writes to storage": _storage,
}


def test_each_what_if_of_the_page_is_checked() -> None:
    assert list(COMMANDS) == list(CHECKS)
    assert PAGE.count("$ fabricsim ") == len(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("title", CHECKS)
def test_the_answer_has_the_sign_and_size_that_a_formula_says(title: str, fabricsim: Callable[..., Outcome]) -> None:
    run = fabricsim(*shlex.split(COMMANDS[title]), "--json")
    assert run.code == 0, run.err
    CHECKS[title](json.loads(run.out))
