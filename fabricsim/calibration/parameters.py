"""What is calibrated: keys of a transport preset, between which bounds, and how they are written."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.collectives.nccl.tuning import ALGORITHMS, PROTOCOLS, Algorithm, Protocol
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.transport import NcclProtocol
from fabricsim.units import PS_PER_S

Unit = Literal["time", "time per byte", "share"]
"""How a value is kept: seconds, seconds per byte, or a plain number."""
Role = Literal["latency", "stored bytes", "bandwidth"]
"""What of the measured times a parameter decides."""


@dataclass(frozen=True)
class Parameter:
    """One figure of a transport preset that a fit may change.

    `name`: dotted key below ``transport``.
    `keys`: dotted keys that are set; more than `name` if the data cannot tell two apart.
    `unit`, `role`: see `Unit`, `Role`.
    `least`, `most`: range, in the unit.
    `start`: of the fit: what the scenario says.
    `spread`: how sure that is: standard deviation of its natural logarithm.
    `ways`: algorithms and protocols of NCCL that it belongs to, see `way`; empty if it belongs to all messages.
    """

    name: str
    keys: tuple[str, ...]
    unit: Unit
    role: Role
    least: float
    most: float
    start: float
    spread: float
    ways: frozenset[str] = frozenset()

    def concerns(self, way: str) -> bool:
        """Say whether the time of messages that go by `way` depends on it."""
        return not self.ways or way in self.ways

    def put(self, transport: dict[str, Any], value: float) -> None:
        """Set the value in the tables of a transport, as a preset has it."""
        for key in self.keys:
            tables, (*above, last) = transport, key.split(".")
            for name in above:
                tables[name] = dict(tables.get(name) or {})  # not the loaded scenario's own
                tables = tables[name]
            tables[last] = float(self.text(value)) if self.unit == "share" else self.text(value)

    def text(self, value: float) -> str:
        """Write a value as in TOML, without quotes: four digits, or whole picoseconds."""
        if self.unit == "time":
            return f"{_digits(value * 1e6)}us"
        if self.unit == "time per byte":
            return f"{_digits(value * 1e9)}ns/B"
        return _digits(value)


def _digits(value: float) -> str:
    """Five significant digits, without an exponent."""
    if value <= 0:
        return "0.0"
    places = max(1, 4 - math.floor(math.log10(value)))
    return f"{value:.{min(places, 9)}f}"


_SURE_OF_LATENCY = 0.7  # a factor of two: what software takes differs by that from machine to machine
_SURE_OF_STORED = 2.3  # a factor of ten
_SURE_OF_SHARE = 0.3
_SURE_OF_COPY = 0.7  # a factor of two


def way(algorithm: Algorithm, protocol: Protocol) -> str:
    """Name algorithm and protocol of a call together."""
    return f"{algorithm}-{protocol}"


def of_scenario(scenario: Scenario, ways: Iterable[str], kinds: Iterable[str]) -> list[Parameter]:
    """List what tables of some kinds may tell of a transport.

    `scenario`: as it is before the fit.
    `ways`: algorithms and protocols of NCCL that ran, see `way`.
    `kinds`: of the tables, see `fabricsim.calibration.measurements.Kind`.
    """
    found: list[Parameter] = []
    ran = frozenset(ways)
    for protocol in PROTOCOLS:
        found += _of_protocol(scenario, protocol, ran)
    if "latency" in kinds:
        found.append(_mpi_latency(scenario))
    return found + _bandwidths(scenario)


def _of_protocol(scenario: Scenario, protocol: Protocol, ran: frozenset[str]) -> list[Parameter]:
    """List the parameters of a protocol; rings have a latency of their own if other algorithms ran too."""
    every, rings = frozenset(way(algorithm, protocol) for algorithm in ALGORITHMS), frozenset({way("ring", protocol)})
    if not ran & every:
        return []
    apart = bool(ran & rings and ran & every - rings)
    transport = scenario.transport
    known: NcclProtocol | None = getattr(transport.nccl, protocol, None)
    software = transport.latency + transport.send_overhead
    if scenario.nic.latency is not None:
        software = scenario.nic.latency
    step = NcclPlan(scenario).network_step(protocol)
    latency = (known.latency if known else software + step) / PS_PER_S
    stored = known.byte_latency if known and known.byte_latency else 1 / scenario.cluster.cpu.copy_rate
    span, table = (1e-7, 1e-1), f"nccl.{protocol}"
    of_latency = every - rings if apart else every
    found = [_parameter(f"{table}.latency", "time", "latency", span, latency, _SURE_OF_LATENCY, of_latency)]
    if apart:
        ring = known.ring_latency / PS_PER_S if known and known.ring_latency is not None else latency
        found.append(_parameter(f"{table}.ring_latency", "time", "latency", span, ring, _SURE_OF_LATENCY, rings))
    return [
        *found,
        _parameter(
            f"{table}.byte_latency", "time per byte", "stored bytes", (1e-13, 1e-6), stored, _SURE_OF_STORED, every
        ),
    ]


def _mpi_latency(scenario: Scenario) -> Parameter:
    transport, nic = scenario.transport, scenario.nic
    known = [transport.mpi.latency if transport.mpi else None, nic.mpi_latency, transport.latency]
    start = next(value for value in known if value is not None) / PS_PER_S
    return _parameter("mpi.latency", "time", "latency", (1e-7, 1e-1), start, _SURE_OF_LATENCY)


def _bandwidths(scenario: Scenario) -> list[Parameter]:
    transport = scenario.transport
    found = [_parameter("efficiency", "share", "bandwidth", (0.01, 1.0), transport.efficiency, _SURE_OF_SHARE)]
    if scenario.cluster.join == "pcie":
        share = transport.host_efficiency
        found.append(_parameter("host_efficiency", "share", "bandwidth", (0.01, 1.25), share, _SURE_OF_SHARE))
    if transport.send_copy and transport.send_copy == transport.receive_copy:
        copy = _parameter("send_copy", "time per byte", "bandwidth", (1e-12, 1e-7), transport.send_copy, _SURE_OF_COPY)
        found.append(replace(copy, keys=("send_copy", "receive_copy")))
    return found


def _parameter(  # noqa: PLR0913, PLR0917  one after the other, as in `Parameter`
    name: str,
    unit: Unit,
    role: Role,
    span: tuple[float, float],
    start: float,
    spread: float,
    ways: frozenset[str] = frozenset(),
) -> Parameter:
    least, most = span
    return Parameter(name, (name,), unit, role, least, most, min(max(start, least), most), spread, ways)
