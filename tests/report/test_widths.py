"""Reports hold at any width: no line is longer, no word is broken, no figure is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console, Group, RenderableType
from rich.text import Text

from fabricsim.cli.common import show
from fabricsim.report.bench_text import bench_text
from fabricsim.report.console import ReportConsole
from fabricsim.report.inspection_text import inspection_text
from fabricsim.report.swept import searched_text, swept_text
from fabricsim.report.tables import FittedTable
from fabricsim.report.text import comparison_table, summary_text
from fabricsim.report.topology_text import bill_text, topology_text
from fabricsim.report.traffic_text import traffic_text
from fabricsim.report.validation import to_text
from fabricsim.report.volumes_text import volumes_text
from fabricsim.results.summary import summarise
from fabricsim.results.traffic import summarise_traffic
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run import benchtable, traffic
from fabricsim.run.bill import bill_of, wired
from fabricsim.run.pipeline import build_plan, load, simulate
from fabricsim.scenario import library
from fabricsim.scenario.prices import read_prices
from fabricsim.topology.bill import Bill, BillLine, Part
from fabricsim.topology.inventory import take_inventory
from fabricsim.traces.inspecting import inspect
from fabricsim.workload.tally import plan_calls, tally
from fabricsim.workload.volume_summary import summarise_volumes
from fabricsim.workload.volumes import closed_forms
from tests.reference import factory
from tests.reference.scenarios import QUICKER

LARGE = ("gpt3-175b", "llama3-405b", "megatron-a100", "megatron-vtrain", "rail-only")
WIDTHS = (60, 80, 200)
WIDE = 1000


def printed(what: RenderableType, width: int) -> str:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\s─]+", text))


_LEFT_OUT = re.compile(r"Too\s+wide\s+for[^;]*;\s+COLUMNS=\d+\s+shows\s+all")


def assert_holds(what: RenderableType) -> None:
    all_words = words(printed(what, WIDE))
    for width in WIDTHS:
        text = printed(what, width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        assert words(_LEFT_OUT.sub("", text)) <= all_words


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in library.names("scenarios") if load(name).scenario.job is not None])
def test_reports_of_shipped_scenarios_hold(name: str) -> None:
    loaded = load(name, QUICKER.get(name, []))
    summary = summarise(simulate(loaded))
    assert_holds(summary_text(summary))
    both = [summary, {**summary, "transport": "ipoib-100g"}]
    assert_holds(comparison_table(both, [1.0, None], factory.by_transport(*both)))
    if loaded.scenario.jobs:
        return  # volumes are of one job
    plan = build_plan(loaded)
    volumes = summarise_volumes(name, plan.ranks, tally(plan_calls(plan)), tally(closed_forms(plan.job)))

    assert_holds(volumes_text(volumes))


@pytest.mark.slow
@pytest.mark.parametrize("name", library.names("scenarios"))
def test_benches_and_traffic_of_shipped_scenarios_hold(name: str, tmp_path: Path) -> None:
    scenario = load(name, ["cluster.hosts=2"] if name in LARGE else [], with_job=False).scenario
    measured = dict.fromkeys((2**10, 2**30), 1.0)
    bench = benchtable.run(scenario, "all_gather", [], benchtable.CapturedTimes(tmp_path / "log", measured, None))
    ring = traffic.simulate(scenario, traffic.request("ring", scenario, size="1GB"))

    assert_holds(bench_text(bench.to_dict()))
    assert_holds(traffic_text(summarise_traffic(ring)))


@pytest.mark.slow
def test_packets_of_traffic_hold() -> None:
    scenario = load("ideal-16", ["engine=packet", "transport=dctcp-100g"]).scenario
    incast = traffic.simulate(scenario, traffic.request("incast", scenario, size="100kB"))

    assert_holds(traffic_text(summarise_traffic(incast)))


@pytest.mark.slow
@pytest.mark.parametrize("name", library.names("traces"))
def test_inspections_of_shipped_traces_hold(name: str) -> None:
    assert_holds(inspection_text(inspect([library.trace(Path(name))])))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kineto/nccl_parser_config_nccl_data.json.gz", "goal/binary_tree_32.goal"])
def test_inspections_of_captured_traces_hold(traces: Path, name: str) -> None:
    assert_holds(inspection_text(inspect([traces / name])))


def test_studies_hold() -> None:
    row = ValidationRow(
        "busbw [32 ranks], 64 MiB", "TFLOP/s", 1.25, 1.0, "a/very/long/path-of-some-log.txt", "captured"
    )
    cases = {"case one": {"median error": 0.1234, "90th_percentile": 0.5, "rows": 12.0}}
    study = Validation("hkbu", [row] * 3, {"largest error": 0.2, "by case": cases}, {"seed": "one " * 40})
    all_words = words(to_text(study, WIDE))

    for width in WIDTHS:
        text = to_text(study, width)
        assert max(map(len, text.splitlines())) <= width
        assert words(_LEFT_OUT.sub("", text)) <= all_words
        assert text.count("very/long") == 1


@pytest.mark.slow
def test_packets_hold() -> None:
    incast = ["cluster.hosts=3", "job.parallelism.data=3", "job.global_batch=24", "job.model.layers=1"]
    assert_holds(summary_text(summarise(simulate(load("gpt2-medium-dp", [*incast, "engine=packet"])))))


@pytest.mark.slow
@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_no_figure_of_a_narrow_table_is_cut(width: int) -> None:
    def figures(text: str) -> set[str]:
        return {word.strip(":") for word in text.split() if re.search(r"\d", word)}

    loaded = load("gpt3-175b")
    plan = build_plan(loaded)
    calls = summarise_volumes("gpt3-175b", plan.ranks, tally(plan_calls(plan)), tally(closed_forms(plan.job)))
    network, wires = wired(loaded.scenario)
    inventory = take_inventory(network, wires, loaded.scenario.ends.count)
    bill = bill_of(loaded.scenario, read_prices("list-400g"), inventory)
    for what in (volumes_text(calls), topology_text("gpt3-175b", inventory), bill_text(bill)):
        text = printed(what, width)
        assert figures(_LEFT_OUT.sub("", text)) <= figures(printed(what, WIDE))
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_no_figure_of_a_sweep_is_cut_and_columns_that_are_left_out_are_named(width: int) -> None:
    cost = {"network_cost_per_gpu_usd": 2123.75, "network_power_per_gpu_w": 37.5078125}
    row = {"iteration_time_s": 24.766643380938, "mfu": 0.406, "exposed_communication_s": 0.1026, **cost}
    varied = {"cluster.gpus_per_host": 8, "fabric.topology": "rail-optimised", "fabric.hosts_per_unit": 64}
    other = {"cluster.gpus_per_host": 16, "fabric.topology": "rail-only", "fabric.hosts_per_unit": None}
    rows = [{"run": "r", "status": "done", **each, **row, "error": ""} for each in (varied, other)]
    text = printed(Group(*swept_text(rows, list(varied))), width)
    head = text.partition("Too wide for this terminal: ")[2].replace("\n", " ")

    for name, figure in {"iteration": "24.77 s", "mfu": "40.6 %", "exposed": "102.6 ms", "W/GPU": "38"}.items():
        assert text.count(figure) == 2 or f"{name}," in head or f"{name};" in head
    assert text.count("24.77 s") == 2
    assert "rail-optimised" in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", range(19, 60))
def test_no_line_ends_between_a_number_and_its_unit(width: int) -> None:
    said = "compute 75.2 %, bubble 0.0 % of 413.1 ms; 1.5 GB/s (3 %), 8 ranks of 2 Gb/s"
    table = FittedTable("A", [], words=["B"])
    table.add("12.5 us", said)
    console = ReportConsole(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(Text(said, style="bold"), said, Group(Text(said)), table, sep="\n")
    text = capture.get()

    assert not re.search(r"\d *\n *(%|ms|us|GB/s|Gb/s)", text)
    assert words(text) == words(printed(Group(said, table), WIDE))
    assert all(len(line) <= width for line in text.splitlines())


def test_a_bill_says_why_a_piece_costs_nothing() -> None:
    text = printed(bill_text(bill_of(load("rail-only").scenario, read_prices("list-400g"))), WIDE)

    assert "cable at 0 in list-400g: the fibre is in the cost of the transceivers" in text
    assert text.count("nic at 0 in list-400g: hosts are sold with their adapters") == 1
    assert "switch at 0" not in text


def test_columns_are_given_up_from_the_least_important() -> None:
    table = FittedTable("Name", ["A", "B"], words=["C"], least=["B", "C"])
    table.add_row("one two", "1234567", "1234567", "some words")

    assert words(printed(table, 40)) == {"Name", "one", "two", "A", "B", "C", "1234567", "some", "words"}
    shown, said = printed(table, 24).split("Too wide")
    assert words(shown) == {"Name", "one", "two", "A", "C", "1234567", "some", "words"}
    assert " ".join(said.split()) == "for this terminal: B; COLUMNS=32 shows all"
    shown, said = printed(table, 14).split("Too wide")
    assert words(shown) == {"Name", "one", "two", "A", "1234567"}
    assert " ".join(said.split()) == "for this terminal: B, C; COLUMNS=32 shows all"
    assert "1234567   1234567" in printed(table, 32)
    assert "Too wide" not in printed(table, 32)
    lines = ["Name: one two", "A: 1234567", "B: 1234567", "C: some words", ""]
    assert printed(table, 13).splitlines() == lines  # as no table does


def test_what_users_wrote_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    values = ("[/b]", "[red]ours")
    rows = [{"run": "r", "status": "done", "a": each, "iteration_time_s": 1.0, "error": ""} for each in values]
    rows.append({"run": "r", "status": "failed", "a": "[/]", "error": "there is no x (add it to [job])"})
    show(*swept_text(rows, ["a"]))
    table = searched_text([{**rows[0], "bound_s": 1.0, "mfu": 0.1, "exposed_communication_s": 0.1}], ["a"], 1, 1)
    show(*table)
    show(bill_text(Bill("[red]ours", 1, (BillLine(Part("nic", "[/b]", 1, 100.0), None, None, None),))))
    out = capsys.readouterr().out

    for said in (*values, "failed: a = [/]: there is no x (add it to [job])", "priced by [red]ours", "[/b]: nic"):
        assert said in out
