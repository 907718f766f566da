"""Checks of how large a fabric is: cables to build, and ports of a switch to look through.

Both are counted from the scenario alone, so that what would take minutes is refused before anything is built.
"""

from collections.abc import Iterator
from numbers import Integral
from types import NoneType

from fabricsim.errors import InputError, Mistake
from fabricsim.extensions import answer, place_of
from fabricsim.scenario.network import MOST_CABLES, FabricSize
from fabricsim.scenario.partial import Unsettled
from fabricsim.scenario.parts import Parts

MOST_GPUS = 2**20
"""GPUs of the largest cluster that is accepted; beyond it a slip of the pen is likelier than a wish."""

MOST_PACKET_PORTS = 10_000
"""Ports of a switch in the packet engine.

In each window of time it looks through all ports of a switch that has something to do, and it numbers what comes in a
window with `INDEX_BITS` (`fabricsim.engine.packet.kernels.fast.order`): of more than 10,922 ports a window has no place
for a packet each.
"""


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


def size_of(scenario: Parts) -> FabricSize:
    """Count cables and ports.

    Raises Unsettled if only the network tells, as that of a file, whose cables are counted when it is read,
        InputError if a user's topology counts something else than whole numbers.
    """
    size = answer(scenario.fabric.size, (FabricSize, NoneType), scenario.ends)
    if size is None:
        raise Unsettled
    if not all(isinstance(count, Integral) and int(count) >= 0 for count in size):
        raise InputError(f"{place_of(scenario.fabric.size)}{size} has something else than whole numbers from 0 up")
    return size
