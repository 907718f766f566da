from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from fabricsim.results.hdf5 import read
from fabricsim.scenario import library
from tests.reference import kineto_traces

Fabricsim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def captured(fabricsim: Fabricsim, small: Path) -> str:
    """One rank of 16, as PyTorch's profiler would have written it."""
    assert fabricsim is not None  # it changes to the folder
    kineto_traces.write(small.parent / "rank3.json", 2**20)
    return "rank3.json"


ON = ("--fabric", "dgx-a100", "--transport", "rdma-200g")


@pytest.mark.slow
def test_a_replay_says_what_was_captured_and_what_it_assumes(captured: str, fabricsim: Fabricsim) -> None:
    code, out, err = fabricsim("replay", captured, *ON, "-o", "x.h5")
    assert (code, err) == (0, "wrote x.h5\n")
    assert "Captured (" in out
    assert "Assumed: 1 of 16 ranks were captured (3); the others are assumed to do the same" in out


@pytest.mark.slow
def test_its_file_and_json_hold_the_same(captured: str, fabricsim: Fabricsim, small: Path) -> None:
    code, out, _ = fabricsim("replay", captured, *ON, "-o", "x.h5", "--json", "--against", "captured")
    assert code == 0
    capture = json.loads(out)["capture"]
    result = read(small.with_name("x.h5"))
    assert result.capture is not None
    assert capture["assumptions"] == list(result.capture.assumptions)
    assert sum(row["count"] for row in capture["transfers"]) == len(result.capture.transfers)
    with h5py.File(small.with_name("x.h5")) as file:
        assert file["transfers/replayed"].attrs["units"] == "ps"


@pytest.mark.slow
def test_a_slower_gpu_takes_longer_and_more_ranks_are_more(captured: str, fabricsim: Fabricsim) -> None:
    times, ranks = [], []
    for more in ((), ("--gpu-speed", "0.1"), ("--scale-to", "32")):
        code, out, _ = fabricsim("replay", captured, *ON, "--json", *more)
        assert code == 0
        summary = json.loads(out)
        times.append(summary["iteration_time_s"])
        ranks.append(summary["ranks"])
    assert times[1] > times[0]
    assert ranks == [16, 16, 32]


@pytest.mark.slow
def test_fabrics_side_by_side(captured: str, fabricsim: Fabricsim, small: Path) -> None:
    code, out, _ = fabricsim(
        "compare", captured, "--fabric", "dgx-a100,dgx-h100", "--transport", "tcp-10g,rdma-200g", "-o", "what-if"
    )
    assert code == 0
    for label in ("dgx-a100, tcp-10g", "dgx-h100, rdma-200g"):
        assert label in out
    assert out.count("Assumed: 1 of 16 ranks were captured (3); the others are assumed to do the same") == 1
    assert (small.parent / "what-if" / "comparison.png").is_file()


@pytest.mark.slow
def test_a_replay_against_another_fabric(captured: str, fabricsim: Fabricsim) -> None:
    code, out, _ = fabricsim("replay", captured, *ON, "--against", "dgx-h100", "--json")
    assert code == 0
    assert [summary["name"] for summary in json.loads(out)] == ["dgx-h100", "dgx-a100"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--fabric", "dgx-a100"), "name a transport, such as"),
        (("--fabric", "dgx-a10", "--transport", "rdma-200g"), "shipped scenario or cluster; did you mean 'dgx-a100'?"),
        ((*ON, "--gpu-speed", "0"), "gpu_speed (--gpu-speed) 0.0: kernels cannot run that many times faster"),
        ((*ON, "--message-size", "0"), "message size 0.0: nothing can be sent that many times"),
        ((*ON, "--scale-to", "17"), "it can be scaled to a multiple of that, not to 17"),
        ((*ON, "--ranks", "8"), "is of a job of 16 ranks, not of 8"),
        ((*ON, "--form", "kinto"), "did you mean 'kineto'"),
        ((*ON, "--only", "*.gz"), "matches '*.gz'"),
        ((*ON, "--set", "cluster.hosts=1"), "16 ranks"),
        (("--fabric", "gpt2-medium-dp", "--set", "job.micro_batch=4"), "the job is that of the trace"),
    ],
)
def test_one_error_that_says_the_way_out(
    captured: str, fabricsim: Fabricsim, arguments: tuple[str, ...], problem: str
) -> None:
    code, out, err = fabricsim("replay", captured, *arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert "Traceback" not in err


def test_a_trace_without_times_cannot_be_held_against_its_capture(fabricsim: Fabricsim, small: Path) -> None:
    (small.parent / "a.goal").write_text("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n")
    code, _, err = fabricsim("replay", "a.goal", *ON, "--against", "captured")
    assert code == 2
    assert "does not say when its operations ran" in err


@pytest.mark.slow
def test_the_trace_that_ships_takes_what_it_took_and_longer_over_tcp(fabricsim: Fabricsim) -> None:
    code, out, _ = fabricsim("replay", "dlrm-v100", "--fabric", "dgx1-v100", "--json")
    assert code == 0
    assert abs(json.loads(out)["capture"]["change"]) < 0.01
    code, out, _ = fabricsim(
        "compare", "dlrm-v100", "--fabric", "dgx1-v100,v100-vm", "--transport", "tcp-10g", "--json"
    )
    assert code == 0
    captured, over_tcp = json.loads(out)
    assert over_tcp["iteration_time_s"] > 1.02 * captured["iteration_time_s"]
    assert over_tcp["exposed_communication_s"] > 10 * captured["exposed_communication_s"]


def test_the_trace_that_ships_is_small_and_says_its_license() -> None:
    file = library.trace(Path("dlrm-v100"))
    assert file.stat().st_size < 300_000
    assert "MIT License" in file.with_name("dlrm-v100.toml").read_text(encoding="utf-8")


def test_a_file_of_the_users_goes_before_the_trace_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dlrm-v100").touch()
    assert library.trace(Path("dlrm-v100")) == Path("dlrm-v100")
