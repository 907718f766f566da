"""The compiled packet engine against the readable one, event by event."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import cache

import pytest

from fabricsim.records.packet import DROPPED
from tests.reference import packet_cases, packet_runs

CASES = int(os.environ.get("FABRICSIM_CASES", "80"))
"""80 cases have every law with every kind of switch; the full comparison takes 2000."""
CHUNK = 40
SHRINKING = ("cubic", "dctcp", "swift", "swift", "timely")
"""Laws of which some reduce windows often."""


def _draw(seed: int) -> packet_cases.Case:
    """Draw a case; the reference, which is slow, has two of three of the first ones with a third of the packets.

    In those as much happens to each packet, but fewer than a scoreboard holds are in a flow.
    """
    return packet_cases.draw(seed, packets=20 if seed < 80 and seed % 3 else 60)


@cache
def _drawn(seed: int) -> packet_runs.Trace:
    return packet_runs.Compiled(packet_cases.draw(seed)).run()


def _first_difference(ours: list[tuple[int, ...]], theirs: list[tuple[int, ...]]) -> str:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((f"entry {i}: {ours} != {theirs}" for i, (ours, theirs) in pairs if ours != theirs), "lengths differ")


def _assert_equal(seed: int, draw: Callable[[int], packet_cases.Case] = _draw) -> None:
    case = draw(seed)
    expected = packet_runs.reference(case)
    found = packet_runs.Compiled(draw(seed)).run()
    assert found.log == expected.log, f"{case.title}: {_first_difference(found.log, expected.log)}"
    assert found.deliveries == expected.deliveries, case.title
    assert found.counters == expected.counters, case.title
    unseen = packet_runs.Compiled(draw(seed), logged=False).run()  # packets that nobody watches: a short way
    assert (unseen.deliveries, unseen.counters) == (expected.deliveries, expected.counters), case.title


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_equals_the_reference(first: int) -> None:
    for seed in range(first, min(first + CHUNK, CASES)):
        _assert_equal(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [223, 1258])
def test_equals_the_reference_in_rare_cases(seed: int) -> None:
    """HPCC with more copies than it has telemetry for, and with trimmed ones."""
    _assert_equal(seed)


@pytest.mark.slow
def test_equals_the_reference_where_stacks_hold_acknowledgements_and_the_first_are_quick() -> None:
    def draw(seed: int) -> packet_cases.Case:
        case = _draw(seed)
        laws = case.tables["laws"]
        laws["stacks"] = [(20_000_000, 1, 700_000)[(seed + number) % 3] for number in range(len(laws))]
        laws["quick_acks"] = [(3, 16, 0, 1)[(seed + number) % 4] for number in range(len(laws))]
        return case

    for seed in range(24):  # each of the three times in stacks with each of the four numbers of quick ones, twice
        _assert_equal(seed, draw)


@pytest.mark.slow
def test_equals_the_reference_where_flows_leave_the_round_of_a_nic_that_lacks_credits() -> None:
    """Of two laws, each with a class of its own, one passes servers: its flows do not wait for the wire.

    Seeds 15, 55 and 59 fail if a NIC that lacks credits still acts at the time of a flow that has left the round.
    """

    def draw(seed: int) -> packet_cases.Case:
        rng = random.Random(seed)  # noqa: S311  not for secrets
        credits_of = packet_cases.Options(credits=rng.randint(2, 10) * 1088, lossless=(0, 1))
        builder = packet_cases.star(4, rng.choice((10.0, 25.0)), rng.randint(0, 2 * packet_cases.US), credits_of)
        builder.way_out = (rng.uniform(5.0, 60.0),)
        for data_class in range(2):
            builder.add_law(**packet_cases.draw_law(rng, rng.choice(SHRINKING), 1000) | {"data_class": data_class})
        for _ in range(rng.randint(3, 6)):
            builder.add_flow(rng.choice((1, 1, 2, 3)), 0, rng.randrange(2))
        posts = packet_cases.draw_posts(rng, len(builder.flows), 1000)
        case = packet_cases.Case(builder.build(), posts, packet_cases.END, f"seed {seed}", builder.dispatch)
        flows = case.tables["flows"]
        flows["stages"][flows["law"] == seed % 2] = 0
        return case

    for seed in (15, 55, 59, *range(8)):
        _assert_equal(seed, draw)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "calendar", "many"),
    [(10**12, True, False), (20_000, False, False), (1, True, False), (10**12, False, True)],
)
def test_windows_calendar_and_fetching_do_not_matter(*, window: int, calendar: bool, many: bool) -> None:
    for seed in range(36):
        expected = _drawn(seed)
        found = packet_runs.Compiled(packet_cases.draw(seed), window=window, calendar=calendar, many=many).run()
        assert found == expected, f"seed {seed}"
        unseen = packet_runs.Compiled(packet_cases.draw(seed), window=window, calendar=calendar, logged=False).run()
        assert (unseen.deliveries, unseen.counters) == (expected.deliveries, expected.counters), f"seed {seed}"


@pytest.mark.slow
def test_cases_are_eventful() -> None:
    """Marks, drops, errors, trims and pauses all happen, and most messages arrive."""
    totals = [0] * len(packet_runs.COUNTERS)
    dropped = delivered = posted = 0
    for seed in range(72):
        case = packet_cases.draw(seed)
        trace = _drawn(seed)
        totals = [sum(column) for column in zip(totals, *trace.counters, strict=True)]
        dropped += sum(entry[-1] == DROPPED for entry in trace.log)
        delivered, posted = delivered + len(trace.deliveries), posted + len(case.posts)
    assert all(totals)
    assert dropped > 0
    assert delivered > 0.9 * posted
