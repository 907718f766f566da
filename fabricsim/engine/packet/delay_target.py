"""Whether the delay that a congestion control aims at leaves flows alone on idle links."""

import inspect
import math
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.packet.state import PacketState
from fabricsim.errors import FabricsimWarning
from fabricsim.records.program import NONE
from fabricsim.transports.dispatch import hook
from fabricsim.units import PS_PER_S, PS_PER_US, human_seconds, seconds


class _Flow(NamedTuple):
    """What a flow's target depends on: unloaded round trip, ps, rate of its link, bytes/s, and links on its way."""

    round_trip: float
    line_rate: float
    hops: int


class DelayTargets:
    """Warns once where a law that answers to delay slows down a flow that is alone.

    Such a law takes a round trip above its target for queues, though it be propagation. A target belongs to a fabric:
    that for one hall is too short for cables between two towns.

    `law`: one ``LAW`` record: the transport of all flows.
    """

    def __init__(self, network: PacketState, law: NDArray[np.void], transport: str, nodes: Sequence[str]) -> None:
        self._network, self._transport, self._nodes = network, transport, nodes
        self._law = law.view(np.recarray)[0]
        self._choice = network.dispatch.laws[self._law.law]
        self._looks = self._choice.delay_key is not None
        self._seen = 0

    def check(self) -> None:
        """Look at the flows made since the last time; those within a host have no round trip."""
        first, self._seen = self._seen, self._network.used["flows"]
        if not self._looks or first == self._seen:
            return
        flows = self._network.flows[first : self._seen]
        round_trips = np.where(flows["first_link"] == NONE, 0.0, flows["base_rtt"])
        columns = (round_trips, flows["line_rate"], flows["hops"])
        kinds, kind_of = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        for row in np.argsort(-kinds[:, 0], kind="stable").tolist():
            kind = _Flow(*kinds[row].tolist())
            if kind.round_trip > self._target(kind):
                self._looks = False
                self._warn(flows[int(np.argmax(kind_of.reshape(-1) == row))], kind)
                return

    def _target(self, flow: _Flow) -> float:
        """Longest round trip at which a flow may fill its link, ps."""
        kernel: Any = hook(self._choice, "target_delay")
        target = inspect.unwrap(kernel)  # a few numbers are not worth compiling it for
        return float(target(SimpleNamespace(window=self._window(flow), hops=flow.hops), self._law))

    def _window(self, flow: _Flow) -> float:
        """Packets with which a flow fills its link, within the bounds of its window."""
        packet = self._law.payload + self._law.overhead
        window = max(flow.line_rate * flow.round_trip / PS_PER_S / packet, self._law.minimum_window)
        return float(min(window, self._law.maximum_window))

    def _warn(self, record: np.void, flow: _Flow) -> None:
        key = self._choice.delay_key or ""
        target = self._target(flow)
        wanted = int((self._law[key] + flow.round_trip - target) // PS_PER_US) + 1
        ends = f"from {self._nodes[record['source']]} to {self._nodes[record['target']]}"
        problem = f"{self._transport} aims at a round trip of {_text(target)} at most"
        reason = f"that {ends} takes {_text(flow.round_trip)} on idle links already"
        outcome = "and its flow is slowed down as if there were queues"
        way_out = f"raise it to {wanted}us or more{self._and_window(flow)}"
        text = f"transport.congestion_control.{key}: {problem}; {reason}, {outcome}; {way_out}"
        warnings.warn(text, FabricsimWarning, stacklevel=2)

    def _and_window(self, flow: _Flow) -> str:
        """Swift grows by a packet or so per round trip, which takes long where many fill a link."""
        window = math.ceil(self._window(flow))
        if window <= self._law.initial_window:
            return ""
        return f", and initial_window towards {window}, which fill the link"


def _text(time: float) -> str:
    return human_seconds(seconds(time))
