"""Taps and packet logs: what a user asks to be recorded in a packet run, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from fabricsim.errors import InputError
from fabricsim.records.packet import AGAIN, DATA, SENT, TRIMMED
from fabricsim.results.packets import ENTRY, WIRE, PacketLog, Packets, Tap
from fabricsim.results.result import Series
from fabricsim.scenario import given
from fabricsim.scenario.suggest import did_you_mean, some_of
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fabricsim.engine.packet.state import PacketState
    from fabricsim.engine.wiring import Wiring
    from fabricsim.scenario.transport import Transport
    from fabricsim.topology.platform import Platform

KINDS = ("queue", "rate", "flow")
"""What can be tapped."""
_NAMED = 6
"""Names that a refusal gives as examples."""
_BINS = 500
"""Bins of a rate over the run, at most."""
_NARROWEST = 1_000_000
"""Of a bin, ps (a microsecond)."""


@dataclass(frozen=True)
class Watch:
    """What a packet run is to record, as glob patterns.

    Attributes
    ----------
    queues, rates
        Of wire names such as ``leaf0->*``: their queues, and their payload rates.
    flows
        Of flows such as ``0->5``, or ids of a traffic matrix: their windows and rates.
    packets
        Of wire names: all their packets.
    """

    queues: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    packets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse one text in the place of several."""
        for name in ("queues", "rates", "flows", "packets"):
            patterns = (given.text(each, name) for each in given.several(getattr(self, name), name, least=0))
            object.__setattr__(self, name, tuple(patterns))

    @classmethod
    def parse(cls, taps: Iterable[str], packets: Iterable[str] = ()) -> Watch:
        """Read what ``--tap KIND:GLOB`` and ``--pcap GLOB`` gave.

        Raises
        ------
        InputError
            If a tap has no kind or an unknown one, or a pattern is empty.
        """
        patterns: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for tap in given.several(taps, "taps", least=0):
            kind, colon, pattern = given.text(tap, "taps").partition(":")
            if not colon or not pattern:
                raise InputError(f"tap {tap!r} is not of the form KIND:GLOB, such as queue:switch0->*")
            if kind not in KINDS:
                raise InputError(f"tap {tap!r}: there is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
            patterns[kind].append(pattern)
        logged = tuple(given.text(each, "packets") for each in given.several(packets, "packets", least=0))
        if not all(logged):
            raise InputError("packets '': this names no wire; write a pattern such as switch0->*")
        return cls(tuple(patterns["queue"]), tuple(patterns["rate"]), tuple(patterns["flow"]), logged)

    def __bool__(self) -> bool:
        """Whether anything is to be recorded."""
        return bool(self.queues or self.rates or self.flows or self.packets)


@dataclass
class Recorder:
    """Turns the engine's counters, samples and log into what a result holds.

    Parameters
    ----------
    network, platform, wiring, transport
        Of the fabric.
    watch
        What is to be recorded besides the totals.

    Raises
    ------
    InputError
        If a pattern matches no wire.
    """

    network: PacketState
    platform: Platform
    wiring: Wiring
    transport: Transport
    watch: Watch
    _queues: tuple[int, ...] = field(default=(), init=False)
    _rates: tuple[int, ...] = field(default=(), init=False)
    _packets: tuple[int, ...] = field(default=(), init=False)
    _flows: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Mark what is tapped in the engine's tables."""
        names = self.platform.wires.names
        self._queues = _matching(names, self.watch.queues, "tap queue:")
        self._rates = _matching(names, self.watch.rates, "tap rate:")
        self._packets = _matching(names, self.watch.packets, "packets ")
        self.network.links["tap"][list(self._queues)] = np.arange(len(self._queues))
        self.network.links["log"][[*self._rates, *self._packets]] = 1
        self.network.watch([*self._queues, *self._rates, *self._packets])
        self.network.world["sampling"] = bool(self._queues or self.watch.flows)
        self.network.world["logging"] = bool(self._rates or self._packets)

    def tap_flows(self, ids: Mapping[int, str] | None = None) -> None:
        """Tap the flows that the patterns match among those that there are now.

        Parameters
        ----------
        ids
            Further names of flows, by their index.

        Raises
        ------
        InputError
            If a pattern matches no flow.
        """
        if not self.watch.flows:
            return
        names = self._flow_names()
        known = {flow: (name, name.partition("#")[0], (ids or {}).get(flow, name)) for flow, name in names.items()}
        for pattern in self.watch.flows:
            found = [flow for flow, each in known.items() if any(fnmatchcase(name, pattern) for name in each)]
            if not found:
                raise InputError(_no_match("tap flow:", pattern, "flow", list(names.values())))
            self._flows.update((flow, names[flow]) for flow in found)
        first = len(self._queues)
        self.network.flows["tap"][list(self._flows)] = first + 2 * np.arange(len(self._flows))

    def _flow_names(self) -> dict[int, str]:
        """Name the flows that cross a wire: ``0->5``, and further ones of the same pair ``0->5#1`` and so on."""
        pair = {route: (key.source, key.target) for key, route in self.wiring.connections.items()}
        count: dict[tuple[int, int], int] = {}
        names = {}
        flows = self.network.flows[: self.network.used["flows"]]
        for index in np.flatnonzero(flows["first_link"] >= 0).tolist():
            ends = pair[int(flows["route"][index])]
            number = count.get(ends, 0)
            count[ends] = number + 1
            names[index] = f"{ends[0]}->{ends[1]}" + (f"#{number}" if number else "")
        return names

    # ---- what came of it ------------------------------------------------------------------------

    @property
    def one_path(self) -> bool:
        """Whether all packets of a flow go the same way."""
        return bool(self.network.laws["one_path"][0])

    def between_switches(self) -> NDArray[np.int64]:
        """Give the wires that join no host."""
        links, nics = self.network.links, self.platform.nics
        return np.flatnonzero((links["source"] >= nics) & (links["target"] >= nics))

    def packets(self) -> Packets:
        """Give the totals of all wires, the taps and the packet log."""
        links = self.network.links
        wires = np.zeros(len(links), WIRE)
        for name in ("packets", "bytes", "marks", "drops", "errors", "trims", "pauses", "paused"):
            wires[name] = links[name]
        wires["deepest"] = np.rint(links["deepest"] / links["ps_per_byte"])
        log = self._log() if self._packets else None
        return Packets(self.platform.wires.names, wires, self._taps(), log)

    def counters(self) -> dict[str, int]:
        """Total what links and flows counted."""
        world, links = self.network.world, self.network.links
        used = self.network.used["flows"]
        flows, receivers = self.network.flows[:used], self.network.receivers[:used]
        return {
            **{name: int(world[name][0]) for name in ("data_hops", "ack_hops")},
            **{name: int(links[name].sum()) for name in ("marks", "drops", "errors", "trims", "pauses")},
            **{name: int(flows[name].sum()) for name in ("retransmissions", "timeouts")},
            "copies": int(receivers["copies"].sum()),
        }

    def _taps(self) -> tuple[Tap, ...]:
        samples = self.network.samples[: int(self.network.world["sampled"][0])]
        order = np.argsort(samples["tap"], kind="stable")
        cuts = np.searchsorted(samples["tap"][order], np.arange(len(self._queues) + 2 * len(self._flows) + 1))
        rows = [samples[order[begin:end]] for begin, end in pairwise(cuts.tolist())]
        taps = [self._queue(wire, row) for wire, row in zip(self._queues, rows, strict=False)]
        pairs = rows[len(self._queues) :]
        for place, name in enumerate(self._flows.values()):
            window = Tap("window", name, *_columns(pairs[2 * place]))
            pace = Tap("pace", name, *_columns(pairs[2 * place + 1]))
            # a law that moves only one of them leaves the other without bound, or where it was
            paced = bool(np.isfinite(pace.value).any())
            taps += [window] if not paced or np.ptp(window.value) > 0 else []
            taps += [pace] if paced else []
        return tuple(taps)

    def _queue(self, wire: int, samples: NDArray[np.void]) -> Tap:
        """Turn drain times into bytes, and enter what was left before each sample and where the queue ran empty."""
        ps_per_byte = float(self.network.links["ps_per_byte"][wire])
        time, drain = samples["time"], samples["value"]
        falls = drain
        if self.network.wakes:  # what waits may be stopped; what is being sent is not, and that is one packet at most
            falls = np.minimum(drain, np.ceil((self._payload + self._overhead) * ps_per_byte))
        gap = np.diff(time)
        left = drain[:-1] - np.minimum(falls[:-1], gap)
        later = np.flatnonzero(gap > 0)
        empty_at = time + np.ceil(drain).astype(np.int64)
        emptied = np.flatnonzero((falls >= drain) & (empty_at < np.append(time[1:], np.iinfo(np.int64).max)))
        where = np.concatenate([emptied + 1, later + 1])  # in this order at one place
        times = np.insert(time, where, np.concatenate([empty_at[emptied], time[later + 1]]))
        values = np.insert(drain, where, np.concatenate([np.zeros(len(emptied)), left[later]]))
        return Tap("queue", self.platform.wires.names[wire], times, values / ps_per_byte)

    def _logged(self) -> NDArray[np.void]:
        return self.network.log[: int(self.network.world["logged"][0])]

    def _log(self) -> PacketLog:
        entries = self._logged()
        entries = entries[np.isin(entries["link"], self._packets)]
        entries = entries[np.argsort(entries["time"], kind="stable")]
        flows, flow = np.unique(entries["flow"], return_inverse=True)
        kept = np.zeros(len(entries), ENTRY)
        for name in ("time", "number", "echo", "kind", "state", "fate"):
            kept[name] = entries[name]
        kept["bytes"], kept["flow"] = entries["wire"], flow
        kept["wire"] = np.searchsorted(self._packets, entries["link"])
        pair = {route: (key.source, key.target) for key, route in self.wiring.connections.items()}
        ends = np.array([pair[int(self.network.flows["route"][index])] for index in flows], np.int32)
        ends = ends.reshape(-1, 2)
        names = self.platform.wires.names
        return PacketLog(
            entries=kept,
            wires=tuple(names[wire] for wire in self._packets),
            source=ends[:, 0].copy(),
            target=ends[:, 1].copy(),
            payload=self._payload,
            overhead=self._overhead,
            protocol=_protocol(self.transport),
            ecn=bool(self.network.laws["ecn"][0]),
        )

    @property
    def _payload(self) -> int:
        return int(self.network.laws["payload"][0])

    @property
    def _overhead(self) -> int:
        return int(self.network.laws["overhead"][0])

    def series(self, end: int, ps_per_byte: NDArray[np.float64]) -> Series:
        """Take the rates of payload that is sent for the first time on the tapped wires, from zero to `end` (ps).

        `ps_per_byte`: of the links as built.
        """
        width = max(_NARROWEST, -(-end // _BINS))
        edges = np.arange(-(-end // width) + 1, dtype=np.int64) * width
        links = self.network.links
        fresh = self._logged()
        fresh = fresh[(fresh["fate"] == SENT) & (fresh["kind"] == DATA) & (fresh["state"] & (AGAIN | TRIMMED) == 0)]
        rows = []
        for wire in self._rates:
            mine = fresh[fresh["link"] == wire]
            mine = mine[np.argsort(mine["time"], kind="stable")]
            rows.append(self._binned(mine, float(links["ps_per_byte"][wire]), edges) / (width / PS_PER_S))
        share = self._payload / (self._payload + self._overhead)
        return Series(
            interval=width,
            names=tuple(self.platform.wires.names[wire] for wire in self._rates),
            rate=np.array(rows, np.float64).reshape(len(rows), len(edges) - 1 if rows else 0),
            capacity=PS_PER_S / ps_per_byte[list(self._rates)] * share,
        )

    def _binned(self, sent: NDArray[np.void], ps_per_byte: float, edges: NDArray[np.int64]) -> NDArray[np.float64]:
        """Payload in each bin: that of a packet is spread evenly over the time that it takes on the wire."""
        if not len(sent):
            return np.zeros(len(edges) - 1)
        carried = np.cumsum(sent["wire"] - self._overhead)
        before = np.concatenate([[0], carried[:-1]])
        begin = sent["time"].astype(np.float64)
        times = np.column_stack([begin, begin + sent["wire"] * ps_per_byte]).ravel()
        return np.diff(np.interp(edges, times, np.column_stack([before, carried]).ravel()))


def _columns(samples: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Leave out what does not change, but for the last."""
    value = samples["value"]
    kept = np.ones(len(value), bool)
    kept[1:-1] = value[1:-1] != value[:-2]
    return samples["time"][kept].copy(), value[kept].copy()


def _protocol(transport: Transport) -> Literal["tcp", "roce", "infiniband", "uet"]:
    if transport.kind == "infiniband":
        return "infiniband"
    if transport.kind == "roce":
        law = transport.congestion_control
        return "uet" if law is not None and law.law in ("nscc", "ndp", "eqds") else "roce"
    return "tcp"


def _matching(names: Sequence[str], patterns: Iterable[str], asked: str) -> tuple[int, ...]:
    found: set[int] = set()
    for pattern in patterns:
        matched = {index for index, name in enumerate(names) if fnmatchcase(name, pattern)}
        if not matched:
            raise InputError(_no_match(asked, pattern, "wire", names))
        found |= matched
    return tuple(sorted(found))


def _no_match(asked: str, pattern: str, what: str, names: Sequence[str]) -> str:
    return f"{asked}{pattern}: no {what} is called so; there are {some_of(names, _NAMED) or 'none'}"
