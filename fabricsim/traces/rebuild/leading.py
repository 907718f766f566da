"""Communications at the beginning of a capture of which it does not say what they move.

A kernel that was launched before the profiler began is captured without what its launch says: its group and its bytes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rebuild.dependencies import Ordered
from fabricsim.traces.trace import COMMUNICATION, Communication, Recording


def sizeless(what: Communication) -> bool:
    """Whether it is not known how much a communication moves; a barrier moves nothing that matters."""
    return what.operation != "barrier" and what.size == what.share == NONE and not what.sent


def leading(recording: Recording, ordered: Ordered) -> NDArray[np.bool_]:
    """Say of each communication of a rank, in order, whether it is one of those at the beginning.

    That is before the first one on its stream of which it is known what it moves; on a stream without such, before the
    first of the rank.
    """
    rows = ordered.nodes[ordered.nodes["kind"] == COMMUNICATION]
    silent = np.array([sizeless(what) for what in recording.communications], bool)
    unknown: NDArray[np.bool_] = np.take(silent, rows["communication"]) if len(rows) else np.zeros(0, bool)
    if unknown.all():
        return np.zeros(len(rows), bool)
    first_known = int(np.argmin(unknown))
    found = np.zeros(len(rows), bool)
    for lane in np.unique(rows["lane"][unknown]):
        here = np.flatnonzero(rows["lane"] == lane)
        known = here[~unknown[here]]
        found[here[here < (known[0] if len(known) else first_known)]] = True
    return found & unknown


def check_not_alone(recordings: Sequence[Recording]) -> None:
    """Refuse a file that says of none of its communications what they move, if those of other ranks do.

    Raises TraceError: naming that file.
    """
    says = {
        recording.source: not all(map(sizeless, recording.communications))
        for recording in recordings
        if recording.communications
    }
    silent = next((source for source, some in says.items() if not some), None)
    if silent is not None and any(says.values()):
        msg = "does not say what any of its communications moves, though files of other ranks do; leave it out (only,"
        raise TraceError(silent, f"{msg} --only), so that its rank is assumed to do as another")


def assumption(found: Sequence[NDArray[np.bool_]]) -> str:
    """Describe what is left out, in a sentence; empty if there is nothing."""
    count = int(sum(some.sum() for some in found))
    if not count:
        return ""
    what = f"{count} communications at the beginning, of which the trace does not say what they move,"
    return f"{what} were launched before the capture began; they are left out and take no time"
