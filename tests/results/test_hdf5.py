from __future__ import annotations

import dataclasses
import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from fabricsim.errors import ResultError
from fabricsim.records.program import NONE
from fabricsim.report.page.writer import write_page
from fabricsim.results import hdf5
from fabricsim.results.hdf5_reader import ResultFile
from fabricsim.results.pairs import Pairs
from fabricsim.results.result import CallRecords, RunRecord, Series
from fabricsim.results.summary import summarise
from fabricsim.results.throughput import IterationWork
from fabricsim.units import PS_PER_S
from tests.reference import factory


def _assert_equal(left: RunRecord, right: RunRecord) -> None:
    for field in dataclasses.fields(RunRecord):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        elif isinstance(a, Series):
            assert (a.interval, a.names) == (b.interval, b.names)
            np.testing.assert_array_equal(a.rate, b.rate)
            np.testing.assert_array_equal(a.capacity, b.capacity)
        elif field.name != "wall_seconds":
            assert a == b, field.name


@pytest.fixture(scope="module")
def image() -> bytes:
    return hdf5.image(factory.two_ranks())


@pytest.fixture
def written(image: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "out.h5"
    path.write_bytes(image)
    return path


@pytest.mark.slow
def test_read_gives_back_what_was_written(pipeline: RunRecord, tmp_path: Path) -> None:
    pipeline = dataclasses.replace(pipeline, work=IterationWork(4096, 2.5e15, 3.0e15, None))
    hdf5.write(pipeline, tmp_path / "out.h5")
    again = hdf5.read(tmp_path / "out.h5")
    _assert_equal(pipeline, again)
    assert again.work == pipeline.work
    assert again.wall_seconds == 0


@pytest.mark.slow
def test_tables_may_be_empty(two_ranks: RunRecord, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    nothing = Series(1, (), np.zeros((0, 3)), np.zeros(0))
    computed = two_ranks.ops["call"] == -1
    bare = dataclasses.replace(
        two_ranks,
        ops=two_ranks.ops[computed],
        spans=two_ranks.spans[computed],
        calls=CallRecords.of([]),
        links=(),
        series=nothing,
    )
    hdf5.write(bare, tmp_path / "out.h5")
    _assert_equal(bare, hdf5.read(tmp_path / "out.h5"))
    for group in ("ops", "calls", "links", "series", "flows"):
        xarray.open_dataset(tmp_path / "out.h5", group=group, engine="h5netcdf").close()


@pytest.mark.slow
def test_a_long_scenario_is_kept_verbatim(two_ranks: RunRecord, tmp_path: Path) -> None:
    source = "# ä€𝄞\n" * 50_000
    hdf5.write(dataclasses.replace(two_ranks, source=source), tmp_path / "out.h5")
    assert hdf5.read(tmp_path / "out.h5").source == source


@pytest.mark.slow
def test_bytes_do_not_depend_on_run_process_or_wall_clock(two_ranks: RunRecord, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("a.h5", "b.h5", "c.h5"))
    hdf5.write(two_ranks, first)
    hdf5.write(dataclasses.replace(two_ranks, wall_seconds=9.0), second)
    write = f"hdf5.write(factory.two_ranks(), {str(third)!r})"
    code = f"from fabricsim.results import hdf5; from tests.reference import factory; {write}"
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    # fills memory that is never set: what of it reached the file would differ
    environment = {**os.environ, "PYTHONPATH": paths, "MALLOC_PERTURB_": "165"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603  our own code
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("group", ["ops", "calls", "links", "series", "flows"])
def test_xarray_opens_every_group(written: Path, group: str) -> None:
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(written, group=group, engine="h5netcdf") as dataset:
        assert not [name for name in dataset.dims if str(name).startswith("phony")]
        assert set(dataset.dims) <= set(dataset.coords)
        assert all("units" in variable.attrs for variable in dataset.variables.values())


@pytest.fixture
def counted(two_ranks: RunRecord) -> RunRecord:
    columns = (np.array([0, 1, 1], "i4"), np.array([1, 0, 0], "i4"), np.array([0, 0, 1], "i1"), np.array([8, 9, 10]))
    return dataclasses.replace(two_ranks, pairs=Pairs(2, 1, ("data", "pipeline"), *columns, in_network=7))


@pytest.mark.slow
def test_xarray_sees_the_byte_matrix_and_its_units(counted: RunRecord, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    hdf5.write(counted, tmp_path / "out.h5")

    with xarray.open_dataset(tmp_path / "out.h5", group="pairs", engine="h5netcdf") as pairs:
        assert set(pairs.dims) == {"pair", "dimension_name"}
        assert all("units" in variable.attrs for variable in pairs.variables.values())
        assert pairs["bytes"].attrs["units"] == "B"
        assert pairs["bytes"].to_numpy().tolist() == [8, 9, 10]
        assert pairs["dimension_name"].to_numpy()[pairs["dimension"].to_numpy()].tolist() == [
            "data",
            "data",
            "pipeline",
        ]
        assert pairs.attrs["in_network"] == 7


@pytest.mark.slow
def test_the_byte_matrix_is_read_as_written_and_only_there_if_asked_for(counted: RunRecord, tmp_path: Path) -> None:
    hdf5.write(counted, tmp_path / "out.h5")
    hdf5.write(dataclasses.replace(counted, pairs=None), tmp_path / "without.h5")

    again = hdf5.read(tmp_path / "out.h5").pairs
    assert again is not None
    assert counted.pairs is not None
    for field in dataclasses.fields(Pairs):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(counted.pairs, field.name))
    with h5py.File(tmp_path / "without.h5") as file:
        assert "pairs" not in file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "value"), [("source", 2), ("target", -1), ("dimension", 2), ("bytes", -1), ("bytes", 2**62)]
)
def test_a_byte_matrix_that_no_job_has_is_refused(counted: RunRecord, tmp_path: Path, column: str, value: int) -> None:
    hdf5.write(counted, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5", "r+") as file:
        file["pairs"][column][1] = value

    with pytest.raises(ResultError, match="group pairs"):
        hdf5.read(tmp_path / "out.h5")


@pytest.mark.slow
def test_xarray_sees_names_and_units(written: Path, two_ranks: RunRecord) -> None:
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(written, group="ops", engine="h5netcdf") as ops:
        assert tuple(ops["timer_name"].to_numpy()) == two_ranks.timers
        assert ops["start"].attrs["units"] == "ps"
        assert ops["end"].dtype == np.int64
        np.testing.assert_array_equal(ops["end"], two_ranks.spans["end"])
    with xarray.open_dataset(written, group="series", engine="h5netcdf") as series:
        assert series["rate"].dims == ("link", "time")
        row = series["rate"].sel(link="host1 > leaf0")
        np.testing.assert_array_equal(row, two_ranks.series.rate[1])
        assert int(series["time"][1]) == two_ranks.series.interval


def test_root_says_what_was_run(written: Path, two_ranks: RunRecord) -> None:
    with h5py.File(written) as file:
        assert file.attrs["source"] == two_ranks.source
        assert file.attrs["seed"] == two_ranks.seed
        assert "numpy" in file.attrs["versions"]
        assert set(file) == {"ops", "calls", "links", "series", "flows"}


@pytest.mark.slow
def test_a_file_of_the_first_days_is_read(tmp_path: Path) -> None:
    """It was written by commit 8ef9ea1, which told neither what held a call nor notes."""
    (tmp_path / "old.h5").write_bytes(gzip.decompress((Path(__file__).parent / "first-days.h5.gz").read_bytes()))

    result = hdf5.read(tmp_path / "old.h5")

    assert (result.version, result.iteration, result.notes) == ("0.1.0", 11 * PS_PER_S, ())
    assert [call.limit for call in result.calls] == [NONE] * len(result.calls)
    assert summarise(result)["iteration_time_s"] == 11.0
    write_page([("old.h5", result)], tmp_path / "old.html")


def test_nothing_is_left_when_writing_fails(two_ranks: RunRecord, tmp_path: Path) -> None:
    broken = dataclasses.replace(two_ranks, resolved={"a": object()})
    with pytest.raises(TypeError):
        hdf5.write(broken, tmp_path / "out.h5")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_older_file(two_ranks: RunRecord, written: Path) -> None:
    before = written.read_bytes()
    with pytest.raises(TypeError):
        hdf5.write(dataclasses.replace(two_ranks, counters={"a": object()}), written)
    assert written.read_bytes() == before


def test_a_place_that_cannot_be_written_is_refused(two_ranks: RunRecord, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be written"):
        hdf5.write(two_ranks, tmp_path / "missing" / "out.h5")
    with pytest.raises(ResultError, match="is a directory"):
        hdf5.write(two_ranks, tmp_path)
    assert list(tmp_path.iterdir()) == []


def _garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["data"] = [1, 2, 3]


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _later_format(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["format_version"] = 99


def _missing_column(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["ops/rank"]


def _short_column(path: Path) -> None:
    _replace(path, "ops/rank", [1])


def _text_for_numbers(path: Path) -> None:
    with h5py.File(path, "a") as file:
        count = len(file["ops/rank"])
    _replace(path, "ops/rank", ["x"] * count)


def _unknown_timer(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/timer"][0] = 100


def _unknown_call(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/call"][0] = 100


def _collective_without_call(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/call"][...] = -1


def _ends_before_it_starts(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/end"][0] = file["ops/start"][0] - 1


def _beyond_the_clock(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/end"][0] = 2**63 - 1


def _immense(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["links/load"][0] = 1e300


def _endless_rate(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["series/capacity"][...] = float("inf")


def _rate_below_zero(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["series/rate"][...] = -1.0


def _load_without_capacity(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["links/capacity"][...] = 0
        file["links/load"][...] = 1


def _call_of_no_ranks(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["calls/ranks"][0] = 0


def _ranks_without_end(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/rank"][0] = 50_000_000  # gigabytes of totals, if they were made


def _rank_below_zero(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["ops/rank"][0] = -1


def _folded_from_too_many(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["folded_from_ranks"] = np.int64(2**40)
        file["links/copies"] = np.ones(len(file["links/load"]), np.int64)


def _fewer_than_no_messages(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["flows/messages"][0] = -1


def _crossings_astray(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["links/crossing_calls"][0] = 100


def _no_json(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["resolved"] = "{"


def _works_for_nothing(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["work"] = '{"hardware_flops": 0}'


def _promises(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["series/rate"]
        file.create_dataset("series/rate", shape=(1 << 20, 1 << 20), dtype="f8", chunks=(1024, 1024))


def _promises_contiguous(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["ops/op"]
        file.create_dataset("ops/op", shape=(1 << 40,), dtype="i8")


def _points_elsewhere(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["ops/rank"]
        file["ops/rank"] = h5py.ExternalLink("other.h5", "rank")


def _replace(path: Path, name: str, values: list[object]) -> None:
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_garbage, "not a readable HDF5 file"),
        (_empty, "not a readable HDF5 file"),
        (_half, "not a readable HDF5 file"),
        (_foreign, "not a result of fabricsim"),
        (_later_format, "format version 99"),
        (_missing_column, "ops/rank is missing"),
        (_short_column, "has the shape"),
        (_text_for_numbers, "not int32"),
        (_unknown_timer, "timer_name"),
        (_unknown_call, "group calls does not have"),
        (_collective_without_call, "group calls does not have"),
        (_ends_before_it_starts, "end before they start|that no run has"),
        (_beyond_the_clock, "that no run has"),
        (_immense, "that no run has"),
        (_call_of_no_ranks, "calls of no ranks"),
        (_endless_rate, "rates without end"),
        (_rate_below_zero, "rates below 0"),
        (_load_without_capacity, "loads on links without capacity"),
        (_ranks_without_end, "is of 50000001 ranks"),
        (_rank_below_zero, "names rank -1"),
        (_folded_from_too_many, "is of 1099511627776 ranks"),
        (_fewer_than_no_messages, "less than no messages"),
        (_crossings_astray, "do not add up"),
        (_no_json, "not JSON"),
        (_works_for_nothing, "FLOPs in numbers above 0"),
        (_promises, "not a contiguous dataset"),
        (_promises_contiguous, "promises more"),
        (_points_elsewhere, "missing"),
    ],
)
def test_a_bad_file_is_refused_with_one_clear_error(
    written: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(written)
    with pytest.raises(ResultError, match=message) as caught:
        hdf5.read(written)
    assert str(written) in str(caught.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such file"):
        hdf5.read(tmp_path / "missing.h5")
    with pytest.raises(ResultError, match="is not a file"):
        hdf5.read(tmp_path)


@pytest.mark.slow
def test_a_file_that_does_not_fit_into_memory_is_refused(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ResultFile, "numbers", exhausted)
    with pytest.raises(ResultError, match="more memory than there is"):
        hdf5.read(written)


@pytest.mark.slow
def test_no_truncation_reads_as_a_result(written: Path) -> None:
    whole = written.read_bytes()
    for share in range(1, 20):
        written.write_bytes(whole[: len(whole) * share // 20])
        with pytest.raises(ResultError):
            hdf5.read(written)


def test_a_disk_that_fills_up_in_the_middle_is_an_error_and_leaves_nothing(
    two_ranks: RunRecord, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(ResultError, match=r"out.h5: cannot be written: .*too large"):
            hdf5.write(two_ranks, tmp_path / "out.h5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
