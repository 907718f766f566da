from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim import units

DIMENSIONS = [units.BYTES, units.DURATION, units.RATE, units.TIME_PER_BYTE, units.FLOPS, units.LENGTH]
MOST = {
    "size": Decimal(2**50),
    "time": Decimal(3600 * 10**12),
    "rate": Decimal(10**15),
    "time per byte": Decimal("8e-6"),
    "arithmetic rate": Decimal(10**18),
    "length": Decimal(20_000_000),
}
LEAST = {**dict.fromkeys(MOST, Decimal(0)), "rate": Decimal(125_000), "arithmetic rate": Decimal(10**9)}
PAIRS = [(dimension, unit) for dimension in DIMENSIONS for unit in dimension.factors]


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("25MiB", units.BYTES, 25 * 2**20),
        ("25MB", units.BYTES, 25_000_000),
        ("1_000 kB", units.BYTES, 1_000_000),
        ("0B", units.BYTES, 0),
        ("5us", units.DURATION, 5_000_000),
        ("5µs", units.DURATION, 5_000_000),
        ("83.3us", units.DURATION, 83_300_000),
        ("1e-3 s", units.DURATION, 10**9),
        ("100Gbps", units.RATE, 12.5e9),
        ("100 Gbit/s", units.RATE, 12.5e9),
        ("12.5GBps", units.RATE, 12.5e9),
        ("1GiB/s", units.RATE, 2.0**30),
        ("0.2ns/B", units.TIME_PER_BYTE, 2e-10),
        ("312TFLOPS", units.FLOPS, 312e12),
        ("2.5 TFLOP/s", units.FLOPS, 2.5e12),
        ("30cm", units.LENGTH, 0.3),
        (".5m", units.LENGTH, 0.5),
    ],
)
def test_quantities_become_numbers_in_base_units(text: str, dimension: units.Dimension, value: float) -> None:
    parsed = units.parse(text, dimension)

    assert parsed == pytest.approx(value, rel=1e-15)
    assert isinstance(parsed, int) == dimension.integer


@given(st.integers(0, 10**6), st.sampled_from(PAIRS), st.sampled_from(["", " "]))
def test_number_times_unit_is_what_comes_out(number: int, pair: tuple[units.Dimension, str], space: str) -> None:
    dimension, unit = pair
    exact = number * dimension.factors[unit]
    if not LEAST[dimension.name] <= exact <= MOST[dimension.name]:
        return

    value = units.parse(f"{number}{space}{unit}", dimension)

    assert value == (round(exact) if dimension.integer else float(exact))


@given(st.integers(0, 2**50), st.integers(0, 3600 * 10**12))
def test_bytes_and_picoseconds_survive_exactly(size: int, number: int) -> None:
    assert units.parse(f"{size}B", units.BYTES) == size
    assert units.parse(f"{number}ps", units.DURATION) == number
    assert units.parse(f"{Decimal(number) / 10**12:f}s", units.DURATION) == number


@given(st.floats(125e3, 1e15, allow_nan=False))
def test_rates_survive_their_own_writing(rate: float) -> None:
    assert units.parse(f"{rate!r}Bps", units.RATE) == rate


@given(st.sampled_from(PAIRS), st.sampled_from(DIMENSIONS))
def test_dimensions_do_not_mix(pair: tuple[units.Dimension, str], wanted: units.Dimension) -> None:
    dimension, unit = pair
    if dimension is wanted:
        return

    with pytest.raises(ValueError, match=rf"is not a {wanted.name}"):
        units.parse(f"1{unit}", wanted)


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda dimension: dimension.name)
def test_bare_numbers_and_no_numbers_are_refused_with_an_example(dimension: units.Dimension) -> None:
    for value in (3, 3.5, True, None, "3", "", "fast", "Gbps", "1.2.3GB", "--1s", "nan s", "inf"):
        with pytest.raises(ValueError, match="write it like") as caught:
            units.parse(value, dimension)
        assert f'"{dimension.example}"' in str(caught.value)


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda dimension: dimension.name)
def test_quantities_are_accepted_up_to_both_ends_of_their_range_and_not_beyond(dimension: units.Dimension) -> None:
    unit, factor = next(iter(dimension.factors.items()))
    most, least = MOST[dimension.name] / factor, LEAST[dimension.name] / factor

    assert units.parse(f"{most:f}{unit}", dimension) == float(MOST[dimension.name])
    assert units.parse(f"{least:f}{unit}", dimension) == LEAST[dimension.name]
    with pytest.raises(ValueError, match=rf"is too large; a {dimension.name} is at most {dimension.most}"):
        units.parse(f"{most * Decimal('1.000001'):f}{unit}", dimension)
    if least:
        for amount in (least * Decimal("0.999999"), Decimal(0)):
            with pytest.raises(ValueError, match=rf"is too small; a {dimension.name} is at least {dimension.least}"):
                units.parse(f"{amount:f}{unit}", dimension)


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda dimension: dimension.name)
def test_negative_and_huge_quantities_are_refused(dimension: units.Dimension) -> None:
    unit = next(iter(dimension.factors))
    with pytest.raises(ValueError, match="is negative"):
        units.parse(f"-1{unit}", dimension)
    with pytest.raises(ValueError, match="too small"):
        units.parse(f"1e-99999999999999999999{unit}", dimension)
    for exponent in ("40", "999999999", "99999999999999999999"):
        with pytest.raises(ValueError, match="is too large"):
            units.parse(f"1e{exponent}{unit}", dimension)


@given(st.text(max_size=20), st.sampled_from(DIMENSIONS))
def test_any_text_is_a_quantity_or_a_value_error(text: str, dimension: units.Dimension) -> None:
    try:
        value = units.parse(text, dimension)
    except ValueError:
        return
    assert value >= 0
    assert math.isfinite(value)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (2**20, "1 MiB"), (1.5 * 2**30, "1.5 GiB"), (2**50, "1024 TiB")],
)
def test_bytes_for_people(count: float, text: str) -> None:
    assert units.human_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 s"), (1.5, "1.5 s"), (0.0123, "12.3 ms"), (5e-6, "5 us"), (2e-9, "2 ns")]
)
def test_seconds_for_people(value: float, text: str) -> None:
    assert units.human_seconds(value) == text
    assert units.seconds(round(value * units.PS_PER_S)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("count", "things", "text"),
    [
        (1, "jobs", "1 job"),
        (2, "jobs", "2 jobs"),
        (1, "copies", "1 copy"),
        (1, "switches", "1 switch"),
        (1234, "timeouts", "1,234 timeouts"),
    ],
)
def test_things_are_counted_in_words(count: int, things: str, text: str) -> None:
    assert units.human_count(count, things) == text
