from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.engine.program.transfer import slow_start_delay

MSS = 1448


def _rounds(size: int, rate: float, round_trip: float, window: int) -> tuple[float, int]:
    """Time until the last byte is sent, and round trips begun: a window is sent, then its first acknowledgement comes.

    RFC 5681: each acknowledged round doubles the window; a window that lasts a round trip keeps the
    sender busy.
    """
    now, rounds = 0.0, 0
    while size > window:
        now += max(window / rate, round_trip)
        size -= window
        window *= 2
        rounds += 1
    return now + size / rate, rounds


@pytest.mark.slow
@given(
    size=st.integers(1, 10**9),
    rate=st.floats(1e6, 1e11),
    round_trip=st.integers(0, 10**9),
    segments=st.integers(1, 10),
)
def test_delay_is_what_the_rounds_add_to_a_full_rate(size: int, rate: float, round_trip: int, segments: int) -> None:
    window = segments * MSS
    delay = slow_start_delay(size, rate, round_trip, window)
    took, rounds = _rounds(size, rate, round_trip * 1e-12, window)
    assert delay * 1e-12 == pytest.approx(took - size / rate, rel=1e-9, abs=(rounds + 1) * 1e-12 + 1e-9 * size / rate)


def test_what_fits_the_first_window_waits_for_nothing() -> None:
    assert slow_start_delay(10 * MSS, 1.25e9, 50_000_000, 10 * MSS) == 0


def test_one_byte_more_waits_for_one_acknowledgement() -> None:
    first_window = int(10 * MSS / 1.25e9 * 1e12)
    assert slow_start_delay(10 * MSS + 1, 1.25e9, 50_000_000, 10 * MSS) == 50_000_000 - first_window


def test_a_window_above_the_bandwidth_delay_product_never_waits() -> None:
    assert slow_start_delay(10**12, 1.25e9, 50_000_000, 62_500) == 0
