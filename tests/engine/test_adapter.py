"""Messages that leave a host at once: the adapter has read ahead of the first when the others come; and a thread
that serves both directions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.records.packet import READ_AHEAD
from fabricsim.run.pipeline import load

SIZE = 2**20
PS = 1e-12


def _times(transport: str, targets: Sequence[int], size: int = SIZE) -> tuple[Fabric, list[float]]:
    """Send to each target from host 0 at once; times of the messages, seconds."""
    env = simpy.Environment()
    fabric = Fabric(env, load("dai2024", [f"transport={transport}"]).scenario)
    sends = [fabric.send(0, target, size) for target in targets]
    env.run(env.all_of(sends))
    return fabric, [send.value for send in sends]


def _read_ahead(fabric: Fabric) -> float:
    """Time of 16 packets of 4096 bytes on the wire, which is narrower than the PCIe links before it, seconds."""
    return READ_AHEAD * 4096 / float(fabric.world.routes[0]["peak"])


def test_the_first_of_two_messages_is_ahead_by_what_the_adapter_reads() -> None:
    fabric, (alone,) = _times("rdma-100g", [1])
    _, (first, second) = _times("rdma-100g", [1, 2])
    assert second - first == pytest.approx(_read_ahead(fabric), abs=2 * PS)
    on_wire = SIZE / fabric.world.routes[0]["peak"]
    assert second == pytest.approx(alone + on_wire, rel=1e-9)  # the wire is never idle


def test_all_but_the_first_of_many_messages_wait_alike() -> None:
    fabric, (first, *others) = _times("rdma-100g", [1, 2, 3, 4])
    assert others == pytest.approx([others[0]] * 3, abs=2 * PS)
    # While they wait, the first sends alone what the adapter has read; later it gets a quarter.
    assert others[0] - first == pytest.approx(3 * _read_ahead(fabric), rel=1e-6)


def test_small_messages_leave_one_after_the_other() -> None:
    size = 2**13
    fabric, (first, second) = _times("rdma-100g", [1, 2], size)
    on_wire = size / fabric.world.routes[0]["peak"]
    assert second - first == pytest.approx(on_wire, rel=1e-6)


def test_paced_messages_share_the_wire_from_the_first_byte() -> None:
    _, (first, second) = _times("roce-100g", [1, 2])
    assert first == pytest.approx(second, abs=2 * PS)


@pytest.mark.parametrize("late", [0.0, 2e-3])
def test_a_thread_serves_both_directions_alike_among_packets(late: float) -> None:
    """It copies 0.2 ns/B for either: while both last, each gets half of its 40 Gb/s."""
    size = 2**25
    env = simpy.Environment()
    fabric = Fabric(env, load("dai2024", ["transport=ipoib-100g", "engine=packet"]).scenario)
    arriving = fabric.send(0, 1, size)
    if late:
        env.run(late)
    leaving = fabric.send(1, 2, size)
    env.run(env.all_of([arriving, leaving]))
    copying = size * 0.2e-9
    assert leaving.value == pytest.approx(2 * copying - late, rel=0.01)
    assert arriving.value == pytest.approx(2 * copying - late, rel=0.01)
