"""What the packets of a node take up of its buffer, by incoming link and class.

Shared buffers with dynamic thresholds (Choudhury and Hahne, IEEE/ACM ToN 1998), PFC (IEEE 802.1Qbb),
and InfiniBand credits per virtual lane.
"""

import numpy as np

from fabricsim.engine.packet.kernels.link import send_control
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.packet import CLASS_SHIFT, CLASSES, CREDIT_BYTES

PAUSE = np.int64(0)
RESUME = np.int64(-1)
"""What a control frame says in the place of credits."""


@inlined
def traffic_class(packet):
    """Class (of PFC), or virtual lane (of InfiniBand), of a packet."""
    return (np.int64(packet.state) >> CLASS_SHIFT) & (CLASSES - 1)


@inlined
def credit_bytes(wire):
    """Bytes of the credits that a packet takes."""
    return (wire + CREDIT_BYTES - 1) // CREDIT_BYTES * CREDIT_BYTES


@inlined
def _threshold(net, node, account):
    """Bytes of one incoming link and class beyond which a PAUSE is sent."""
    free = max(net.nodes[node].buffer - net.nodes[node].used, 0)
    return max(np.int64(account.above), np.int64(account.alpha * free))  # alpha is 0 for a static threshold


@inlined
def take_in(net, node, came, priority, wire):
    """Count bytes that link `came` brought into a node's buffer."""
    row = net.nodes[node]
    if row.accounts:
        net.ingress[came * CLASSES + priority].bytes += wire
    row.used += wire


@inlined
def let_go(net, node, came, priority, wire, now):
    """Free bytes that `came` had brought in; sends a RESUME or credits back."""
    row = net.nodes[node]
    row.used -= wire
    if not row.accounts:
        return
    account = net.ingress[came * CLASSES + priority]
    account.bytes -= wire
    back = np.int64(net.links[came].reverse)
    if account.pausing:
        resume = np.int64(account.below)
        if account.alpha > 0.0:
            resume = max(resume, _threshold(net, node, account) - account.below)
        if account.bytes <= resume:
            account.pausing = 0
            row.strict -= 1
            send_control(net, back, priority, RESUME, now)
    if account.credits:
        send_control(net, back, priority, credit_bytes(wire), now)


@kernel
def return_credits(net, came, priority, wire, now):
    """Give back the credits of a packet that is not kept."""
    if net.ingress[came * CLASSES + priority].credits:
        send_control(net, np.int64(net.links[came].reverse), priority, credit_bytes(wire), now)


@inlined
def exceeds(net, node, queue, wire):
    """Whether a packet takes more of the shared buffer than is left for its class.

    Nothing branches on whether the class shares the buffer, as packets of different classes alternate: if it does
    not, its alpha is infinite. That is never multiplied by zero: a last byte counts as free, into which no packet fits.
    """
    free = net.nodes[node].buffer - net.nodes[node].used
    return queue.shared * (wire - free) > 0 or queue.bytes + wire > queue.alpha * max(free, 1)


@inlined
def exceeds_headroom(net, node, queue, came, priority, wire):
    """Whether a packet of a lossless class comes after a PAUSE and finds its headroom taken."""
    if not net.nodes[node].accounts:
        return False
    account = net.ingress[came * CLASSES + priority]
    return account.pausing and queue.lossless == 1 and account.bytes + wire > account.held + account.headroom


@inlined
def wants_pause(net, node, came, priority):
    """Whether the bytes of `came` have grown beyond the threshold, and no PAUSE is in force."""
    account = net.ingress[came * CLASSES + priority]
    return account.bytes > account.above and account.bytes > _threshold(net, node, account) and not account.pausing


@inlined
def pause(net, node, came, priority, now):
    """Send a PAUSE back over `came`; from now on it matters when ports of the node act."""
    account = net.ingress[came * CLASSES + priority]
    account.pausing = 1
    account.held = account.bytes
    net.nodes[node].strict += 1
    send_control(net, np.int64(net.links[came].reverse), priority, PAUSE, now)
