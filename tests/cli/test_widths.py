"""What commands print fits its columns: no longer line unless it is one word, no broken word, no cut figure."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fabricsim.scenario import library

Fabricsim = Callable[..., tuple[int, str, str]]

SCENARIOS = library.names("scenarios")
WIDTHS = (60, 80, 200)
WIDE = 2000


@pytest.fixture
def printed(fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def run(columns: int, *arguments: str) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, _ = fabricsim(*arguments)
        assert code == 0
        # how long the simulation took differs from run to run
        return re.sub(r"\bin\s+[\d.]+\s+(us|ms|s)\b", "", out)

    return run


def assert_holds(printed: Callable[..., str], *arguments: str) -> None:
    words = set(printed(WIDE, *arguments).replace("─", " ").split())
    for width in WIDTHS:
        out = printed(width, *arguments)
        assert "…" not in out
        said = re.sub(r"Too\s+wide\s+for[^;]*;\s+COLUMNS=\d+\s+shows\s+all", "", out)  # which columns are left out
        # lists of `show` begin and end on lines of their own
        assert set(said.replace("─", " ").split()) - {"[", "]"} <= words
        for line in out.splitlines():
            assert len(line) <= width or len(line.lstrip("# ").split()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_check_holds(printed: Callable[..., str], name: str) -> None:
    assert_holds(printed, "check", name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"scenarios/{name}" for name in SCENARIOS), "h100-sxm", "rdma-100g"])
def test_show_holds(printed: Callable[..., str], name: str) -> None:
    assert_holds(printed, "show", name)


@pytest.mark.slow
def test_list_holds(printed: Callable[..., str]) -> None:
    assert_holds(printed, "list")


@pytest.mark.slow
def test_replay_holds(printed: Callable[..., str]) -> None:
    assert_holds(printed, "replay", "dlrm-v100", "--fabric", "dgx1-v100")
