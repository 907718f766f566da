"""Traffic patterns of the comparison with other packet simulators, and what theory says of them."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError
from fabricsim.scenario.in_force import setting
from fabricsim.studies.peers.cases import Case
from fabricsim.studies.peers.runs import (
    DELAY,
    FLOW,
    RATE,
    PeerRun,
    alone,
    in_ring,
    links_between,
    matrix,
    ring,
    run,
    scenario,
)
from fabricsim.transports.parameters import packet_framing

INCAST = 1_024_000
"""Of each flow of an incast, bytes."""
_HOSTS = 128
_INCASTS = (8, 32, 127)
_SEEDS = (1, 2)
_SMALL = "ring16"  # on a fat tree of 16 hosts


@dataclass(frozen=True)
class FlowPattern:
    """Flows that all start at 0.

    `name`: as in the tables; begins with ``incast``, ``ring`` or ``perm``.
    `pairs`: source and target of each flow.
    `size`: of each flow, bytes.
    """

    name: str
    pairs: Sequence[tuple[int, int]]
    size: int

    @property
    def ports(self) -> int:
        """Ports of a switch of the fat tree."""
        return 4 if self.name == _SMALL else 8

    def run(self, case: Case) -> PeerRun:
        """Send the flows with the transport of a case."""
        k = self.ports
        return run(scenario(case.transport, k, case.settings), matrix(self.pairs, self.size, k**3 // 4), k)


def own_patterns() -> list[FlowPattern]:
    """Incasts, rings, and permutations drawn from stated seeds."""
    incasts = [FlowPattern(f"incast{count}", [(host, 0) for host in range(1, count + 1)], INCAST) for count in _INCASTS]
    rings = [FlowPattern(f"ring{hosts}", ring(hosts), FLOW) for hosts in (16, _HOSTS)]
    return [*incasts, *rings, *(FlowPattern(f"perm128 of seed {seed}", _permutation(seed), FLOW) for seed in _SEEDS)]


def _permutation(seed: int) -> list[tuple[int, int]]:
    """Draw a permutation of all hosts of which none sends to itself."""
    random = np.random.default_rng(seed)
    targets = random.permutation(_HOSTS)
    while (targets == np.arange(_HOSTS)).any():
        targets = random.permutation(_HOSTS)
    return list(enumerate(targets.tolist()))


def lines_of(path: Path) -> list[dict[str, str]]:
    """Read a CSV file of other simulators' results. Raises InputError if it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); FABRICSIM_PEERS names the folder that holds it") from error


def their_pattern(folder: Path, name: str, pairs: Sequence[tuple[int, int]]) -> FlowPattern:
    """Return a pattern that simulators ran: its size is that of ``inputs/NAME.csv``, or as of our own patterns."""
    inputs = folder / "inputs" / f"{name}.csv"
    default = INCAST if name.startswith("incast") else FLOW
    return FlowPattern(name, pairs, int(lines_of(inputs)[0]["bytes"]) if inputs.is_file() else default)


def theory(case: Case, pattern: FlowPattern) -> Iterator[tuple[str, float, float]]:
    """Compare a case with theory: what is compared, what theory says, and what was found, s.

    The last flow of an incast ends when the receiver's link has carried all. A link of a ring carries a flow and the
    acknowledgements of another. Flows of a permutation share links by max-min, or, sprayed, have a link's rate each.
    """
    chosen = scenario(case.transport, pattern.ports, case.settings)
    framing, every = packet_framing(chosen.transport), int(setting(chosen.transport, "ack_every"))
    wire, ack, packets = framing.packet, framing.ack, pattern.size // framing.payload
    found = pattern.run(case)
    links = found.links.tolist()
    if pattern.name.startswith("incast"):
        yield "last flow", alone(len(links) * packets, max(links), wire, ack), float(found.acknowledged.max())
        return
    if pattern.name.startswith("ring"):
        expected = np.array([in_ring(packets, each, wire, ack, every) for each in links])
    elif chosen.transport.load_balancing is not None:
        expected = np.array([alone(packets, each, wire, ack) for each in links])
    else:
        idle = [alone(packets, each, wire, ack) - packets * wire / RATE for each in links]
        expected = max_min(pattern, packets * wire) + idle
    yield "mean", float(expected.mean()), float(found.acknowledged.mean())


def max_min(pattern: FlowPattern, size: int) -> NDArray[np.float64]:
    """Completion times of flows of `size` bytes that share links by max-min, no latency, s: of the flow engine.

    ``tests/studies/test_peers.py`` holds it against the solution of another solver.
    """
    k = pattern.ports
    demand = matrix(pattern.pairs, size, k**3 // 4)
    links = links_between(demand.flows["source"], demand.flows["target"], k)
    return run(scenario("ideal-100g", k, ["engine=flow"]), demand, k).received - links * DELAY
