"""Round trip and retransmission timeout: RFC 6298, times in ps.

The clock has no granularity (G = 0). The caller leaves out packets that were sent again (Karn's
algorithm, section 3), unless their acknowledgements echo when they left.
"""

import numpy as np

from fabricsim.jit.compile import kernel

SMOOTHED_WEIGHT = 1.0 / 8.0  # alpha, section 2.3
VARIATION_WEIGHT = 1.0 / 4.0  # beta, section 2.3
VARIATIONS = 4.0  # K, section 2.3


@kernel
def _bound(law, timeout):
    return min(max(timeout, float(law.minimum_timeout)), float(law.maximum_timeout))


@kernel
def measure(flow, law, rtt):
    """Take a measured round trip, ps; 0: none. Undoes all doublings of the timeout."""
    if rtt <= 0:
        return
    if flow.smoothed == 0.0:
        flow.smoothed = float(rtt)
        flow.variation = rtt / 2.0
    else:
        # The variation takes the smoothed round trip before this measurement (section 2.3).
        flow.variation += VARIATION_WEIGHT * (abs(flow.smoothed - rtt) - flow.variation)
        flow.smoothed += SMOOTHED_WEIGHT * (rtt - flow.smoothed)
    flow.timeout = _bound(law, flow.smoothed + VARIATIONS * flow.variation)


@kernel
def start(flow, law):
    """Set the timeout that holds until the first measurement (section 2.1).

    A connection of TCP has measured one before it sends data: that of its handshake, now or, without one, earlier
    (Linux ``tcp_synack_rtt_meas``; ``TcpSocketBase::EstimateRtt`` of ns-3). The network is taken as idle then.
    """
    flow.smoothed = 0.0
    flow.variation = 0.0
    flow.timeout = float(law.initial_timeout)
    if law.sampled:
        rtt = flow.connect // law.handshake if law.handshake > 0 else np.int64(flow.base_rtt)
        measure(flow, law, rtt)


@kernel
def back_off(flow, law):
    """Double the timeout after it has expired (section 5.5), up to its maximum."""
    flow.timeout = min(2.0 * flow.timeout, float(law.maximum_timeout))
