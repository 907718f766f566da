from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.errors import InputError
from fabricsim.run.pipeline import load, simulate
from fabricsim.studies import vtrain

if TYPE_CHECKING:
    from pathlib import Path

Record = dict[str, str]


@pytest.fixture(scope="module")
def one_node(traces: Path) -> list[Record]:
    return vtrain.read(traces / "vtrain" / vtrain.TABLES["one node"])


def errors(table: str, records: list[Record]) -> list[float]:
    """Relative error of each iteration."""
    runs = [(vtrain.run_of(table, record), float(record["iteration time (ms)"]) / 1e3) for record in records]
    return [run.iteration() / time - 1 for run, time in runs]


@pytest.mark.slow
def test_runs_have_the_ranks_of_the_table(one_node: list[Record]) -> None:
    for record in one_node[::40]:
        job = vtrain.run_of("one node", record).job()

        assert job.parallelism.ranks == int(record["# GPUs"])
        assert job.parallelism.scatter_gather == (job.parallelism.tensor > 1 and job.parallelism.pipeline > 1)
        assert job.recompute == "full"


@pytest.mark.slow
def test_the_host_is_calibrated_on_few_runs_which_come_out_right(one_node: list[Record]) -> None:
    chosen = [record for record in one_node if vtrain.calibrates("one node", record)]
    found = errors("one node", chosen)

    assert len(chosen) == 14
    assert abs(sum(found) / len(found)) < 0.005  # half a microsecond is 1 %


@pytest.mark.slow
def test_other_runs_of_one_node_agree(one_node: list[Record]) -> None:
    others = [record for record in one_node if not vtrain.calibrates("one node", record)]
    found = [abs(error) for error in errors("one node", others[::20])]

    assert sum(found) / len(found) <= 0.1  # a sample; that of all is in docs/explanation/validation/vtrain.md


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [(2, 8, 1), (1, 8, 2), (4, 2, 2)])
def test_folding_closely_gives_what_all_ranks_give(degrees: tuple[int, int, int]) -> None:
    tensor, data, pipeline = degrees
    batch = [f"job.global_batch={data * 4}", "job.micro_batch=1", "job.model.layers=4"]
    split = [f"job.parallelism.{name}={n}" for name, n in zip(("tensor", "data", "pipeline"), degrees, strict=True)]
    hosts = [f"cluster.hosts={tensor * data * pipeline // 8}"]

    folded = simulate(load("megatron-vtrain", [*batch, *split, *hosts]))
    whole = simulate(load("megatron-vtrain", [*batch, *split, *hosts, "folding=off"]))

    assert folded.counters["folded_ranks"] > 0
    assert folded.iteration == pytest.approx(whole.iteration, rel=1e-4)  # as the note of the run says


def test_tables_that_lack_a_figure_are_refused(tmp_path: Path, one_node: list[Record]) -> None:
    path = tmp_path / "measured.csv"
    header = ",".join(one_node[0])
    path.write_text(f"{header}\n{','.join(one_node[0].values())}\n{','.join(['x', *list(one_node[0].values())[1:]])}\n")
    assert len(vtrain.read(path)) == 2  # GPUs are not needed

    path.write_text(f"{header}\n{','.join([*list(one_node[0].values())[:-1], 'n/a'])}\n")
    with pytest.raises(InputError, match="line 2: column 'iteration time"):
        vtrain.read(path)


def test_a_folder_without_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRICSIM_TRACES", str(tmp_path))
    with pytest.raises(InputError, match="set FABRICSIM_TRACES to a folder with vtrain"):
        vtrain.STUDY.validate()
