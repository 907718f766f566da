"""Calibration through the simulator: what made a table is found again, and written so that it loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fabricsim.calibration import preset
from fabricsim.calibration.calibrate import calibrate
from fabricsim.calibration.measurements import Measurement, between, read
from fabricsim.calibration.parameters import of_scenario
from fabricsim.calibration.simulated import Simulated, described
from fabricsim.cli.main import app
from fabricsim.errors import InputError, ScenarioError
from fabricsim.run.bench import collective_times, point_to_point_times
from fabricsim.scenario.load import load

SMALL = ["cluster=hkbu", "transport=rdma-100g", "collectives=nccl-2.6"]
TRUTH = [
    "transport.nccl={ll={latency='9us', byte_latency='0.4ns/B'}, simple={latency='12us', byte_latency='0.05ns/B'}}"
]
SHAPE = ["cluster.hosts=2", "cluster.gpus_per_host=2"]


def _simulated(settings: list[str], powers: range) -> Measurement:
    sizes = [2**power for power in powers]
    made = load("hkbu", [*SMALL, *SHAPE, *settings]).scenario
    times = np.array([row.seconds for row in collective_times(made, "all_reduce", sizes)])
    return Measurement("made.log", "collective", "all_reduce", np.array(sizes), times, times, ranks=4, hosts=2)


@pytest.fixture(scope="module")
def made() -> Measurement:
    return _simulated(TRUTH, range(3, 26))


@pytest.mark.slow
def test_a_transport_is_found_again_and_predicts_what_it_did_not_see(made: Measurement) -> None:
    found = calibrate("hkbu", SMALL, [made], "half")
    values = {estimate.parameter.name: estimate for estimate in found.fit.estimates}

    assert values["nccl.ll.latency"].value == pytest.approx(9e-6, rel=0.1)
    assert values["nccl.ll.byte_latency"].value == pytest.approx(0.4e-9, rel=0.3)
    assert values["nccl.simple.latency"].value == pytest.approx(12e-6, rel=0.25)
    summary = found.validation().summary
    assert summary["rows"] == "held out"
    assert summary["error of time, median"] < 0.02
    assert summary["error of time, 90th percentile"] < 0.05


def test_rings_have_a_latency_of_their_own_where_trees_ran_too() -> None:
    scenario = load("hkbu", SMALL).scenario
    both = {each.name: each for each in of_scenario(scenario, ["tree-ll", "ring-ll", "ring-simple"], {"collective"})}
    alone = {each.name: each for each in of_scenario(scenario, ["ring-ll", ""], {"collective"})}

    assert both["nccl.ll.latency"].concerns("tree-ll")
    assert not both["nccl.ll.latency"].concerns("ring-ll")
    assert both["nccl.ll.ring_latency"].concerns("ring-ll")
    assert both["efficiency"].concerns("tree-ll")
    assert not {"nccl.simple.ring_latency", "nccl.ll128.latency"} & set(both)
    assert "nccl.ll.ring_latency" not in alone
    assert alone["nccl.ll.latency"].concerns("ring-ll")


@pytest.mark.slow
def test_times_follow_parameters_as_settings_of_the_scenario_do(made: Measurement) -> None:
    table = between(made, 1, 2**12)
    settings = [*SMALL, *SHAPE]
    parameters = of_scenario(load("hkbu", settings).scenario, ["tree-ll"], {"collective"})
    simulated = Simulated("hkbu", settings, table, parameters)
    ours = simulated.times([9e-6, 0.4e-9, *(each.start for each in parameters[2:])])

    assert ours == pytest.approx(table.undisturbed, rel=1e-9)


@pytest.mark.slow
def test_a_table_of_small_messages_tells_no_bandwidth(made: Measurement) -> None:
    found = calibrate("hkbu", SMALL, [between(made, 1, 2**14)])

    untold = [estimate.parameter.name for estimate in found.fit.estimates if not estimate.determined]
    assert {"efficiency", "host_efficiency"} <= set(untold)
    assert any("where latency decides; measure up to" in warning for warning in found.warnings)


@pytest.mark.slow
def test_a_table_of_large_messages_tells_no_latency() -> None:
    found = calibrate("hkbu", SMALL, [_simulated(TRUTH, range(26, 29))])

    assert any(
        warning.startswith("nccl.simple.latency is not determined") and "measure smaller sizes" in warning
        for warning in found.warnings
    )


@pytest.mark.slow
def test_osu_latency_tells_latency_and_overhead_together() -> None:
    sizes = [2**power for power in range(8)]
    slow = load("hkbu", [*SMALL, "transport.mpi.latency=4us"]).scenario
    times = np.array([row.seconds for row in point_to_point_times(slow, sizes)])
    found = calibrate("hkbu", SMALL, [Measurement("osu.txt", "latency", "latency", np.array(sizes), times, times)])

    assert found.fit.estimates[0].parameter.name == "mpi.latency"
    assert found.fit.estimates[0].value == pytest.approx(4e-6, rel=0.02)


@pytest.mark.slow
def test_the_preset_is_whole_sourced_and_loads_back(made: Measurement, tmp_path: Path) -> None:
    table = between(made, 1, 2**13)
    found = calibrate("hkbu", SMALL, [table])
    path = tmp_path / "measured.toml"
    preset.write(path, "hkbu", SMALL, "rdma-100g", found)

    loaded = load("hkbu", [f"transport={path}"]).scenario.transport
    assert loaded.name == "measured"
    assert loaded.nccl is not None
    assert loaded.nccl.ll is not None
    assert loaded.nccl.ll.latency == pytest.approx(found.fit.values[0] * 1e12, rel=1e-4)
    assert loaded.switch == load("hkbu").scenario.transport.switch
    text = path.read_text(encoding="utf-8")
    assert f"calibrated on made.log, {len(table.sizes)} rows, 95 % interval" in text
    assert "not determined by made.log" in text
    assert "# as in rdma-100g: EDR 4 lanes" in text
    assert [file.name for file in tmp_path.iterdir()] == ["measured.toml"]

    again = calibrate("hkbu", [*SMALL, f"transport={path}"], [table])  # begun with what was found
    assert again.fit.values == pytest.approx(found.fit.values, rel=0.05)


@pytest.mark.slow
def test_an_older_preset_stays_where_the_new_one_cannot_be_written(made: Measurement, tmp_path: Path) -> None:
    found = calibrate("hkbu", SMALL, [between(made, 1, 2**9)])
    with pytest.raises(InputError, match="cannot be written"):
        preset.write(tmp_path / "none" / "measured.toml", "hkbu", SMALL, "rdma-100g", found)
    with pytest.raises(InputError, match=r"name it .*measured\.toml"):
        preset.check_target(tmp_path / "measured.json")


@pytest.mark.parametrize(
    ("table", "settings", "problem"),
    [
        ({"ranks": 4, "hosts": 1}, SMALL, "ran on one host"),
        ({"ranks": 5, "hosts": 2}, SMALL, "not alike on each host"),
        ({"ranks": 4, "hosts": 2}, [*SMALL[:2], "collectives=ideal"], "--collectives"),
    ],
)
def test_what_cannot_be_simulated_is_an_error(table: dict[str, int], settings: list[str], problem: str) -> None:
    times = np.ones(3)
    measured = Measurement("run.log", "collective", "all_reduce", np.arange(1, 4), times, times, **table)
    with pytest.raises(InputError, match=problem):
        described("hkbu", settings, measured)


@pytest.mark.slow
def test_the_command_fits_a_shipped_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "measured.toml"
    arguments = ["calibrate", "hkbu-10gbe-default", "--cluster", "hkbu", "--transport", "tcp-10g", "--json"]
    app([*arguments, "--hold-out", "half", "--max-bytes", "512B", "-o", str(output)], standalone_mode=False)

    printed = json.loads(capsys.readouterr().out)
    assert {row["quantity"] for row in printed["rows"]} >= {"all_reduce, 128 B"}
    assert printed["parameters"][0]["name"] == "nccl.ll.latency"
    assert printed["warnings"]
    assert (tmp_path / "measured.png").read_bytes().startswith(b"\x89PNG")
    assert output.exists()


def test_logs_of_no_known_version_of_nccl_are_refused() -> None:
    table = read("nccl-p4de")
    assert table.nccl == "not stated"
    with pytest.raises(InputError, match="--collectives"):
        app(["calibrate", "nccl-p4de", "--cluster", "aws-p4de", "--transport", "efa-100g"], standalone_mode=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "transport", "half"),
    [("hkbu-10gbe-default", "tcp-10g", "half"), ("hkbu-100g-ib-default", "rdma-100g", "other-half")],
)
def test_half_of_a_captured_table_tells_the_other_half(table: str, transport: str, half: str) -> None:
    """What the calibration is for: 10 % median, 25 % at the 90th percentile, from 1 KiB to 512 MiB."""
    settings = ["cluster=hkbu", f"transport={transport}", "collectives=nccl-2.6"]
    found = calibrate("hkbu", settings, [read(table)], half)
    held = found.rows(held_out=True)[0]
    judged = held.measurement.sizes >= 1024

    for errors in (held.errors, held.errors_out_of_place):
        assert np.median(np.abs(errors[judged])) <= 0.10
        assert np.percentile(np.abs(errors[judged]), 90) <= 0.25


def test_what_a_log_says_of_hosts_is_not_said_to_be_a_setting() -> None:
    """Seven ranks on a host do not go with four adapters of the cluster."""
    sizes, times = np.array([2**20]), np.array([1e-3])
    odd = Measurement("odd.log", "collective", "all_reduce", sizes, times, times, ranks=14, hosts=2)

    with pytest.raises(ScenarioError) as raised:
        calibrate("hkbu", [*SMALL, "cluster.nics_per_host=4"], [odd])
    assert "cluster.gpus_per_host is from odd.log" in str(raised.value)
    assert "--set: cluster.nics_per_host: 4 does not divide the 7 GPUs" in str(raised.value)
    assert "gpus_per_host is from --set" not in str(raised.value)
