from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import ScenarioError
from fabricsim.scenario.load import load
from fabricsim.scenario.variation import Drawn, Range, Speeds, ranges

CUBE = 8


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3", [3]), ("0-7", list(range(8))), ("0-63/8", list(range(0, 64, 8))), ("1, 5-7", [1, 5, 6, 7])],
)
def test_ranges_name_the_numbers_that_they_say(text: str, numbers: list[int]) -> None:
    assert [number for place in ranges(text) for number in place.numbers] == numbers


@pytest.mark.parametrize("text", ["", "a", "7-3", "0-7/0", "-1", "1,,2"])
def test_what_is_no_range_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ValueError, match="write them as 3, 0-7"):
        ranges(text)


@pytest.mark.parametrize(
    ("name", "width", "mean", "deviation"),
    [
        ("lognormal", 0.1, math.exp(0.005), math.exp(0.005) * math.sqrt(math.exp(0.01) - 1)),
        ("uniform", 0.3, 1.0, 0.3 / math.sqrt(3)),
        ("exponential", 0.2, 1.2, 0.2),
    ],
)
def test_factors_have_the_mean_and_deviation_of_their_distribution(
    name: str, width: float, mean: float, deviation: float
) -> None:
    count = 100_000
    factors = Drawn(name, width).factors((np.arange(count) + 0.5) / count)  # all quantiles alike

    assert factors.mean() == pytest.approx(mean, rel=2e-4)
    assert factors.std() == pytest.approx(deviation, rel=5e-3)


@given(st.floats(0, 1, exclude_max=True))
def test_the_normal_distribution_is_inverted_as_closely_as_its_source_says(uniform: float) -> None:
    z = math.log(Drawn("lognormal", 1.0).factors(np.array([uniform]))[0])

    exact = NormalDist().inv_cdf(min(max(uniform, 2.0**-54), 1 - 2.0**-53))
    assert z == pytest.approx(exact, abs=5e-4)


def test_speeds_are_those_given_and_later_ones_count() -> None:
    speeds = Speeds(((Range(0, 3), 0.5), (Range(2, 2), 2.0)))

    assert speeds.of(5, 0, "gpu speed").tolist() == [0.5, 0.5, 2.0, 0.5, 1.0]
    assert Speeds(each=(1.0, 0.5)).of(2, 0, "gpu speed").tolist() == [1.0, 0.5]


def test_drawn_speeds_depend_on_seed_and_stream_alone() -> None:
    drawn = Speeds(drawn=Drawn("lognormal", 0.05))

    assert np.array_equal(drawn.of(8, 1, "gpu speed"), drawn.of(64, 1, "gpu speed")[:8])
    assert not np.array_equal(drawn.of(8, 1, "gpu speed"), drawn.of(8, 2, "gpu speed"))
    assert not np.array_equal(drawn.of(8, 1, "gpu speed"), drawn.of(8, 1, "host speed"))


def test_all_ways_of_writing_speeds_are_read() -> None:
    ways = ["0.5", "[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]", '{"0-7" = 0.5}']
    read = [load("gpt2-medium-dp", [f"cluster.gpu_speed={way}"]).scenario.cluster.gpu_speed for way in ways]

    assert all(np.all(speeds.of(CUBE, 0, "gpu speed") == 0.5) for speeds in read)
    assert load("gpt2-medium-dp", ["cluster.host_speed.3=0.9"]).scenario.cluster.host_speed.of(CUBE, 0, "")[3] == 0.9


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("cluster.gpu_speed.8=0.5", "names rank 8, and there are 0 to 7"),
        ("cluster.gpu_speed=[1, 2]", "has 2 numbers for 8 ranks"),
        ("cluster.gpu_speed=0", "0 is no speed"),
        ("cluster.host_speed=fast", "'fast' is no speed"),
        ("cluster.gpu_speed.lognormla=0.1", "'lognormla' is no distribution"),
        ("cluster.gpu_speed.lognormal=9", "lognormal = 9 is out of range"),
        ("cluster.kernel_jitter=0.1", "0.1 is no distribution"),
        ("cluster.host_jitter={lognormal=0.1, uniform=0.1}", "is not one distribution"),
    ],
)
def test_a_slip_in_speeds_is_named_with_its_key(setting: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load("gpt2-medium-dp", [setting])
