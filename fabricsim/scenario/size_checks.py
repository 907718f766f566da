"""Checks of how large a fabric is: cables to build, and ports of a switch to look through.

Both are counted from the scenario alone, so that what would take minutes is refused before anything is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.errors import Mistake
from fabricsim.scenario.partial import Unsettled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.scenario.parts import Parts

MOST_GPUS = 2**20
"""GPUs of the largest cluster that is accepted; beyond it a slip of the pen is likelier than a wish."""

MOST_PORTS = 1024
"""Ports of a switch towards others; the largest sold have some hundred."""

MOST_CABLES = 2**21
"""Cables of the largest fabric: each takes some 15 us and 1.5 kB to build, and so these half a minute and 3 GB."""

MOST_PACKET_PORTS = 10_000
"""Ports of a switch in the packet engine.

In each window of time it looks through all ports of a switch that has something to do, and it numbers what comes in a
window with `INDEX_BITS` (`fabricsim.engine.packet.kernels.fast.order`): of more than 10,922 ports a window has no place
for a packet each.
"""


@dataclass(frozen=True)
class Size:
    """Cables of a fabric, and ports of its largest switch."""

    cables: int
    ports: int


def too_large(scenario: Parts) -> Iterator[Mistake]:
    """Find a cluster or a fabric that is too large to be built or simulated."""
    hosts, gpus = scenario.cluster.hosts, scenario.cluster.hosts * scenario.cluster.gpus_per_host
    if gpus > MOST_GPUS:
        yield Mistake("cluster.hosts", f"the cluster has {gpus} GPUs, more than {MOST_GPUS}", "lower hosts")
        return
    size = size_of(scenario)
    if size.cables > MOST_CABLES:
        problem = f"the {scenario.fabric.topology} fabric of {hosts} hosts has {size.cables} cables"
        yield Mistake("cluster.hosts", problem, f"at most {MOST_CABLES} can be built: lower hosts, or spines")
    elif scenario.engine != "flow" and size.ports > MOST_PACKET_PORTS:
        problem = f"{hosts} hosts give a switch of the {scenario.fabric.topology} fabric {size.ports} ports"
        limit = f"the packet engine takes {MOST_PACKET_PORTS}"
        way_out = 'lower hosts, choose a fabric of more and smaller switches, or set engine = "flow"'
        yield Mistake("cluster.hosts", problem, f"{limit}: {way_out}")


def size_of(scenario: Parts) -> Size:
    """Count cables and ports.

    Raises
    ------
    Unsettled
        If they are not known: those of a fabric from a file are counted when it is read, and more ports towards
        other switches than `MOST_PORTS` are a mistake of their own.
    """
    if max(scenario.fabric.k or 0, scenario.fabric.spines or 0) > MOST_PORTS:
        raise Unsettled
    hosts, nics, fabric = scenario.cluster.hosts, scenario.nics_per_host, scenario.fabric
    ends, rails = hosts * nics, nics if fabric.rails else 1
    if fabric.topology == "single-switch":
        return Size(ends, ends // rails)
    if fabric.topology == "fat-tree":
        return _of_fat_tree(ends, fabric.k)
    if fabric.topology == "leaf-spine" and fabric.hosts_per_leaf is not None and fabric.spines is not None:
        leaves = -(-hosts // fabric.hosts_per_leaf) * rails
        down = min(fabric.hosts_per_leaf, hosts) * nics // rails
        return Size(ends + leaves * fabric.spines, max(leaves, down + fabric.spines))
    raise Unsettled


def _of_fat_tree(ends: int, k: int | None) -> Size:
    """Count those of a k-ary fat tree, whose pods have ``(k / 2) ** 2`` cables in each of the two upper tiers."""
    if k is None:
        k = next(ports for ports in range(2, 2 * ends + 4, 2) if ports**3 // 4 >= ends)
    pod = (k // 2) ** 2
    return Size(ends + -(-ends // pod) * 2 * pod, k)
