"""The page of a result: what it says, that hostile text stays text, and that it works in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabricsim.errors import ResultError
from fabricsim.report.causes_text import cause_name
from fabricsim.report.page import drawings
from fabricsim.report.page.html import text
from fabricsim.report.page.spans import MOST_SPANS, spans
from fabricsim.report.page.writer import page, write_page
from fabricsim.results.breakdown import rank_time
from fabricsim.results.packets import Tap
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from fabricsim.run.pipeline import load, simulate
from fabricsim.run.verbs import replay, traffic
from fabricsim.units import human_seconds

MODEL = 'job.model={include="gpt2-medium",layers=4}'
SMALL = (MODEL, "job.micro_batch=1", "job.global_batch=8", "job.parallelism={tensor=2,pipeline=2,data=2}")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NODE = shutil.which("node")
HOSTILE = "</script><img src=http://127.0.0.1/x onerror=alert(1)><!--"


@pytest.fixture(scope="module")
def run() -> RunRecord:
    return simulate(load("gpt2-medium-dp", list(SMALL)))


def held(content: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', content, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


@pytest.mark.slow
def test_numbers_are_those_of_the_summary(run: RunRecord) -> None:
    content, summary = page([("run.h5", run)]), summarise(run)

    assert human_seconds(summary["iteration_time_s"]) in content
    for cause in summary["causes"][:5]:
        assert text(cause_name(cause)) in content
        assert human_seconds(cause["time_s"]) in content
    assert f"{100 * summary['throughput']['mfu']:.1f} %" in content
    for note in summary["notes"]:
        assert text(note) in content


@pytest.mark.slow
def test_hostile_text_stays_text(run: RunRecord) -> None:
    kinds = tuple(kind._replace(dimension=HOSTILE) for kind in run.calls.kinds)
    links = tuple(link._replace(name=f"{link.name}{HOSTILE}") for link in run.links)
    series = replace(run.series, names=tuple(f"{name}{HOSTILE}" for name in run.series.names))
    hostile = replace(
        run, name=HOSTILE, transport=HOSTILE, notes=(HOSTILE,), links=links, series=series, version=HOSTILE,
        timers=tuple(f"{timer}{HOSTILE}" for timer in run.timers), calls=replace(run.calls, kinds=kinds),
    )  # fmt: skip

    content = page([("run.h5", hostile)])

    assert "<img" not in content
    assert "<!--" not in content
    assert content.count("</script>") == 2
    assert HOSTILE in str(held(content)["names"])


@pytest.mark.slow
def test_the_page_is_small_asks_nothing_and_is_the_same_again(run: RunRecord, tmp_path: Path) -> None:
    for name in ("one.html", "other.html"):
        write_page([("run.h5", run)], tmp_path / name)

    content = (tmp_path / "one.html").read_bytes()
    assert content == (tmp_path / "other.html").read_bytes()
    assert len(content) < 2_000_000
    assert not re.search(rb"(?:src|href)=.?https?:|url\(|@import", content)
    assert b"default-src 'none'" in content


@pytest.mark.slow
def test_the_timeline_has_the_time_of_each_rank(run: RunRecord) -> None:
    drawn = spans(run)
    computing = {place for place, (name, _) in enumerate(drawn["names"]) if "compute" in name or name == "optimizer"}

    assert [row["name"] for row in drawn["rows"]][1:3] != []
    for row in drawn["rows"]:
        rank = int(row["name"].split()[1].strip(","))
        took = sum(time for of, time in zip(row["of"], row["time"], strict=True) if of in computing)
        assert took * drawn["unit"] == pytest.approx(rank_time(run, rank).compute / 1e12, rel=1e-3)


@pytest.mark.slow
def test_a_long_timeline_is_drawn_with_fewer_spans(run: RunRecord) -> None:
    ops, spanned = np.tile(run.ops, 40), np.tile(run.spans, 40)
    copies = np.repeat(np.arange(40), len(run.ops)) * run.iteration
    for side in ("start", "end"):
        spanned[side] += copies
    drawn = spans(replace(run, ops=ops, spans=spanned, iteration=40 * run.iteration))

    assert MOST_SPANS / 4 < sum(len(row["of"]) for row in drawn["rows"]) <= MOST_SPANS


@pytest.mark.slow
def test_several_runs_are_compared(run: RunRecord) -> None:
    other = simulate(load("gpt2-medium-dp", [*SMALL, "transport=tcp-10g"]))

    content = page([("one.h5", run), ("other.h5", other)])

    assert "Compared by transport" in content
    assert f"{summarise(other)['iteration_time_s'] / summarise(run)['iteration_time_s']:.2f}x" in content


@pytest.mark.slow
def test_jobs_captures_and_taps_have_their_sections(run: RunRecord) -> None:
    jobs = page([("jobs.h5", simulate(load("two-jobs")))])
    replayed = replay("dlrm-v100", "dgx1-v100")
    captured = page([("replayed.h5", replayed)])
    tap = Tap("queue", "host0->leaf0", np.arange(0, 10**6, 10), np.tile([0.0, 5e6], 50_000))
    drawn = drawings.depths([tap])

    assert "Each from its own start" in jobs
    assert "</b>until all are done</div>" in jobs
    assert "</b>iteration</div>" not in jobs
    assert "red data all_reduce" in jobs
    assert "Captured and replayed" in captured
    assert f"replayed {human_seconds(summarise(replayed)['capture']['replayed_iteration_s'])}" in captured
    times = [cause["time_s"] for cause in summarise(replayed)["causes"]]
    assert f"waited for in its {human_seconds(sum(times))}" in captured
    assert f"{human_seconds(times[0])}</td><td>{human_seconds(sum(times) - times[0])}" in captured
    assert "NVLink host*" in captured
    assert "up to 4.768 MiB" in drawn
    assert len(drawn) < 20_000
    assert "Each from its own start" not in page([("run.h5", run)])


@pytest.mark.slow
def test_traffic_has_its_flows_and_stands_alone(run: RunRecord) -> None:
    sent = traffic("incast", "ideal-16", size="50kB", flows=4)

    content = page([("t.h5", sent)])

    assert "4 flows" in content
    assert "Who sends to whom" in content
    with pytest.raises(ResultError, match=r"t\.h5"):
        page([("t.h5", sent), ("run.h5", run)])


@pytest.mark.slow
def test_names_in_headings_keep_their_direction_to_themselves(run: RunRecord) -> None:
    content = page([("run.h5", replace(run, name="<\u202eb>"))])

    assert "<h1><bdi>&lt;\u202eb&gt;</bdi>: 8 ranks" in content


@pytest.mark.slow
def test_ranks_of_several_jobs_are_named_with_theirs() -> None:
    jobs = {"red": {"ranks": "0,2"}, "blue": {"ranks": "1,3"}}
    small = {"job.global_batch": 16, "job.parallelism.data": 2, "cluster.hosts": 4}
    content = page([("a.h5", simulate(load({"extends": "gpt2-medium-dp", "jobs": jobs}, small)))])

    assert sorted(row["name"] for row in held(content)["rows"]) == [
        "rank 0, red", "rank 1, blue", "rank 2, red", "rank 3, blue",
    ]  # fmt: skip


BROWSER = """
const said = [];
const pen = new Proxy({}, {
  get: (_, key) => key === "fillText" ? (text, x, y) => { if (y === 9) said.push(text); } : () => {}, set: () => true,
});
const canvas = {
  clientWidth: 900, style: {}, getContext: () => pen, addEventListener: (what, does) => { canvas[what] = does; },
  setAttribute() {},
};
const data = { end: 1e7, unit: SECONDS / 1e7, names: [], rows: [] };
const others = { textContent: JSON.stringify(data), addEventListener() {} };
globalThis.document = { getElementById: (id) => id === "timeline" ? canvas : others, documentElement: {} };
globalThis.matchMedia = () => ({ addEventListener() {} });
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
globalThis.addEventListener = () => {};
globalThis.devicePixelRatio = 1;
"""


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="no Node.js on this machine")
@pytest.mark.parametrize(
    ("seconds", "closer", "unit"), [(2.4, 0, "s"), (1.9, 0, "ms"), (0.003, 0, "ms"), (5e-8, 0, "ns"), (6.0, 40, "s")]
)
def test_the_axis_of_the_timeline_has_one_unit(seconds: float, closer: int, unit: str) -> None:
    script = files("fabricsim.report.page").joinpath("page.js").read_text("utf-8")
    zoom = 'said.length = 0; canvas.keydown({ key: "+", preventDefault() {} });' * closer
    program = f"{BROWSER.replace('SECONDS', str(seconds))}{script}\n{zoom}console.log(JSON.stringify(said));"
    ran = subprocess.run([str(NODE), "-e", program], check=True, capture_output=True, text=True)  # noqa: S603  our own words
    ticks = json.loads(ran.stdout)

    assert len(ticks) == len(set(ticks)) > 2
    assert {tick.split()[1] for tick in ticks} == {unit}
    numbers = [float(tick.split()[0]) for tick in ticks]
    steps = [other - one for one, other in pairwise(numbers)]
    assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_shows_it_and_its_controls_work(run: RunRecord, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    write_page([("run.h5", run)], tmp_path / "report.html")
    said: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page()
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: said.append(request.url))
        shown.goto((tmp_path / "report.html").as_uri())
        canvas = shown.locator("#timeline")
        views = [canvas.get_attribute("aria-label")]
        canvas.focus()
        for key in ("+", "ArrowRight", "-", "Home"):
            shown.keyboard.press(key)
            views.append(canvas.get_attribute("aria-label"))
        box = canvas.bounding_box()
        shown.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 30)
        shown.mouse.wheel(0, -300)
        shown.wait_for_timeout(100)
        views.append(canvas.get_attribute("aria-label"))
        shown.locator("#closer").click()
        views.append(canvas.get_attribute("aria-label"))
        shown.locator("summary").first.focus()
        shown.keyboard.press("Enter")
        opened = shown.locator("details").first.get_attribute("open")
        canvas.focus()
        shown.keyboard.press("n")
        told = shown.locator("#told").text_content()
        shown.set_viewport_size({"width": 400, "height": 800})
        wide = shown.evaluate("document.documentElement.scrollWidth")
        browser.close()

    assert all(url.startswith(("file:", "data:")) for url in said), said
    assert views[0] == views[3] == views[4]  # as far out as it goes, and Home
    assert len({*views[:3], *views[5:]}) == 5
    assert told.startswith("rank ")
    assert opened is not None
    assert wide <= 400
