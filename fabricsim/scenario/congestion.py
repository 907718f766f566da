"""Laws of congestion control: what all have, and which there are."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.extensions import Registry
from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Bytes, Duration, Rate

__all__ = ["LAWS", "Bytes", "Columns", "Duration", "Factor", "Gain", "Interval", "Law", "Packets", "Rate", "Stages"]

Interval = Annotated[Duration, Field(gt=0)]
"""A time that is not zero."""
Gain = Annotated[float, Field(gt=0, le=1)]
"""Weight of the newest sample in a moving average."""
Factor = Annotated[float, Field(gt=0, le=1)]
Packets = Annotated[float, Field(gt=0, le=1e6)]
"""A window or an increase, packets."""
Stages = Annotated[int, Field(ge=0, le=1000)]

Columns = Mapping[str, type]
"""Columns of a record: their numpy types by their names."""


class Law(Spec):
    """A law of congestion control: its keys, what it keeps, and what the engine has to know of it.

    Subclasses have the keys that a user may write as fields; the kernels stand in the same module. A key that is
    called like one of `parameters`, or like ``initial_window``, ``minimum_window`` and ``initial_threshold`` (packets),
    fills that column of the record of the law, unless it is None.
    """

    parameters: ClassVar[Columns] = {}
    """Columns of the record of the law beside those that all laws have (`fabricsim.records.transport.LAW`)."""
    state: ClassVar[Columns] = {}
    """Columns of the record of a flow beside those that all flows have (`fabricsim.records.transport.FLOW`)."""
    ecn: ClassVar[bool] = False
    """Whether it answers to marks, so that switches may mark its packets."""
    telemetry: ClassVar[bool] = False
    """Whether packets gather in-band telemetry; `acknowledge` is then given that in place of marks and round trip."""
    slow_start: ClassVar[bool] = False
    """Whether it begins with the transport's `initial_window`, and anew after its `idle_restart` (kernel `restart`)."""
    fixed_window: ClassVar[bool] = False
    """Whether its window is the same whatever is acknowledged."""
    paced: ClassVar[bool] = False
    """Whether it gives each flow a rate, so that its packets leave the adapter one by one."""
    window_only: ClassVar[bool] = False
    """Whether it moves the window alone, so that the rate stays that of the NIC, which the engine makes use of."""
    each_loss: ClassVar[bool] = False
    """Whether `lose` is called for each packet lost, rather than once per recovery."""
    pulled: ClassVar[bool] = False
    """Whether receivers pull; `window` is then what may still be sent."""
    most_outstanding: ClassVar[int | None] = None
    """Most that a flow has in flight if the transport sets no `maximum_window`, bytes."""
    delay_key: ClassVar[str | None] = None
    """Key that raises the round trip aimed at, which the kernel `target_delay` gives, if the law has one."""

    law: str

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Work out columns that keys do not fill as they are: defaults that depend on the network, other units.

        Parameters
        ----------
        line_rate
            Of the transport, bytes per second.
        packet
            A full packet, bytes on the wire.
        """
        del line_rate, packet
        return {}

    def problems(self) -> Iterator[Mistake]:
        """Find keys that do not go together; a mistake's key is that of this table, such as ``"low"``."""
        return iter(())


def shares_of(law: Law, rate: float, **shares: float) -> dict[str, float | None]:
    """Return a share of a rate for each key of a law that was left out."""
    return {key: rate * share for key, share in shares.items() if getattr(law, key) is None}


LAWS: Registry[type[Law]] = Registry("laws", "fabricsim.transports.laws", "LAW", Law)
"""All laws of congestion control: a subclass of `Law` each."""

DEFAULT_LAWS = {"tcp": "cubic", "ipoib": "cubic", "roce": "dcqcn", "infiniband": "none", "ideal": "none"}
"""Law of a transport that names none, by its kind."""
