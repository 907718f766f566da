from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.records.transport import TELEMETRY
from fabricsim.transports.laws import hpcc
from tests.reference.laws import make_flow, make_law

US = 10**6
LINE = 12.5e9  # 80 ps per byte
PS_PER_BYTE = 80.0
T = 8 * US  # base round trip
WIRE = 4000
BDP = 25.0  # packets: 12.5 GB/s x 8 us / 4000
ETA = 0.95
AI = 0.5
HOPS = 2
SPAN = 8
FIRST = 3  # row of the flow's telemetry


class Flow:
    """An HPCC flow whose ACKs carry the telemetry that the test gives."""

    def __init__(self, **changes: float) -> None:
        self.row = make_flow(line_rate=LINE, base_rtt=T, wire=WIRE, hops=HOPS, first_telemetry=FIRST)[0]
        parameters = {
            "eta": ETA,
            "additive": AI,
            "stages": 5,
            "span": SPAN,
            "minimum_window": 0.1,
            "maximum_window": 1000.0,
        }
        self.law = make_law(**(parameters | changes))[0]
        self.table = np.zeros(FIRST + (SPAN + 1) * HOPS + 2, np.dtype((np.record, TELEMETRY)))
        self.table["ps_per_byte"] = PS_PER_BYTE
        self.table["time"][:FIRST] = self.table["time"][-2:] = -1  # other flows'
        hpcc.start(self.row, self.law)

    @property
    def paced_window(self) -> float:
        """The window as the rate has it, packets: not rounded to whole ones."""
        return float(self.row.rate * T * 1e-12 / WIRE)

    def acknowledge(self, number: int, next_number: int, *hops: tuple[int, int, int]) -> None:
        """Give each link's time, bytes sent and drain time."""
        for hop, (time, sent, drain) in enumerate(hops):
            self.table[FIRST + number % SPAN * HOPS + hop] = (time, sent, drain, PS_PER_BYTE, 0)
        self.row.next_number = next_number
        hpcc.acknowledge(self.row, self.law, 0, 1, self.table, number, number % int(self.law.span))
        assert set(self.table["time"][:FIRST]) | set(self.table["time"][-2:]) == {-1}


def test_the_first_window_is_the_bandwidth_delay_product() -> None:
    flow = Flow()
    assert flow.paced_window == pytest.approx(BDP, rel=1e-12)
    assert flow.row.rate == pytest.approx(LINE, rel=1e-12)
    assert flow.row.utilisation == 1.0


def test_the_first_ack_only_leaves_its_telemetry() -> None:
    flow = Flow()
    flow.acknowledge(0, 20, (0, 0, 0), (2 * US, 0, 5 * US))  # sent at time zero
    assert flow.paced_window == pytest.approx(BDP, rel=1e-12)
    assert flow.row.epoch == 20
    kept = flow.table[FIRST + SPAN * HOPS :]
    assert kept["time"][:HOPS].tolist() == [0, 2 * US]
    assert kept["drain"][:HOPS].tolist() == [0, 5 * US]


def test_the_busiest_link_decides_and_weighs_with_its_interval() -> None:
    flow = Flow()
    flow.acknowledge(0, 20, (US, 0, 0), (2 * US, 0, 3 * US))
    # Link 0: 60 kB in 6 us are 0.8 of the line, no queue. Link 1: 25 kB in 4 us are 0.5, queue min(3, 4) of 8 us.
    flow.acknowledge(1, 21, (7 * US, 60_000, 7 * US), (6 * US, 25_000, 4 * US))
    busiest = 0.5 + 3 / 8
    assert busiest > 0.8
    utilisation = 1.0 * (1 - 4 / 8) + busiest * 4 / 8
    assert flow.row.utilisation == pytest.approx(utilisation, rel=1e-12)
    # Below eta: an additive step from the reference window, which the bandwidth-delay product bounds.
    assert utilisation < ETA
    assert flow.paced_window == pytest.approx(BDP, rel=1e-12)


def test_above_the_target_the_window_is_divided_by_the_overuse() -> None:
    flow = Flow()
    flow.acknowledge(0, 20, (US, 0, 2 * T), (2 * US, 0, 0))
    flow.acknowledge(1, 21, (US + T, 100_000, T), (2 * US + T, 100_000, 0))  # line rate and a queue of T: U = 2
    assert flow.row.utilisation == pytest.approx(2.0, rel=1e-12)
    window = BDP / (2 / ETA) + AI
    assert flow.paced_window == pytest.approx(window, rel=1e-12)
    assert flow.row.rate == pytest.approx(window * WIRE / (T * 1e-12), rel=1e-12)


def test_a_packet_may_go_while_less_than_the_window_is_in_flight() -> None:
    flow = Flow()
    flow.acknowledge(0, 20, (US, 0, 2 * T), (2 * US, 0, 0))
    flow.acknowledge(1, 21, (US + T, 100_000, T), (2 * US + T, 100_000, 0))
    assert flow.paced_window == pytest.approx(12.375, rel=1e-12)
    assert flow.row.window == 13.0  # as whole packets go


def test_an_interval_beyond_the_base_round_trip_weighs_as_one() -> None:
    flow = Flow()
    flow.acknowledge(0, 20, (US, 0, 0), (2 * US, 0, 0))
    flow.acknowledge(1, 21, (US + 4 * T, 200_000, 0), (2 * US + 4 * T, 0, 0))
    assert flow.row.utilisation == pytest.approx(0.5, rel=1e-12)


def steady(flow: Flow, number: int, next_number: int, share: float) -> None:
    """Acknowledge `number`, one base round trip after the one before, with `share` of the line used."""
    sent = round(share * T / PS_PER_BYTE) * number
    flow.acknowledge(number, next_number, (US + number * T, sent, 0), (2 * US + number * T, 0, 0))


def test_within_a_round_trip_the_window_starts_from_one_reference() -> None:
    flow = Flow()
    flow.acknowledge(0, 20, (US, 0, 2 * T), (2 * US, 0, 0))
    for number in range(1, 4):  # below epoch 20: U = 2 each time, but the reference stands
        place = US + number * T
        flow.acknowledge(number, 20 + number, (place, number * 100_000, T), (place + US, 0, 0))
        assert flow.paced_window == pytest.approx(BDP / (2 / ETA) + AI, rel=1e-12)
    assert flow.row.reference == pytest.approx(BDP, rel=1e-12)
    place = US + 20 * T
    flow.acknowledge(20, 30, (place, 20 * 100_000, T), (place + US, 0, 0))  # the first of a new round trip
    # 17 intervals at line rate; the queue: U = 1 + 1.
    window = BDP / (2 / ETA) + AI
    assert flow.row.reference == pytest.approx(window, rel=1e-12)
    assert flow.row.epoch == 30
    place += T
    flow.acknowledge(21, 31, (place, 21 * 100_000, T), (place + US, 0, 0))
    assert flow.paced_window == pytest.approx(window / (2 / ETA) + AI, rel=1e-12)
    assert flow.row.reference == pytest.approx(window, rel=1e-12)


def test_after_the_last_additive_stage_the_window_is_scaled_to_the_target() -> None:
    flow = Flow(stages=2)
    flow.row.reference = 10.0
    flow.acknowledge(0, 1, (US, 0, 0), (2 * US, 0, 0))
    window = 10.0
    for number in range(1, 6):  # each ACK ends a round trip, the line is half used
        steady(flow, number, number + 1, 0.5)
        if number % 3 == 0:
            window = window / (0.5 / ETA) + AI
        else:
            window += AI
        assert flow.paced_window == pytest.approx(window, rel=1e-9)


def test_without_additive_stages_each_ack_scales_to_the_target() -> None:
    flow = Flow(stages=0)
    flow.row.reference = 10.0
    flow.acknowledge(0, 1, (US, 0, 0), (2 * US, 0, 0))
    steady(flow, 1, 2, 0.5)
    assert flow.paced_window == pytest.approx(10 / (0.5 / ETA) + AI, rel=1e-12)


def test_a_path_without_traffic_gives_the_largest_window() -> None:
    flow = Flow(stages=0)
    flow.row.reference = 1.0
    flow.acknowledge(0, 1, (US, 0, 0), (2 * US, 0, 0))
    steady(flow, 1, 2, 0.0)
    assert flow.paced_window == pytest.approx(BDP, rel=1e-12)


def test_telemetry_of_an_overtaken_packet_changes_nothing() -> None:
    flow = Flow()
    flow.acknowledge(1, 20, (5 * US, 0, T), (6 * US, 0, T))
    before = flow.row.tobytes()
    flow.acknowledge(0, 20, (4 * US, 0, T), (6 * US, 0, T))
    assert flow.row.tobytes() == before
    assert flow.table["time"][FIRST + SPAN * HOPS :][:HOPS].tolist() == [5 * US, 6 * US]


def test_numbers_beyond_the_ring_use_its_rows_again() -> None:
    flow = Flow()
    flow.acknowledge(SPAN - 1, 20, (US, 0, 0), (2 * US, 0, 0))
    steady(flow, 3 * SPAN, 3 * SPAN + 5, 0.5)
    assert flow.row.utilisation == pytest.approx(0.5, rel=1e-9)


def test_losses_change_nothing() -> None:
    flow = Flow()
    before = flow.row.tobytes()
    hpcc.lose(flow.row, flow.law, US)
    hpcc.time_out(flow.row, flow.law, US)
    assert flow.row.tobytes() == before


@given(
    acks=st.lists(
        st.tuples(st.integers(0, 20 * US), st.integers(0, 300_000), st.integers(0, 100 * US), st.integers(1, 30)),
        max_size=40,
    )
)
def test_whatever_the_telemetry_the_window_keeps_its_bounds(acks: list[tuple[int, int, int, int]]) -> None:
    flow = Flow()
    time = sent = 0
    for number, (gap, more, drain, flight) in enumerate(acks):
        time, sent = time + gap, sent + more
        flow.acknowledge(number, number + flight, (time, sent, drain), (time + US, sent // 2, drain // 2))
        assert 0.1 <= flow.row.window <= BDP * (1 + 1e-12)
        assert 0.0 < flow.row.rate <= LINE
        assert flow.row.rate <= flow.row.window * WIRE / (T * 1e-12) * (1 + 1e-12)
        assert flow.row.utilisation >= 0.0
