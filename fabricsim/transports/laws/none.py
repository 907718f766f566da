"""No congestion control: neither window nor rate react."""

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Law


class NoLaw(Law):
    """As fast as the link, within ``packet.maximum_window``."""

    fixed_window = True
    window_only = True


LAW = NoLaw


@kernel
def start(flow, law):
    """Keep the window, as at all else."""


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Keep it."""


@kernel
def lose(flow, law, now):
    """Keep it."""


@kernel
def time_out(flow, law, now):
    """Keep it."""
