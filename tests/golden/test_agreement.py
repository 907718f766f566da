"""Headline, tables, JSON and pictures of each shipped scenario and trace say the same, to the last digit printed."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from fabricsim.cli.replay import load_on, rebuilt_from, replay_on
from fabricsim.pipeline import load
from fabricsim.report import plots
from fabricsim.report.causes_text import cause_name
from fabricsim.report.text import comparison_table, summary_text
from fabricsim.results.breakdown import critical_rank
from fabricsim.results.summary import summarise, to_json
from fabricsim.spec import library
from fabricsim.units import human_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import RenderableType

    from fabricsim.results.result import Result

if str(Path(__file__).parent) not in sys.path:  # tests are no packages
    sys.path.insert(0, str(Path(__file__).parent))
SUMMARIES = import_module("summaries")

PARTS = ("compute", "exposed communication", "host", "bubble")
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
CAPTURED = Path(os.environ.get("FABRICSIM_TRACES") or Path(__file__).resolve().parents[3] / "shared" / "traces")
AT_HAND = (
    "goal/binary_tree_32.goal",
    "chakra_llama/stage_llama_dp2tp2pp2.tar.xz",
    "pytorch_et/resnet_2gpu_et.json.gz",
    "simai/microAllReduce.txt",
)
UNDRAWN = 1 / 500
"""Share of the iteration below which a picture leaves a part out."""
JOBS = [name for name in SUMMARIES.names() if load(name).scenario.job is not None]


def printed(what: RenderableType) -> str:
    console = Console(width=400, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def stated(content: dict[str, Any]) -> dict[str, float]:
    """Parts of an iteration in seconds, from the JSON."""
    breakdown = content["breakdown_s"]
    exposed = sum(breakdown["exposed_communication"].values())
    return dict(zip(PARTS, (breakdown["compute"], exposed, breakdown["host"], breakdown["bubble"]), strict=True))


def drawn(axes: Axes, bar: int) -> dict[str, float]:
    """Parts of one bar in seconds, from its artists."""
    unit = re.search(r"\((\w+)\)", axes.get_ylabel())
    assert unit is not None
    times = dict.fromkeys(PARTS, 0.0)
    for container in axes.containers:
        part = container.get_label().split(",")[0]
        if part in times:
            times[part] += container.patches[bar].get_height() * UNITS[unit[1]]
    return times


def agrees(result: Result) -> None:
    content = json.loads(to_json(summarise(result)))
    text, total, times = printed(summary_text(summarise(result))), content["iteration_time_s"], stated(content)
    assert sum(times.values()) == pytest.approx(total, rel=1e-9)
    shares = {part: f"{100 * time / total:.1f} %" for part, time in times.items() if time or part != "host"}
    said = ", ".join(f"{part} {share}" for part, share in shares.items())
    assert f"Iteration time {human_seconds(total)}: {said}\n" in text.replace(" \n", "\n")

    table = text[text.index("Where the time goes") :]
    compared = printed(comparison_table([summarise(result)]))
    for part, share in shares.items():
        row = re.search(rf"^{part}(?:, .*?)? +(\S+ \S+) +(\S+ %) *$", table, re.MULTILINE)
        assert row is not None
        assert row.groups() == (human_seconds(times[part]), share)
        assert f" {human_seconds(times[part])} " in compared

    bars = drawn(plots.comparison([result]).axes[0], 0)
    for part, time in times.items():
        assert human_seconds(bars[part]) == human_seconds(time) or time - bars[part] < UNDRAWN * total * len(PARTS)

    first = content["causes"][0]
    assert f"First cause: {cause_name(first)}, {100 * first['share']:.1f} % of the iteration" in text
    assert sum(cause["share"] for cause in content["causes"]) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("name", JOBS)
def test_a_scenario_says_one_thing(name: str) -> None:
    result = SUMMARIES.run(name)
    agrees(result)
    axes = plots.breakdown(result).axes[0]
    place = [label.get_text() for label in axes.get_xticklabels()].index(str(critical_rank(result)))
    whole = drawn(axes, place)
    for part, time in stated(json.loads(to_json(summarise(result)))).items():
        assert whole[part] == pytest.approx(time, rel=1e-9) or time - whole[part] < UNDRAWN * result.iteration * 1e-12


@pytest.mark.parametrize("name", [*library.names("traces"), *AT_HAND])
def test_a_trace_says_one_thing(name: str) -> None:
    path = CAPTURED / name if name in AT_HAND else Path(name)
    if name in AT_HAND and not path.exists():
        pytest.skip(f"FABRICSIM_TRACES has no {name}")
    rebuilt, form = rebuilt_from([path])
    agrees(replay_on(load_on("ideal-16", rebuilt, None, None, ["cluster.hosts=32"]), rebuilt, form))
