from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import fabricsim as fs
from fabricsim.scenario.collectives import ALGORITHMS
from tests.conftest import Outcome
from tests.reference import kineto_traces

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- (\S+\.\w+) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\S+\.(?:toml|py|txt|yml|csv|cm|topo))\n")
SCENARIO = re.compile(r"\A(?!.*^\[\[points).*?^(extends|cluster|\[cluster\])", re.MULTILINE | re.DOTALL)
PYTHON = {
    ROOT / "docs" / page
    for page in (
        "explanation/rail-only.md",
        "howto/coming-from.md",
        "howto/failures.md",
        "howto/pandas.md",
        "howto/simpy.md",
        "howto/uncertainty.md",
        "reference/collectives.md",
        "reference/results.md",
        *(f"reference/python/{page.name}" for page in (ROOT / "docs/reference/python").glob("*.md")),
    )
} | {ROOT / "README.md"}
"""Pages whose Python is run, too."""
CHECKED_ELSEWHERE = {ROOT / "docs/howto/what-if.md"}
"""Pages whose commands another test runs, each, and looks at what they say: tests/test_what_if.py."""
RUN = [page for page in PAGES if page in PYTHON or "$ fabricsim " in page.read_text("utf-8")]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Name of the file if it is one, language and text of each fenced block of a page, in order."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        (name or (told[1] if (told := FILE_NAME.match(text)) else ""), language, text) for name, language, text in found
    ]


def commands(text: str) -> list[list[str]]:
    """The arguments of each ``$ fabricsim`` line."""
    return [shlex.split(line)[2:] for line in text.splitlines() if line.startswith("$ fabricsim ")]


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_rows_of_a_table_stand_below_its_head_and_have_its_cells(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = table.splitlines()
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}

        assert re.fullmatch(r"[|: -]+", rows[1]), rows[0]
        assert len(cells) == 1, rows[0]


def lay_traces(text: str, folder: Path) -> None:
    """Stand in for the traces of the reader with made-up ones: one rank of 16, the calls of a layer."""
    if "$ fabricsim inspect traces" in text:
        (folder / "traces").mkdir()
        kineto_traces.write(folder / "traces" / "rank3.pt.trace.json", 2**20)
    if "$ fabricsim calibrate trace.json" in text:
        kineto_traces.write_calls(folder / "trace.json", kineto_traces.LAYER)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN if page not in CHECKED_ELSEWHERE], ids=page_name)
def test_commands_of_a_page_work_one_after_another(
    page: Path, tmp_path: Path, fabricsim: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*arguments: str) -> None:
        ended = fabricsim(*arguments)
        assert ended.code == 0, f"fabricsim {shlex.join(arguments)}: {ended.err}"

    monkeypatch.setattr(ALGORITHMS, "own", {**ALGORITHMS.own})  # pages may register some
    captured = False
    lay_traces(page.read_text("utf-8"), tmp_path)
    for name, language, text in blocks(page):
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
            if language == "toml" and SCENARIO.search(text):
                work("check", name)
        elif language == "python" and page in PYTHON:
            exec(compile(text, page, "exec"), {})  # noqa: S102  our own page
        for arguments in commands(text) if language == "console" else []:
            if arguments[0] == "validate" and not arguments[-1].endswith(".py"):
                continue  # minutes of work, and the tests of the studies do it
            if "--against" in arguments and not captured:
                # the reader's own log is stood in for by the table that fabricsim prints in the same form
                at = arguments.index("--against")
                work(*arguments[:at], "-o", arguments[at + 1])
                captured = True
            work(*arguments)


@pytest.mark.slow
def test_readme_shows_what_its_first_command_gives() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| first cause |")[1].split("\n\n")[0]

    shown = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    results = fs.compare("gpt2-medium-dp", {"transport": [row[0] for row in shown]})

    assert len(shown) == 3
    for (_, iteration, exposed, cause), result in zip(shown, results, strict=True):
        summary = result.summary()
        assert iteration == f"{1e3 * summary['iteration_time_s']:.1f} ms"
        assert exposed == f"{1e3 * summary['exposed_communication_s']:.1f} ms"
        assert cause == summary["causes"][0]["cause"]


@pytest.mark.slow
def test_the_tutorial_shows_what_its_comparison_gives(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial" / "is-400g-worth-it.md"
    (job,) = (text for name, _, text in blocks(page) if name == "job.toml")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    told = re.findall(r"^\| (\d+) Gb/s \| ([\d.]+) ms \| ([\d.]+) ms \|$", page.read_text("utf-8"), re.MULTILINE)

    rates = [f"{rate}Gbps" for rate, _, _ in told]
    results = fs.compare(tmp_path / "job.toml", {"fabric.link_rate": rates})

    assert len(told) == 3
    for (_, iteration, exposed), result in zip(told, results, strict=True):
        summary = result.summary()
        assert float(iteration) == pytest.approx(1e3 * summary["iteration_time_s"], abs=0.05)
        assert float(exposed) == pytest.approx(1e3 * summary["exposed_communication_s"], abs=0.005)


@pytest.mark.slow
def test_readme_shows_what_the_replays_give() -> None:
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    home = fs.replay("dlrm-v100", "dgx1-v100")
    away = fs.replay("dlrm-v100", "v100-vm", transport="tcp-10g")

    assert f"takes the {1e3 * home.summary()['iteration_time_s']:.1f} ms that it took" in told
    assert f"it takes {1e3 * away.summary()['iteration_time_s']:.1f} ms: exposed communication grows" in told
    exposed = [1e3 * each.summary()["exposed_communication_s"] for each in (home, away)]
    assert "from {:.1f} to {:.1f} ms".format(*exposed) in told


def test_readme_gives_the_two_commands_between_their_markers() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    for marker, word in (("study-command", "validate dai2024"), ("test-command", "pytest")):
        lines = readme.split(f"<!-- {marker} -->\n")[1].split("<!-- end -->")[0].splitlines()
        assert (lines[0], lines[2:]) == ("```sh", ["```"])
        assert word in lines[1]


def test_the_manual_lists_each_page_once() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(listed) == sorted(
        page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")
    )
