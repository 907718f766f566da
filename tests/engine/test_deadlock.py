"""A ring of switches and routes that go round it: with PFC or credits the buffers wait for one another for good."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from numpy.typing import NDArray

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError
from fabricsim.scenario.load import load

Ring = Callable[..., NDArray[np.int64]]

FLOWS = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
SIZE = 400_000  # bytes: far more than the buffers of the ring hold
_RING = 'name = "ring", latency = "0ns", forwarding = "store-and-forward"'
PFC = f'{{{_RING}, pfc = {{above = "20kB", below = "10kB", headroom = "40kB"}}}}'
CREDITS = f'{{{_RING}, credits = {{per_class = "16KiB"}}}}'
ENDLESS = f"{{{_RING}}}"


def ring_of(switches: int, way: int, folder: Path) -> list[str]:
    """Settings of a ring with a host on each switch, whose routes go `way` switches on, always in one direction."""
    cables = ["a,b,gbps,delay_ns", *(f"{n},{switches + n},100,100" for n in range(switches))]
    cables += [f"{switches + n},{switches + (n + 1) % switches},100,100" for n in range(switches)]
    paths = ["src,dst,node_path"]
    for source in range(switches):
        nodes = [switches + (source + step) % switches for step in range(way + 1)]
        target = (source + way) % switches
        paths.append(f"{source},{target},{'-'.join(map(str, [source, *nodes, target]))}")
    (folder / "cables.csv").write_text("\n".join(cables) + "\n", encoding="utf-8")
    (folder / "paths.csv").write_text("\n".join(paths) + "\n", encoding="utf-8")
    return [
        f"cluster.hosts={switches}",
        f'fabric={{topology = "file", links = "{folder}/cables.csv", paths = "{folder}/paths.csv"}}',
        "fabric.deadlocks=allow",
    ]


@pytest.fixture
def run(tmp_path: Path) -> Ring:
    """Sends `SIZE` bytes from each host of a ring to the one `way` switches on."""

    def _(switches: int, way: int, switch: str, *more: str) -> NDArray[np.int64]:
        settings = [*ring_of(switches, way, tmp_path), "engine=packet", f"fabric.switch={switch}", *more]
        env = simpy.Environment()
        fabric = Fabric(env, load("ideal-16", settings).scenario, time_unit=1)
        flows = [(host, (host + way) % switches, SIZE, 0) for host in range(switches)]
        done: Any = env.run(fabric.send_all(np.array(flows, FLOWS), [0] * switches))
        return np.asarray(done, np.int64)

    return _


def named(message: str) -> list[str]:
    """Links of the circle that a message names."""
    found = re.search(r"over (.*) \(class", message)
    assert found is not None
    return found[1].split(", ")


@pytest.mark.slow
@pytest.mark.parametrize("switch", [PFC, CREDITS])
@pytest.mark.parametrize(("switches", "way"), [(3, 2), (4, 2), (4, 3)])
def test_a_circle_of_full_buffers_is_named(run: Ring, switch: str, switches: int, way: int) -> None:
    with pytest.raises(SimulationError, match="deadlock: cyclic buffer dependency") as stopped:
        run(switches, way, switch)
    circle = named(str(stopped.value))
    numbers = [switches + (n + 1) % switches for n in range(switches)]
    around = {f"switch{switches + n}->switch{number}" for n, number in enumerate(numbers)}
    assert set(circle) == around
    ends = [link.split("->") for link in circle]
    assert all(here[1] == there[0] for here, there in zip(ends, ends[1:] + ends[:1], strict=True))


def test_timeouts_that_never_end_do_not_hide_it(run: Ring) -> None:
    timers = 'transport.packet={initial_timeout = "50us", minimum_timeout = "50us", maximum_timeout = "100us"}'
    with pytest.raises(SimulationError, match="deadlock: cyclic buffer dependency"):
        run(4, 2, PFC, timers)


@pytest.mark.parametrize("switch", [PFC, CREDITS])
def test_routes_that_do_not_go_round_are_no_deadlock(run: Ring, switch: str) -> None:
    done = run(4, 1, switch)  # to the next switch only: each link waits for a host
    acknowledgements = -(-SIZE // 4096) * 64  # of the flow to its host, which leave over the same link
    alone = (SIZE + acknowledgements + 2 * 4096) / 12.5e9 * 1e12 + 3 * 100_000
    assert done == pytest.approx(alone, rel=0.005)


def test_without_back_pressure_the_ring_goes_on(run: Ring) -> None:
    assert (run(4, 2, ENDLESS) < 1e9).all()


def test_credits_for_less_than_a_packet_are_refused(run: Ring) -> None:
    # 4040 B and 60 B of headers take 65 blocks of 64 B
    sizes = 'transport.packet={payload = "4040B", header = "60B", ack_wire = "64B"}'

    def credits_for(size: int) -> str:
        return f'{{{_RING}, credits = {{per_class = "{size}B"}}}}'

    assert (run(3, 1, credits_for(65 * 64), sizes) > 0).all()
    with pytest.raises(SimulationError, match="credits for 4159 B per class, and a full packet takes 4160 B"):
        run(3, 1, credits_for(65 * 64 - 1), sizes)
