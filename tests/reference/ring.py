"""A ring collective in plain Python: when each message is sent, received and taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def ring_seconds(latencies: NDArray[np.float64], sending: float, steps: int, window: int) -> float:
    """Time of a ring whose member ``i`` sends `steps` messages to ``i + 1``, nobody sharing a link.

    Member ``i`` hands over message ``s`` when it has taken message ``s - 1`` from its predecessor, and
    its successor has taken message ``s - window``; messages leave one after the other. It takes a
    message when that has arrived and its own last one is handed over.

    Parameters
    ----------
    latencies
        From each member to the next, seconds, shape ``(n,)``.
    sending
        Serialisation of one message, seconds.
    steps
        Messages per member.
    window
        Messages that a sender may be ahead of its receiver.
    """
    taken = [np.zeros(len(latencies))] * (steps + window)  # by member; those before the first are free
    sent = np.zeros(len(latencies))
    for step in range(steps):
        own, successor = taken[window + step - 1], np.roll(taken[step], -1)
        handed_over = np.maximum(own, successor)
        sent = np.maximum(handed_over, sent) + sending
        arrived = np.roll(sent + latencies, 1)
        taken[window + step] = np.maximum(handed_over, arrived)
    return float(taken[-1].max())
