from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricsim import measured
from fabricsim.errors import InputError
from fabricsim.results.summary import bus_factor
from fabricsim.run import benchtable
from fabricsim.run.bench import COLLECTIVES, collective_times, devices, point_to_point_times
from fabricsim.scenario import library
from fabricsim.scenario.load import load, machine
from fabricsim.scenario.scenario import Scenario
from fabricsim.traces import nccl_tests, osu


@pytest.fixture(scope="module")
def hkbu() -> Scenario:
    return load("hkbu", ["transport=tcp-10g"]).scenario


def edited(scenario: Scenario, table: str, **changes: object) -> Scenario:
    inner = getattr(scenario, table).model_copy(update=changes)
    return scenario.model_copy(update={table: inner})


# ---- collectives --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "share"),
    [("all_reduce", 0.97), ("all_gather", 0.97), ("reduce_scatter", 0.97), ("broadcast", 0.85)],  # filling the chain
)
def test_large_collectives_near_the_wire_and_times_rise_with_size(
    hkbu: Scenario, collective: str, share: float
) -> None:
    rows = collective_times(hkbu, collective, [2**10, 2**20, 2**29])
    times = [row.seconds for row in rows]

    bandwidth = 2**29 / times[-1] * bus_factor(collective, 32)
    wire = 1.25e9 * 1448 / 1538  # 10GbE without TCP, IP and Ethernet headers
    assert times == sorted(times)
    assert share * wire < bandwidth < wire


def test_order_of_sizes_does_not_matter(hkbu: Scenario) -> None:
    up = collective_times(hkbu, "all_reduce", [2**10, 2**20])
    down = collective_times(hkbu, "all_reduce", [2**20, 2**10])

    assert [row.seconds for row in up] == pytest.approx([row.seconds for row in reversed(down)], rel=1e-6)


@pytest.mark.parametrize("test", ["all_reduce", "latency"])
def test_progress_counts_sizes(hkbu: Scenario, test: str) -> None:
    seen: list[float] = []

    benchtable.run(hkbu, test, [1, 2, 4, 8], None, seen.append)

    assert seen == [0.25, 0.5, 0.75, 1.0]


def test_one_process_launches_for_its_gpus_one_after_the_other(hkbu: Scenario) -> None:
    several = edited(hkbu, "collectives", process_gpus=4, launch=250_000_000)
    alone, together = (collective_times(made, "all_reduce", [4, 2**22]) for made in (hkbu, several))

    assert alone[0].seconds < together[0].seconds == pytest.approx(1e-3)
    assert together[1] == alone[1]  # takes longer than the launches


def test_devices_are_numbered_within_their_hosts(hkbu: Scenario) -> None:
    listed = devices(hkbu)

    assert [device.rank for device in listed] == list(range(32))
    assert [(device.host, device.device) for device in listed[3:6]] == [("host0", 3), ("host1", 0), ("host1", 1)]
    assert {device.gpu for device in listed} == {"rtx-2080-ti"}


# ---- point to point -----------------------------------------------------------------------------


def test_rendezvous_costs_a_round_trip(hkbu: Scenario) -> None:
    assert hkbu.transport.mpi is not None
    limit = hkbu.transport.mpi.eager_limit - 64

    below, above = point_to_point_times(hkbu, [limit, limit + 1])

    assert above.seconds - below.seconds > 1e-6


def test_eager_copy_takes_the_time_of_two_copies() -> None:
    scenario = load("hkbu", ["transport=rdma-100g", "transport.mpi.eager_copy=false"]).scenario
    copying = load("hkbu", ["transport=rdma-100g", "transport.mpi.eager_copy=true"]).scenario
    size = 4096

    (without,), (with_copy,) = (point_to_point_times(each, [size]) for each in (scenario, copying))

    assert with_copy.seconds - without.seconds == pytest.approx(2 * size / copying.cluster.cpu.copy_rate, rel=1e-3)


def test_point_to_point_needs_two_hosts_and_an_mpi(hkbu: Scenario) -> None:
    with pytest.raises(InputError, match=r"cluster hkbu has one host; a point-to-point test needs two"):
        point_to_point_times(edited(hkbu, "cluster", hosts=1), [1024])
    with pytest.raises(InputError, match=r"transport tcp-10g has no \[mpi\] table"):
        point_to_point_times(edited(hkbu, "transport", mpi=None), [1024])


# ---- tables -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_tables_are_read_back(hkbu: Scenario, tmp_path: Path, collective: str) -> None:
    sizes = benchtable.sizes("1KiB", "1MiB")
    (tmp_path / "log").write_text(benchtable.run(hkbu, collective, sizes, None).to_text())

    log = nccl_tests.read(tmp_path / "log")

    assert log.collective == collective
    assert log.devices == tuple(
        nccl_tests.Device(device.rank, device.host, device.device, device.gpu) for device in devices(hkbu)
    )
    assert log.rows["size"].tolist() == sizes
    seconds = [row.seconds for row in collective_times(hkbu, collective, sizes)]
    assert log.rows["time_out_s"] == pytest.approx(seconds, rel=1e-2)
    assert (log.rows["time_out_s"] == log.rows["time_in_s"]).all()


def test_latency_table_is_read_back(hkbu: Scenario, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(benchtable.run(hkbu, "latency", [1, 1024, 65536], None).to_text())

    table = osu.read(tmp_path / "log")

    seconds = [row.seconds for row in point_to_point_times(hkbu, [1, 1024, 65536])]
    assert table.rows["size"].tolist() == [1, 1024, 65536]
    assert table.rows["latency_s"] == pytest.approx(seconds, abs=0.005e-6)


def test_sizes_double() -> None:
    assert benchtable.sizes("3B", "25B") == [3, 6, 12, 24]
    assert benchtable.sizes("1KiB", "1KiB") == [1024]
    assert len(benchtable.sizes("4B", "512MiB")) == 28


@pytest.mark.parametrize(
    ("smallest", "largest", "message"),
    [
        ("0B", "1MiB", "a transfer of 0 bytes moves nothing"),
        ("2B", "1B", "--min-bytes 2B is above --max-bytes 1B"),
        ("2", "4B", "'2' has no unit"),
        ("2B", "nanB", "is not a number with a unit"),
    ],
)
def test_sizes_that_cannot_be_run(smallest: str, largest: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        benchtable.sizes(smallest, largest)


def test_reference_gives_its_sizes_and_errors(hkbu: Scenario, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(benchtable.run(hkbu, "all_reduce", [4096, 8192], None).to_text())
    reference = benchtable.read_reference(tmp_path / "log", "all_reduce")
    halved = benchtable.CapturedTimes(
        reference.path, {size: time / 2 for size, time in reference.seconds.items()}, reference.ranks
    )

    bench = benchtable.run(hkbu, "all_reduce", [1], halved)
    table = bench.to_text()

    head, lines = table.split("# against log:\n")
    assert " 4096 " in head
    rows = lines.splitlines()[1:3]
    assert [line.split()[1] for line in rows] == ["4096", "8192"]
    assert [float(line.split()[-1].rstrip("%")) for line in rows] == pytest.approx([100] * 2, abs=1)
    assert lines.splitlines()[-1].startswith("# Error of the time at 2 sizes: median ")


@pytest.mark.parametrize(
    ("test", "name", "ranks"),
    [
        ("all_reduce", "hkbu-10gbe-default", 32),
        ("all_reduce", "nccl-mi300x", 8),
        ("sendrecv", "nccl-400g-sendrecv", 2),
        ("latency", "hkbu-10gbe-osu-latency", None),
    ],
)
def test_a_measured_table_that_ships_is_a_reference_by_its_name(test: str, name: str, ranks: int | None) -> None:
    reference = benchtable.read_reference(Path(name), test)

    rows = measured.load(name).rows
    moving = rows[rows["size"] > 0]
    assert list(reference.seconds.items()) == [(row["size"], row[moving.dtype.names[1]]) for row in moving]
    assert reference.ranks == ranks


@pytest.mark.parametrize(
    ("test", "name", "message"),
    [
        ("all_gather", "hkbu-10gbe-default", "is of all_reduce, not of all_gather"),
        ("latency", "hkbu-10gbe-default", "is of all_reduce, not of latency"),
        ("all_reduce", "hkbu-10gbe-osu-latency", "is of latency, not of all_reduce"),
        ("all_reduce", "nccl-nvlink", "is no table by size, not of all_reduce"),
    ],
)
def test_a_measured_table_of_something_else_is_no_reference(test: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        benchtable.read_reference(Path(name), test)


@pytest.mark.slow
def test_errors_end_in_their_median_and_90th_percentile(hkbu: Scenario, tmp_path: Path) -> None:
    sizes = [2**20 * number for number in range(1, 12)]
    exact = {row.size: row.seconds for row in collective_times(hkbu, "all_reduce", sizes)}
    measured = {size: time / (1 + number / 100) for number, (size, time) in enumerate(exact.items())}

    bench = benchtable.run(hkbu, "all_reduce", [1], benchtable.CapturedTimes(tmp_path / "log", measured, 32))

    assert bench.to_dict()["errors"] == pytest.approx({"sizes": 11, "median": 0.05, "p90": 0.09})
    assert bench.to_text().endswith("# Error of the time at 11 sizes: median 5.0 %, 90th percentile 9.0 %\n")


@pytest.mark.parametrize(("test", "program"), [("all_to_all", "alltoall"), ("sendrecv", "sendrecv")])
def test_tests_of_pairs_have_the_names_and_factors_of_nccl_tests(tmp_path: Path, test: str, program: str) -> None:
    """Of 256 MiB at 400 Gb/s, one GPU per host: what the wire carries, 48.4 GB/s, less the start."""
    machine = load("ideal-16", ["cluster.hosts=4", "transport=rdma-400g", "collectives=nccl"]).scenario
    bench = benchtable.run(machine, test, [2**28], None)
    (tmp_path / "log").write_text(bench.to_text())

    log = nccl_tests.read(tmp_path / "log")

    assert f"# Collective test starting: {program}_perf" in bench.to_text()
    assert log.rows["count"][0] == 2**28 // 4 // (4 if test == "all_to_all" else 1)
    assert 47e9 < log.rows["busbw_out"][0] == pytest.approx(bench.to_dict()["rows"][0]["busbw_bytes_per_s"], abs=1e7)
    assert benchtable.read_reference(tmp_path / "log", test).ranks == 4


@pytest.mark.parametrize(
    ("gpu", "name"),
    [("v100-sxm2-16gb", "nccl-2.6"), ("a100-sxm-80gb", "nccl-2.10"), ("h100-sxm", "nccl"), ("mi300x", "rccl")],
)
def test_the_collectives_are_those_of_the_gpus_years(gpu: str, name: str) -> None:
    assert benchtable.collectives_of(load("ideal-16", [f"cluster.gpu={gpu}"]).scenario.cluster.gpu) == name


def test_every_gpu_that_ships_has_collectives_that_ship() -> None:
    for gpu in library.names("gpus"):
        scenario = load("ideal-16", [f"cluster.gpu={gpu}"]).scenario
        assert benchtable.collectives_of(scenario.cluster.gpu) in library.names("collectives")


def test_rows_of_zero_bytes_in_a_reference_are_passed_over(hkbu: Scenario, tmp_path: Path) -> None:
    table = benchtable.run(hkbu, "all_reduce", [4096], None).to_text()
    row = next(line for line in table.splitlines() if line.lstrip().startswith("4096"))
    zero = row.replace("4096", "   0", 1).replace("1024", "   0", 1)
    (tmp_path / "log").write_text(table.replace(row, f"{zero}\n{row}"))

    assert list(benchtable.read_reference(tmp_path / "log", "all_reduce").seconds) == [4096]


@pytest.mark.slow
def test_captured_log_as_reference(traces: Path, hkbu: Scenario) -> None:
    whole = benchtable.read_reference(traces / "nccl_logs/hkbu_10g/ring-10g-stepexp2.txt", "all_reduce")
    reference = replace(whole, seconds=dict(list(whole.seconds.items())[::12]))  # enough of some hundred

    bench = benchtable.run(hkbu, "all_reduce", [], reference)

    assert reference.ranks in {None, 32}
    assert bench.to_dict()["errors"]["sizes"] == len(bench.rows) == len(reference.seconds) > 10


# ---- what the how-to says -------------------------------------------------------------------------


@pytest.fixture
def two_dgx() -> Callable[..., Scenario]:
    def _(*settings: str) -> Scenario:
        return machine("dgx-h100", "rdma-400g", 2, settings).scenario

    return _


def test_the_page_has_the_bandwidth_that_the_command_prints(two_dgx: Callable[..., Scenario]) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/against-nccl-tests.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"For two DGX H100 that is ([\d.]+) GB/s at 8 GiB", page)

    found = benchtable.run(two_dgx(), "all_reduce", [2**33], None)
    assert f"Bus bandwidth at 8 GiB, the largest size: {said} GB/s" in found.to_text()


@pytest.mark.parametrize(
    ("test", "algorithm", "said"),
    [("all_reduce", "nvls", True), ("all_gather", "pat", True), ("all_reduce", "nvls_tree", False)],
)
def test_an_algorithm_that_nccl_does_not_have_there_is_named(
    two_dgx: Callable[..., Scenario], test: str, algorithm: str, *, said: bool
) -> None:
    found = benchtable.run(two_dgx(f"collectives.algorithm.{test}={algorithm}"), test, [2**26], None)

    assert (f"NCCL has no {algorithm} for {test} over these ranks, and takes a ring" in found.to_text()) == said
