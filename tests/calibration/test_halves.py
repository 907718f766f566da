"""How well halves of a table tell one another: what is judged, what counts as noise, and what is printed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fabricsim.calibration.halves import Half, halves, holds
from fabricsim.calibration.measurements import Measurement, between, read
from fabricsim.cli.calibrate_halves import show_halves, summary
from fabricsim.cli.main import app
from fabricsim.errors import InputError

SMALL = ["cluster=hkbu", "transport=rdma-100g", "collectives=nccl-2.6"]
COMMAND = ["calibrate", "hkbu-100g-ib-default", "--cluster", "hkbu", "--transport", "rdma-100g"]


def _half(name: str, errors: list[float], noise: list[float]) -> Half:
    sizes = 1024 * 2 ** np.arange(len(errors))
    off = np.array(errors)
    return Half(name, sizes, off, (1 + off) * (1 + np.array(noise)) - 1, np.array(noise))


def test_halves_hold_by_median_and_tail() -> None:
    assert holds(np.array([0.1, -0.1, 0.05]))
    assert not holds(np.array([0.11, -0.11, 0.11]))  # median
    assert not holds(np.array([0.0, 0.0, 0.0, -0.5]))  # 90th percentile


def test_only_halves_that_hold_are_counted_and_the_worst_is_said() -> None:
    found = [_half("half", [0.01, 0.02, -0.03], [0.0, 0.0, -0.6]), _half("1", [0.3, 0.3, 0.3], [0.0, 0.0, 0.0])]
    told = summary(found)

    assert told["halves"] == 2
    assert told["error of time, halves that hold"] == 1
    assert told["noise, halves that hold"] == 1
    assert told["error of time, median, largest"] == pytest.approx(0.3)
    assert told["error of time, median, typical"] == pytest.approx((0.02 + 0.3) / 2)


def test_sizes_and_noise_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show_halves([_half("half", [0.01, -0.02], [0.0, -0.65])], as_json=False)
    printed = capsys.readouterr().out

    assert "2 KiB" in printed
    assert "65.0 %" in printed
    assert "0 of 1" in printed


@pytest.mark.slow
def test_halves_of_a_table_tell_one_another_from_a_kibibyte_on(capsys: pytest.CaptureFixture[str]) -> None:
    app([*COMMAND, "--halves", "0", "--max-bytes", "4KiB", "--json"], standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)

    assert [each["hold_out"] for each in printed["halves"]] == ["half", "other-half"]
    assert sorted(size for each in printed["halves"] for size in each["sizes"]) == [1024, 2048, 4096]
    noise = {size: off for each in printed["halves"] for size, off in zip(each["sizes"], each["noise"], strict=True)}
    assert noise[2048] == pytest.approx(70.91 / 202.2 - 1)  # as captured: 202.2 us out of place, 70.91 in place
    assert printed["summary"]["error of time, median, largest"] < 0.10


@pytest.mark.slow
def test_a_table_of_small_sizes_alone_is_refused() -> None:
    table: Measurement = between(read("hkbu-100g-ib-default"), 1, 64)
    with pytest.raises(InputError, match="--halves: no size of 1024 bytes or more"):
        halves("hkbu", SMALL, [table], 0)


@pytest.mark.parametrize("other", [["--hold-out", "half"], ["-o", "measured.toml"]])
def test_halves_go_with_neither_another_half_nor_a_preset(other: list[str]) -> None:
    with pytest.raises(InputError, match="--halves fits many halves"):
        app([*COMMAND, "--halves", "1", *other], standalone_mode=False)
