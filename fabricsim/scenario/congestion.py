"""Laws of congestion control, each with its parameters.

Parameters are called as the columns of the packet engine's table of laws. What is left out has the
default that stands beside it; where it depends on the line rate, `fabricsim.transports.parameters`
works it out.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Bytes, Duration, Rate

Interval = Annotated[Duration, Field(gt=0)]
"""A time that is not zero."""
Gain = Annotated[float, Field(gt=0, le=1)]
"""Weight of the newest sample in a moving average."""
Factor = Annotated[float, Field(gt=0, le=1)]
Packets = Annotated[float, Field(gt=0, le=1e6)]
"""A window or an increase, packets."""
Stages = Annotated[int, Field(ge=0, le=1000)]


class NoLaw(Spec):
    """Neither window nor rate react: the window is ``packet.maximum_window``, the rate that of the line."""

    law: Literal["none"]


class NewReno(Spec):
    """TCP New Reno (RFC 5681, RFC 6582). ``initial_threshold``: end of the first slow start; none: the first loss."""

    law: Literal["new-reno"]
    minimum_window: Packets = 1.0
    initial_threshold: Packets | None = None


class Cubic(Spec):
    """CUBIC (RFC 9438). ``scale`` is its C in packets/s^3, ``decrease`` its beta."""

    law: Literal["cubic"]
    scale: Annotated[float, Field(gt=0, le=1000)] = 0.4
    decrease: Factor = 0.7
    minimum_window: Packets = 1.0
    initial_threshold: Packets | None = None


class Dctcp(Spec):
    """DCTCP (RFC 8257).

    ``gain`` is its g, ``initial_alpha`` the alpha of a new connection. ``cut`` says when the window is
    cut: at the first mark of a window of data, at once or in proportion to what is acknowledged until all that
    was sent by then is (PRR, RFC 6937, as ns-3 and Linux do), or at the end of every one, marks or none, as
    csg-htsim does.
    """

    law: Literal["dctcp"]
    gain: Gain = 1 / 16
    initial_alpha: Annotated[float, Field(ge=0, le=1)] = 1.0
    cut: Literal["marked", "proportional", "every-window"] = "marked"
    minimum_window: Packets = 2.0
    initial_threshold: Packets | None = None


class Dcqcn(Spec):
    """DCQCN (Zhu et al., SIGCOMM 2015).

    ``alpha_interval``, ``cut_interval`` and ``raise_interval`` are those of alpha's updates, of rate
    cuts (0: every notification cuts) and of the increase timer; ``raise_bytes`` is the byte counter,
    none: not used; ``stages`` is F; ``clamp`` says that every cut sets the target rate. With a
    ``cnp_interval`` of 0 acknowledgements echo the mark of their packet, without notification packets.
    The defaults are the tuned set of the HPCC authors (Li et al., SIGCOMM 2019).
    """

    law: Literal["dcqcn"]
    gain: Gain = 1 / 256
    alpha_interval: Interval = 1_000_000
    cut_interval: Duration = 4_000_000
    raise_interval: Interval = 300_000_000
    raise_bytes: Annotated[Bytes, Field(gt=0)] | None = None
    stages: Stages = 1
    additive: Rate | None = None
    hyper: Rate | None = None
    minimum_rate: Rate | None = None
    clamp: bool = False
    cnp_interval: Duration = 0


class Timely(Spec):
    """TIMELY (Mittal et al., SIGCOMM 2015).

    ``gain`` is the weight of a new gradient, ``decrease`` its beta, ``low`` and ``high`` its
    thresholds, ``stages`` the increases before the hyper ones.
    """

    law: Literal["timely"]
    gain: Gain = 0.875
    decrease: Factor = 0.8
    low: Interval = 50_000_000
    high: Interval = 500_000_000
    minimum_rtt: Interval = 20_000_000
    additive: Rate | None = None
    hyper: Rate | None = None
    minimum_rate: Rate | None = None
    stages: Stages = 5


class Swift(Spec):
    """Swift (Kumar et al., SIGCOMM 2020).

    ``low`` is the base target delay, ``per_hop`` what each link adds, ``flow_range`` the most that a
    small window adds, between windows of ``flow_low`` and ``flow_high``; ``additive`` is the increase per
    round trip, ``decrease`` beta, ``largest_cut`` the most that one cut takes away; ``stages`` timeouts
    in a row set the window to its minimum.
    """

    law: Literal["swift"]
    low: Interval = 20_000_000
    per_hop: Duration | None = None
    flow_range: Duration | None = None
    flow_low: Packets = 0.1
    flow_high: Packets = 100.0
    additive: Packets = 1.0
    decrease: Factor = 0.8
    largest_cut: Factor = 0.5
    stages: Annotated[int, Field(ge=1, le=1000)] = 5
    initial_window: Packets = 10.0
    minimum_window: Packets = 0.1


class Hpcc(Spec):
    """HPCC (Li et al., SIGCOMM 2019).

    ``eta`` is the target utilisation, ``stages`` its maxStage, ``additive`` W_AI in bytes. The window
    stays within the product of line rate and ``network_rtt``, the base round trip that all flows count
    in; if it is left out, each counts in that of its own way.
    """

    law: Literal["hpcc"]
    eta: Factor = 0.95
    stages: Stages = 5
    network_rtt: Interval | None = None
    additive: Annotated[Bytes, Field(gt=0)] | None = None
    minimum_window: Packets = 0.01


class Nscc(Spec):
    """NSCC of Ultra Ethernet (specification 1.0, section 3.6).

    ``rtt`` is the unloaded round trip of the network that the parameters are scaled to, ``low`` the
    target queueing delay. ``proportional`` is alpha times the target, ``fair`` the fair increase,
    ``eta`` what each round trip adds, in packets; ``quick`` the fast increase per acknowledged packet.
    A quick adaptation starts at ``adapt_delay`` targets if less than ``adapt_gate`` of the largest
    window arrived. The largest window is ``bdp_limit`` bandwidth-delay products of the flow. Delays
    below ``no_delay`` are none; increases are added after ``gather`` packets.
    """

    law: Literal["nscc"]
    rtt: Interval = 12_000_000
    low: Interval | None = None
    gain: Gain = 0.0125
    decrease: Factor = 0.8
    largest_cut: Factor = 0.5
    proportional: Packets | None = None
    fair: Packets | None = None
    eta: Packets | None = None
    quick: Packets | None = None
    adapt_delay: Annotated[float, Field(gt=0, le=1000)] = 4.0
    adapt_gate: Factor = 1 / 8
    bdp_limit: Annotated[float, Field(gt=0, le=1000)] = 1.5
    no_delay: Duration = 1_000_000
    gather: Annotated[float, Field(ge=0, le=1e6)] = 8.0
    minimum_window: Packets = 1.0


class Ndp(Spec):
    """NDP (Handley et al., SIGCOMM 2017).

    A sender starts with ``initial_window`` packets; after them the receiver pulls one for each that came, whole or
    trimmed, from all its senders in turn, at the share ``pull_rate`` of its link's rate.
    """

    law: Literal["ndp"]
    initial_window: Annotated[float, Field(ge=1, le=1e6)] = 15.0
    pull_rate: Factor = 0.99


class Eqds(Spec):
    """EQDS (Olteanu et al., NSDI 2022), as csg-htsim has it.

    As `Ndp`, but for this: receivers grant credits at their pace without waiting for packets, up to ``initial_window``
    more than came; what is left of a sender's first window at the first answer is not sent.
    """

    law: Literal["eqds"]
    initial_window: Annotated[float, Field(ge=1, le=1e6)] = 50.0
    pull_rate: Factor = 0.99


Law = NoLaw | NewReno | Cubic | Dctcp | Dcqcn | Timely | Swift | Hpcc | Nscc | Ndp | Eqds

DEFAULT_LAWS: dict[str, Law] = {
    "tcp": Cubic(law="cubic"),
    "ipoib": Cubic(law="cubic"),
    "roce": Dcqcn(law="dcqcn"),
    "infiniband": NoLaw(law="none"),
    "ideal": NoLaw(law="none"),
}
"""Law of a transport that names none, by its kind."""


FIXED_WINDOW = ("none", "dcqcn", "timely")
"""Laws whose window is the same whatever is acknowledged."""
PACED = ("dcqcn", "timely", "hpcc")
"""Laws that give each flow a rate, so that its packets leave the adapter one by one."""
