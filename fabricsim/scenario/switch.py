"""Switch types: latency for both engines, buffers and queues for the packet engine."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Bytes, Duration

CLASSES = 8
"""Most traffic classes, or virtual lanes, of a port."""

Share = Annotated[float, Field(gt=0, le=1024)]
"""Of the free shared buffer; above 1 for queues that may hold more than they leave."""


def _none(value: object) -> object:
    """Read ``"none"``: it takes out a table or key that a preset has."""
    return None if value == "none" else value


_OrNone = BeforeValidator(_none)


class Buffer(Spec):
    """Packet buffer: static per egress port and class, or shared by all.

    With ``shared``, a class that may lose packets holds at most ``alpha`` times what is free.
    """

    per_port: Annotated[Bytes, Field(gt=0)] | None = None
    shared: Annotated[Bytes, Field(gt=0)] | None = None
    alpha: Annotated[Share | None, _OrNone] = None


class Ecn(Spec):
    """Marking on the egress queue (RED).

    Never up to ``low``, always from ``high`` on, in between with a probability that grows to
    ``probability``. ``low = high`` is the step of DCTCP. ``at`` says when: as a packet comes, on what
    is before it, or as it leaves, on what is behind it, which is known sooner by a queue's delay.
    """

    low: Bytes
    high: Bytes
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    at: Literal["enqueue", "dequeue"] = "enqueue"


class Pfc(Spec):
    """Priority flow control, per incoming link and class.

    A PAUSE is sent beyond ``above``, a RESUME at ``below``; ``headroom`` takes in what still comes.
    With ``alpha`` the threshold is that share of the free shared buffer, at least ``above``, and a
    RESUME is sent ``below`` bytes under it.
    """

    above: Bytes | None = None
    below: Bytes
    headroom: Bytes
    alpha: Annotated[Share | None, _OrNone] = None
    classes: Annotated[tuple[Annotated[int, Field(ge=0, lt=CLASSES)], ...], Field(strict=False)] = (0,)


class Credits(Spec):
    """Credit-based flow control: receive buffer per class at the end of each link."""

    per_class: Annotated[Bytes, Field(ge=64)]


class Scheduler(Spec):
    """Order of the classes at an egress port.

    ``"strict"``: class 0 first. ``"dwrr"``: deficit weighted round robin, ``weights`` being the
    bytes that each class may send per turn.
    """

    kind: Literal["strict", "dwrr"]
    weights: Annotated[tuple[Annotated[Bytes, Field(ge=64)], ...], Field(strict=False)] = ()


class SwitchSpec(Spec):
    """A switch type.

    ``latency`` is port to port, without serialisation. ``forwarding`` decides how often a packet is
    serialised: ``"cut-through"`` once on the path, ``"store-and-forward"`` at every hop. All else acts
    in the packet engine only. A switch without further tables has one FIFO without bound per port.
    """

    name: str
    latency: Duration
    forwarding: Literal["cut-through", "store-and-forward"]
    classes: Annotated[int, Field(ge=1, le=CLASSES)] = 1
    trimming: bool = False
    buffer: Annotated[Buffer | None, _OrNone] = None
    ecn: Annotated[Ecn | None, _OrNone] = None
    pfc: Annotated[Pfc | None, _OrNone] = None
    credits: Annotated[Credits | None, _OrNone] = None
    scheduler: Annotated[Scheduler | None, _OrNone] = None
