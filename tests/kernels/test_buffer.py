"""What is left of a buffer for a packet."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fabricsim.engine.packet.kernels import buffer
from fabricsim.records.packet import NODE, QUEUE

BYTES = st.integers(0, 20_000)


@given(
    size=BYTES, used=BYTES, waiting=BYTES, wire=st.integers(1, 20_000), alpha=st.sampled_from([0.25, 1.0, 8.0, None])
)
@example(size=0, used=0, waiting=0, wire=1, alpha=None)
@example(size=100, used=100, waiting=0, wire=1, alpha=8.0)
def test_a_shared_buffer_refuses_what_is_beyond_it_or_its_share(
    size: int, used: int, waiting: int, wire: int, alpha: float | None
) -> None:
    """Threshold of Choudhury and Hahne: alpha times what is free; without alpha the class does not share the buffer."""
    nodes, queues = (np.zeros(1, np.dtype((np.record, kind))) for kind in (NODE, QUEUE))
    nodes["buffer"], nodes["used"] = size, used
    queues["bytes"], queues["shared"] = waiting, alpha is not None
    queues["alpha"] = np.inf if alpha is None else alpha
    exceeds = inspect.unwrap(buffer.exceeds)
    with np.errstate(all="raise"):
        found = exceeds(SimpleNamespace(nodes=nodes), 0, queues[0], wire)

    free = max(size - used, 0)
    assert found == (alpha is not None and (wire > free or waiting + wire > alpha * free))
