from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabricsim import Fabric, Watch, provenance
from fabricsim.errors import FabricsimError, InputError, SimulationError
from fabricsim.records.program import COLLECTIVE, COMPUTE
from fabricsim.results.hdf5 import read, write
from fabricsim.results.result import RunRecord
from fabricsim.run import pipeline
from fabricsim.run.pipeline import build_plan, check, load, reload, simulate
from fabricsim.topology.platform import WIRE

TWO_RANKS = ["cluster.hosts=2", "job.micro_batch=1", "job.global_batch=2", "job.parallelism.data=2"]
LEAF_SPINE = [
    "cluster.hosts=4",
    "job.micro_batch=1",
    "job.global_batch=4",
    "job.parallelism.data=4",
    "fabric=two-tier",
    "fabric.hosts_per_leaf=1",
    "fabric.spines=4",
]


@pytest.fixture(scope="module")
def result() -> RunRecord:
    return simulate(load("gpt2-medium-dp", TWO_RANKS))


# ---- what a run gives ---------------------------------------------------------------------------


def test_result_says_what_was_run(result: RunRecord) -> None:
    loaded = load("gpt2-medium-dp", TWO_RANKS)

    assert (result.name, result.transport, result.engine, result.seed) == ("gpt2-medium-dp", "rdma-100g", "flow", 0)
    assert result.version == provenance.version()
    assert result.source == loaded.source
    assert result.resolved == loaded.resolved
    assert result.wall_seconds > 0


def test_every_op_ran_and_for_its_time(result: RunRecord) -> None:
    compute = result.ops["kind"] == COMPUTE
    spans = result.spans["end"] - result.spans["start"]

    assert len(result.spans) == len(result.ops) == result.counters["dag_nodes"]
    assert (spans[compute] == result.ops["duration"][compute]).all()
    assert (spans[result.ops["kind"] == COLLECTIVE] > 0).all()
    assert result.iteration == result.spans["end"].max()


def test_calls_lie_within_their_ops(result: RunRecord) -> None:
    assert {(call.collective, call.dimension, call.ranks) for call in result.calls} == {("all_reduce", "data", 2)}
    for index, call in enumerate(result.calls):
        own = result.spans[(result.ops["kind"] == COLLECTIVE) & (result.ops["call"] == index)]
        assert call.start == own["start"].max()
        assert call.end == own["end"].max()
        assert 0 < call.bound < np.inf


def test_bytes_on_wires_are_those_of_the_ring(result: RunRecord) -> None:
    # a ring all-reduce over two ranks sends the whole buffer once in each direction
    sent = sum(call.size for call in result.calls)
    wires = {link.name: link for link in result.links if link.kind == WIRE}

    for name in ("host0->switch0", "switch0->host1", "host1->switch0", "switch0->host0"):
        assert wires[name].payload == pytest.approx(sent)
        assert wires[name].load > wires[name].payload  # headers
        assert wires[name].calls == ("data all_reduce",)


def test_rates_over_time_add_up_to_the_payload(result: RunRecord) -> None:
    wires = {link.name: link for link in result.links if link.kind == WIRE}
    carried = result.series.rate.sum(axis=1) * result.series.interval / 1e12

    assert set(result.series.names) <= set(wires)
    assert carried == pytest.approx([wires[name].payload for name in result.series.names])
    assert (result.series.rate <= result.series.capacity[:, None] * (1 + 1e-9)).all()
    assert result.series.rate.shape[1] == -(-result.iteration // result.series.interval)


def test_progress_is_a_share_that_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabricsim.engine.pump._BUDGET", 100)  # events between two reports
    seen: list[float] = []

    simulate(load("gpt2-medium-dp", ["job.overlap=ddp"]), progress=seen.append)

    assert seen == sorted(seen)
    assert 0 <= seen[0] < seen[len(seen) // 2] < seen[-1] <= 1


# ---- what cannot be run -------------------------------------------------------------------------


def test_scenario_without_job_is_refused() -> None:
    with pytest.raises(InputError, match=r"hkbu\.toml: there is no \[job\] to run"):
        build_plan(load("hkbu"))


def test_program_larger_than_the_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    large = build_plan(load("gpt2-medium-dp"))
    monkeypatch.setattr("fabricsim.run.pipeline.build_plan", lambda _: large)

    with pytest.raises(SimulationError, match="runs on 8 ranks, the cluster has 2: add hosts"):
        simulate(load("gpt2-medium-dp", TWO_RANKS))


# ---- the same again -----------------------------------------------------------------------------


@pytest.mark.slow
def test_result_can_be_run_again_from_its_file(result: RunRecord, tmp_path: Path) -> None:
    write(result, tmp_path / "a.h5")

    again = reload(read(tmp_path / "a.h5"))

    assert again.scenario == load("gpt2-medium-dp", TWO_RANKS).scenario
    write(simulate(again), tmp_path / "b.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def command(folder: Path, *arguments: str) -> str:
    run = [sys.executable, "-m", "fabricsim", *arguments]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stdout  # noqa: S603  our own words


def without_clock(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if '"wall_seconds"' not in line)


@pytest.mark.slow
def test_three_processes_write_the_same_bytes(tmp_path: Path) -> None:
    scenario = ["gpt2-medium-dp", *(word for setting in LEAF_SPINE for word in ("--set", setting)), "--seed", "5"]

    printed = [command(tmp_path, "run", *scenario, "--json", "-o", f"{index}.h5") for index in range(3)]

    assert len({(tmp_path / f"{index}.h5").read_bytes() for index in range(3)}) == 1
    assert len({without_clock(text) for text in printed}) == 1
    assert len(printed[0].splitlines()) - len(without_clock(printed[0]).splitlines()) == 1


@pytest.mark.slow
def test_number_of_jobs_changes_no_byte(tmp_path: Path) -> None:
    scenario = ["gpt2-medium-pp", "--transport", "tcp-10g,ipoib-100g,rdma-100g,roce-100g", "--json"]

    printed = [command(tmp_path, "compare", *scenario, "--jobs", jobs, "-o", jobs) for jobs in ("1", "2")]

    assert without_clock(printed[0]) == without_clock(printed[1])
    assert len(json.loads(printed[0])) == 4
    assert (tmp_path / "1/comparison.png").read_bytes() == (tmp_path / "2/comparison.png").read_bytes()


# ---- the seed -----------------------------------------------------------------------------------


def paths(seed: int, settings: list[str]) -> dict[str, float]:
    """Wires between switches that carried something, and how much."""
    run = simulate(load("gpt2-medium-dp", [*settings, f"seed={seed}"]))
    return {link.name: link.load for link in run.links if link.kind == WIRE and "host" not in link.name and link.load}


def test_seeds_choose_among_equal_paths() -> None:
    found = [paths(seed, LEAF_SPINE) for seed in range(3)]

    assert paths(0, LEAF_SPINE) == found[0]
    assert len({frozenset(crossed) for crossed in found}) == 3
    # every flow still goes up once and down once, by whatever spine
    assert [sum(crossed.values()) for crossed in found] == pytest.approx([sum(found[0].values())] * 3)


@pytest.mark.slow
def test_seed_changes_nothing_where_there_is_one_path(tmp_path: Path) -> None:
    for seed in (0, 1):
        write(simulate(load("gpt2-medium-dp", [*TWO_RANKS, f"seed={seed}"])), tmp_path / f"{seed}.h5")

    first, second = (read(tmp_path / f"{seed}.h5") for seed in (0, 1))
    assert (first.seed, second.seed) == (0, 1)
    assert (first.spans == second.spans).all()
    assert first.links == second.links


@pytest.mark.slow
def test_check_refuses_what_a_run_refuses(tmp_path: Path) -> None:
    cables = tmp_path / "cables.csv"
    cables.write_text("a,b,gbps,delay_ns\nhost0,s0,100,25\nhost0,s1,100,25\nhost1,s0,100,25\n", encoding="utf-8")
    two = ["cluster.hosts=2", "job.parallelism.data=2", "job.global_batch=16"]
    refused = [
        ["engine=packet", 'fabric.failures=[{ link = "host0-leaf9", from = "1ms" }]'],
        [*two, f"fabric={{ topology = 'file', links = '{cables}' }}"],
        ["folding=on"],
        ['fabric.failures=[{ host = "host3" }]'],
        ["fabric=two-tier", "fabric.spines=1", 'fabric.failures=[{ link = "leaf1-spine0" }]', "engine=packet"],
        ["job.micro_batch=64", "job.global_batch=512", "job.recompute=none"],
    ]
    for settings in refused:
        with pytest.raises(FabricsimError) as checked:
            check(load("gpt2-medium-dp", settings))
        with pytest.raises(FabricsimError) as run:
            simulate(load("gpt2-medium-dp", settings))
        assert str(checked.value) == str(run.value)


def test_check_and_run_say_which_switches_a_job_does_not_need() -> None:
    on_one_leaf = ["fabric=two-tier", "fabric.hosts_per_leaf=8", "job.model.layers=1"]
    said = "nothing of this job crosses the spines"

    assert said in check(load("gpt2-medium-dp", on_one_leaf))
    assert said in simulate(load("gpt2-medium-dp", on_one_leaf)).notes
    across = [*on_one_leaf, "fabric.hosts_per_leaf=4"]
    assert said not in check(load("gpt2-medium-dp", across))
    assert said not in simulate(load("gpt2-medium-dp", across)).notes


def test_check_says_what_failures_cut_off_from_the_start() -> None:
    leaves = {"topology": "leaf-spine", "hosts_per_leaf": 2, "spines": 1}
    tables = {"name": "cut", "cluster": {"include": "dgx-h100", "hosts": 4}, "transport": "rdma-400g"}
    whole, cut = (
        check(load({**tables, "fabric": {**leaves, "failures": which}})) for which in ([], [{"switch": "spine0"}])
    )

    assert "no cable that is not down leads from host0 to host2" in cut
    assert not any("host2" in said for said in whole)


@pytest.mark.slow
def test_the_shipped_what_if_feels_its_oversubscription() -> None:
    small = ["job.model.layers=2", "job.global_batch=8"]
    narrow, wide = (simulate(load("what-if-leaf-spine", [*small, f"fabric.spines={n}"])) for n in (4, 16))

    assert narrow.iteration > 1.15 * wide.iteration


@pytest.mark.slow
def test_tables_of_a_large_run_are_let_go_of_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Fabric]] = []

    class Noted(Fabric):
        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  those of a fabric
            super().__init__(*args, **options)
            made.append(weakref.ref(self))

    monkeypatch.setattr(pipeline, "Fabric", Noted)
    monkeypatch.setattr(pipeline, "_LARGE", 0)
    gc.disable()
    try:
        simulate(load("gpt2-medium-dp"))
    finally:
        gc.enable()

    assert [fabric() for fabric in made] == [None]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "told"), [("flow", True), ("packet", False)])
def test_a_run_tells_what_bit_errors_do_not_cost_in_its_engine(engine: str, told: bool) -> None:  # noqa: FBT001  a case
    lossy = 'fabric.failures=[{ link = "host0-switch0", bit_error_rate = 1e-9 }]'
    notes = simulate(load("gpt2-medium-dp", [lossy, f"engine={engine}", "job.model.layers=1"])).notes
    assert any("no time to recover" in note for note in notes) == told


@pytest.mark.parametrize(("rate", "told"), [("200Gbps", True), ("100Gbps", True), ("50Gbps", False)])
def test_a_failure_that_leaves_links_as_built_is_said_to(rate: str, *, told: bool) -> None:
    failure = f'fabric.failures=[{{link="host1-switch0", rate="{rate}"}}]'
    notes = simulate(load("gpt2-medium-dp", [*TWO_RANKS, failure])).notes

    assert any("a rate that its links do not exceed as built" in note for note in notes) == told


def test_a_failure_after_the_end_is_said_to_change_nothing() -> None:
    def notes(begin: str) -> str:
        failing = f'fabric.failures=[{{ switch = "switch0", from = "{begin}", until = "30s" }}]'
        return " ".join(simulate(load("gpt2-medium-dp", [failing, "job.model.layers=1"])).notes)

    assert "fabric.failures[0] begins at 20 s, when the run has ended" in notes("20s")
    assert "changes nothing" not in notes("1ms")


@pytest.mark.parametrize(("cables", "apart"), [("01 A\n23 A", None), ("01 A\n23 B", "host2")])
def test_a_fabric_in_parts_is_refused_before_anything_is_sent(tmp_path: Path, cables: str, apart: str | None) -> None:
    rows = [f"host{host},{switch},100,25" for pair, switch in map(str.split, cables.splitlines()) for host in pair]
    (tmp_path / "cables.csv").write_text("\n".join(["a,b,gbps,delay_ns", *rows]))
    changes = {"cluster.hosts": 4, "fabric": {"topology": "file", "links": str(tmp_path / "cables.csv")}}
    loaded = load("ideal-16", changes, with_job=False)

    if apart is None:
        assert check(loaded)
    else:
        with pytest.raises(SimulationError, match=f"no cable leads from host0 to {apart} .*cables.csv"):
            check(loaded)


def test_programs_are_compared_as_objects_and_a_watch_takes_several_patterns() -> None:
    one, other = (pipeline.build_plan(load("gpt2-medium-dp")).program(None) for _ in range(2))
    assert one == one  # noqa: PLR0124  its arrays would not say whether they are
    assert one != other
    assert Watch(queues=["switch0->*"]).queues == ("switch0->*",)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"queues: 'switch0->host0' is one text, not several"):
        Watch(queues="switch0->host0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dgx1-v10", "did you mean 'dgx1-v100'?"),
        ("gpt2-medim-dp", "did you mean 'gpt2-medium-dp'?"),
        ("nothing.toml", "`fabricsim list clusters` and `fabricsim list scenarios` name those that ship"),
    ],
)
def test_a_fabric_that_is_not_there_is_sought_among_clusters_too(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"{name}: there is no such file, shipped scenario or cluster; ") as caught:
        pipeline.load_fabric(name, 8)

    assert hint in str(caught.value)


@pytest.mark.parametrize(("hosts", "peak"), [("0-7", 125e12), ("4-7", (312e12 + 125e12) / 2)])
def test_the_peak_is_that_of_the_gpus_that_a_job_runs_on(hosts: str, peak: float) -> None:
    kinds = f"cluster.kinds={{old={{hosts='{hosts}', gpu='v100-sxm2-32gb'}}}}"
    result = simulate(load("gpt2-medium-dp", [kinds]))

    assert result.work is not None
    assert result.work.peak == peak
