"""Headline, table, picture and JSON of a run say the same, to the last digit that is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from rich.console import Console, RenderableType

from fabricsim.report import plots
from fabricsim.report.text import comparison_table, human_number, summary_text
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import Summary, summarise
from fabricsim.run import pipeline
from fabricsim.scenario import library
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.units import human_seconds
from tests.reference import factory
from tests.reference.scenarios import QUICKER

TRACES = {
    "kineto/dlrm_kineto.tar.gz": ("pinnacles", "rdma-100g", ["cluster.gpus_per_host=1"]),
    "kineto/nccl_parser_config_nccl_data.json.gz": ("dgx-a100", "rdma-200g", []),
    "chakra_llama/stage_llama_dp2tp2pp2.tar.xz": ("ideal-16", None, []),
    "goal/binary_tree_32.goal": ("gpt2-medium-dp", None, ["cluster.hosts=32"]),
}


def _jobs() -> list[str]:
    every = {name: pipeline.load(name).scenario for name in library.names("scenarios")}
    return [name for name, scenario in every.items() if scenario.job is not None and not scenario.jobs]


@pytest.mark.slow
@pytest.mark.parametrize("name", _jobs())
def test_a_shipped_scenario_has_one_answer(name: str) -> None:
    assert_one_answer(pipeline.simulate(pipeline.load(name, QUICKER.get(name, []))))


@pytest.mark.slow
def test_several_jobs_have_one_answer() -> None:
    """Headline, table and JSON have the iteration of each; its parts add up to that."""
    summary = summarise(pipeline.simulate(pipeline.load("two-jobs", ["jobs.blue.start=10ms"])))
    headline, table = printed(summary_text(summary)).split("\n\n")[:2]

    assert [job["name"] for job in summary["jobs"]] == ["red", "blue"]
    for job in summary["jobs"]:
        parts = [job[name] for name in ("compute_s", "exposed_communication_s", "bubble_s")]  # type: ignore[literal-required]  # they are keys
        assert sum(parts) == pytest.approx(job["iteration_time_s"], rel=1e-9)
        assert f"{job['name']} {human_seconds(job['iteration_time_s'])}" in headline
        row = next(line for line in table.splitlines() if line.startswith(job["name"]))
        assert all(f" {human_seconds(time)} " in row for time in (job["start_s"], job["iteration_time_s"], *parts))
    assert summary["run_time_s"] == max(job["start_s"] + job["iteration_time_s"] for job in summary["jobs"])
    assert f"all done after {human_seconds(summary['run_time_s'])}" in headline


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_a_captured_job_has_one_answer(traces: Path, name: str) -> None:
    fabric, transport, settings = TRACES[name]
    trace = read([traces / name])
    rebuilt = rebuild(trace)
    loaded = pipeline.load_fabric(fabric, rebuilt.program.ranks, transport, settings)
    assert_one_answer(pipeline.replay(loaded, rebuilt, trace.form))


@pytest.mark.slow
def test_the_trace_that_ships_has_one_answer() -> None:
    trace = read([library.trace(Path("dlrm-v100"))])
    rebuilt = rebuild(trace)
    loaded = pipeline.load_fabric("v100-vm", rebuilt.program.ranks, "tcp-10g", [])
    assert_one_answer(pipeline.replay(loaded, rebuilt, trace.form))


def assert_one_answer(result: RunRecord) -> None:
    summary = summarise(result)
    times = {
        "compute": summary["breakdown_s"]["compute"],
        "exposed communication": summary["exposed_communication_s"],
        "host": summary["breakdown_s"]["host"],
        "bubble": summary["breakdown_s"]["bubble"],
    }
    assert sum(times.values()) == pytest.approx(summary["iteration_time_s"], rel=1e-9)
    shares = {name: f"{100 * time / summary['iteration_time_s']:.1f} %" for name, time in times.items()}
    text = printed(summary_text(summary))
    headline, table = text.split("\n\n")[0], text.split("Where the time goes")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^(compute|exposed communication|host|bubble)(.*)$", table, re.MULTILINE))
    unknown = "capture" in summary and not times["compute"]
    said = "the trace does not say how long kernels take"
    alone = unknown and not times["host"]
    end = f" of communication alone: {said}" if alone else ": "
    assert f"Iteration time {human_seconds(summary['iteration_time_s'])}{end}" in headline
    assert (said in " ".join(headline.split())) == unknown
    for name, time in times.items():
        if name == "host" and not time:
            assert "host" not in {*rows, headline.split(":")[-1]}
            continue
        if unknown and name == "compute":
            assert rows[name].split() == ["unknown", "-"]
            continue
        assert alone or f"{name} {shares[name]}" in headline
        assert f"{human_seconds(time)} " in rows[name]
        assert rows[name].rstrip().endswith(f" {shares[name]}")
    assert_rates(result, summary, headline)
    assert_compared(summary)
    assert_drawn(result, summary, times)


def assert_rates(result: RunRecord, summary: Summary, headline: str) -> None:
    """Rates are of the iteration time and the number of GPUs that are printed, by the definitions in the docs."""
    if result.work is None:
        assert "throughput" not in summary
        assert "FLOP" not in headline
        return
    work, rates, gpu_time = result.work, summary["throughput"], summary["iteration_time_s"] * summary["ranks"]
    if work.model_flops is None:
        assert rates["tflops_per_gpu"] == pytest.approx(work.hardware_flops / gpu_time / 1e12)
        assert "MFU" not in headline
        return
    assert rates["mfu"] == pytest.approx(work.model_flops / gpu_time / work.peak)
    assert rates["mfu"] <= rates["hfu"] == pytest.approx(work.hardware_flops / gpu_time / work.peak)
    assert rates["tflops_per_gpu"] == pytest.approx(rates["mfu"] * rates["peak_tflops"])
    assert rates["hfu"] < 1
    mfu, hfu = f"{100 * rates['mfu']:.1f} %", f"{100 * rates['hfu']:.1f} %"
    speeds = human_number(rates["tflops_per_gpu"]), human_number(rates["tokens_per_s"])
    assert f"MFU {mfu}, HFU {hfu}, {speeds[0]} TFLOP/s per GPU, {speeds[1]} tokens/s" in headline
    row = printed(comparison_table([summary], [1.0], factory.by_transport(summary)), 200)
    assert all(figure in row for figure in (mfu, hfu, *speeds))


def assert_compared(summary: Summary) -> None:
    row = printed(comparison_table([summary], [1.0], factory.by_transport(summary)))
    parts = ("compute", "bubble")
    for time in (summary["iteration_time_s"], *(summary["breakdown_s"][part] for part in parts)):
        assert human_seconds(time) in row


def assert_drawn(result: RunRecord, summary: Summary, times: dict[str, float]) -> None:
    (axes,) = plots.comparison([result]).axes
    (label,) = [text.get_text() for text in axes.texts]
    assert label.split(" (")[0] == human_seconds(summary["iteration_time_s"])
    drawn = heights(axes)
    longest = summary["iteration_time_s"]
    for name, time in times.items():
        # parts thinner than a dot are not drawn
        assert drawn.get(name, 0.0) == pytest.approx(time, rel=1e-9, abs=longest / 400)


def heights(axes: Axes) -> dict[str, float]:
    """Seconds of each part that is drawn, dimensions of communication together."""
    unit = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[axes.get_xlabel().split("(")[1].rstrip(")")]
    total: dict[str, float] = {}
    for container in axes.containers:
        name = str(container.get_label()).partition(",")[0]
        name = "exposed communication" if name == "exposed" else name
        total[name] = total.get(name, 0.0) + container.patches[0].get_width() * unit
    return total


def printed(what: RenderableType, width: int = 120) -> str:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()
