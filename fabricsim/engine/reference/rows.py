"""The records on which the laws of congestion control work."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from fabricsim.engine.reference.shared import Table
from fabricsim.records.program import NONE
from fabricsim.records.transport import TELEMETRY


class Rows:
    """Copies of the records of laws and flows, and telemetry of the links that packets in flight passed.

    `laws`: records, as kernels take them; `values`: what they say, as plain numbers.
    """

    def __init__(self, laws: Table) -> None:
        self.laws = _records(laws)
        # Reading a record takes ten times as long.
        self.values = [SimpleNamespace(**dict(zip(laws.dtype.names or (), law, strict=True))) for law in laws.tolist()]
        self.flows: list[Any] = []
        self.telemetry = _records(np.zeros(0, TELEMETRY))

    def take_in(self, flows: Table) -> None:
        """Take in more flows."""
        some = list(_records(flows))
        self.flows += some
        for flow in some:
            self.take_telemetry(flow)

    def take_telemetry(self, flow: Any) -> None:  # noqa: ANN401  a record
        """Have room for the telemetry of a flow."""
        rows = len(self.telemetry)
        if flow["first_telemetry"] != NONE:
            span = int(self.laws[int(flow["law"])]["span"])
            rows = max(rows, int(flow["first_telemetry"]) + (span + 1) * int(flow["hops"]))
            self.telemetry = _records(np.append(self.telemetry, np.zeros(rows - len(self.telemetry), TELEMETRY)))


def _records(table: Table) -> Table:
    """Copy a structured table as records, whose columns are attributes."""
    return table.astype(np.dtype((np.record, table.dtype)), copy=True)
