"""Laws of congestion control in the packet engine against what their papers derive for simple networks.

The experiments are in ``tests/reference/congestion.py``; docs/explanation/congestion-control.md shows their pictures.
Tolerances are those of the models, which are fluid: they know neither whole packets nor flows that are out of step.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fabricsim.results.traffic import DEMAND, Matrix
from fabricsim.run import traffic
from fabricsim.scenario.load import load
from tests.reference import congestion

MS = 10**9  # ps


def jain(rates: NDArray[np.float64]) -> float:
    """Fairness index (Jain, Chiu, Hawe 1984): 1 if all are equal."""
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))


# ---- DCTCP --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("flows", [2, 10, 40])
def test_dctcp_queue_swings_about_its_threshold_as_the_fluid_model_says(flows: int) -> None:
    seen = congestion.dctcp(flows)
    model = congestion.Sawtooth.of(seen)
    begin, end = 5 * MS, 12 * MS
    middle = seen.queue.mean(begin, end)
    packet = congestion.DCTCP_PACKET
    swings = congestion.teeth(seen.queue.between(begin, end), middle)
    swings = swings[swings[:, 1] - swings[:, 2] > model.amplitude * packet / 3]  # without the jitter of single packets
    assert len(swings) > 5
    assert swings[:, 1].mean() / packet == pytest.approx(model.highest, rel=0.15)  # K + N
    assert (swings[:, 1] - swings[:, 2]).mean() / packet == pytest.approx(model.amplitude, rel=0.25)
    assert model.lowest < middle / packet < model.highest
    assert not seen.bottleneck["drops"]
    assert (seen.flows["retransmissions"] == 0).all()


def test_dctcp_window_has_the_period_of_the_model() -> None:
    seen = congestion.dctcp(2)
    model = congestion.Sawtooth.of(seen)
    window = seen.windows[0].between(5 * MS, 12 * MS)
    cuts = window.times[1:][np.diff(window.values) < -2]
    # the paper counts in round trips, which last longer by what waits in the queue
    trips = model.period / model.round_trip
    queue = seen.queue.mean(5 * MS, 12 * MS) / 1.25e9
    assert np.diff(cuts).mean() * 1e-12 == pytest.approx(trips * (model.round_trip + queue), rel=0.15)


def test_dctcp_keeps_the_link_busy() -> None:
    seen = congestion.dctcp(10)
    rate = seen.bottleneck["bytes"] / (seen.completion.max() * 1e-12)
    assert rate > 0.93 * 1.25e9  # slow start, and the end when few flows are left, included


# ---- DCQCN --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dcqcn_is_fair_when_additive_increase_has_had_its_time() -> None:
    seen = congestion.dcqcn()
    line, begin = congestion.DCQCN_RATE, 5 * MS

    def rates(at: int) -> NDArray[np.float64]:
        return np.array([rate.mean(at, at + 2 * MS) for rate in seen.rates])

    assert seen.rates[0].mean(MS, begin) == pytest.approx(line, rel=1e-3)  # alone: at line rate
    lowest = min(rate.between(begin, begin + 2 * MS).values.min() for rate in seen.rates)
    climb = (line / 2 - lowest) / congestion.DCQCN_STEP * congestion.DCQCN_TIMER  # ps, to the fair share
    fair = begin + int(climb)
    assert jain(rates(begin)) < 0.95  # so that there is something to show
    for at in range(fair, 58 * MS, 2 * MS):
        assert jain(rates(at)) > 0.99
        assert rates(at).sum() == pytest.approx(line, rel=0.1)


# ---- HPCC ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("senders", [1, 2, 8])
def test_hpcc_uses_95_percent_and_no_queue(senders: int) -> None:
    seen = congestion.hpcc(senders)
    packet = 1048
    end = int(seen.completion.min())
    assert seen.queue.mean(MS, end) / packet < 3
    assert seen.queue.between(MS, end).values.max() / packet < 8
    goodput = congestion.HPCC_BYTES / (seen.completion.max() * 1e-12)
    assert goodput == pytest.approx(0.95 * 12.5e9 * 1000 / packet, rel=0.02)


@pytest.mark.parametrize("cable", ["5m", "200m"])
def test_hpcc_fills_short_paths_both_ways(cable: str) -> None:
    """Products of 3 and 15 packets: each flow's acknowledgements wait for packets of the other."""
    settings = ["transport=roce-100g-hpcc", "engine=packet", "cluster.hosts=2", f"fabric.host_cable={cable}"]
    flows = np.zeros(2, DEMAND)
    flows["id"], flows["source"], flows["target"], flows["bytes"] = (1, 2), (0, 1), (1, 0), 4_000_000
    result = traffic.simulate(load("ideal-16", settings).scenario, Matrix(flows, 2, "both ways"))
    goodput = 4_000_000 / (result.completion * 1e-12)
    assert goodput == pytest.approx(0.95 * 0.99 * 12.5e9 * 4096 / 4178, rel=0.05)  # eta of what the adapter sends


# ---- CUBIC --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cubic_window_follows_its_cubic_after_a_loss() -> None:
    seen = congestion.cubic()
    times, window = seen.windows[0].times * 1e-12, seen.windows[0].values
    cut = np.flatnonzero(np.diff(window) < -0.2 * window[:-1])[-1] + 1
    peak = window[cut - 1]
    assert window[cut] == pytest.approx(congestion.CUBIC_BETA * peak, rel=0.01)
    grows = cut + np.flatnonzero(window[cut:] > window[cut])[0]
    begin = times[grows]
    origin = np.cbrt((peak - window[cut]) / congestion.CUBIC_SCALE)  # RFC 9438, figure 2: K
    cubic = congestion.CUBIC_SCALE * (times[grows:] - begin - origin) ** 3 + peak  # figure 1
    assert times[-1] - begin > 6  # s: most of the way to the plateau, at origin
    assert 6 < origin < 10
    assert np.abs(window[grows:] - cubic).max() < 0.01 * peak


# ---- incast -------------------------------------------------------------------------------------


def test_incast_loses_nothing_under_pfc() -> None:
    seen = congestion.incast(congestion.PAUSING)
    links = seen.network.links
    assert links["pauses"].sum() > 0
    assert not links["drops"].any()
    assert not seen.flows["retransmissions"].any()
    wire = 32 * (68 * 1500 + 760) / 12.5e9  # s: 68 full segments and one of 720 bytes from each
    assert wire < seen.completion.max() * 1e-12 < wire * 1.01


def test_incast_with_tail_drop_waits_for_timers() -> None:
    seen = congestion.incast(congestion.TAIL_DROP)
    timeout = 10 * MS
    assert seen.bottleneck["drops"] > 0
    waits, rest = np.divmod(seen.completion, timeout)
    timeouts = seen.flows["timeouts"]
    assert ((waits > 0) == (timeouts > 0)).all()
    assert (waits >= timeouts).all()  # each lasts at least the least timeout, and doubles where nothing gets through
    assert len(set(waits.tolist())) >= 3
    assert (rest < MS // 4).all()  # between the timers nothing happens: what is sent takes microseconds
    assert (timeouts > 0).sum() > 16
