from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reference import trace_samples

Fabricsim = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (
            "kineto",
            ["kineto: 1 of 2 ranks", "NVIDIA A100", "default_pg (2)", "On each rank that has any: 1 all_reduce"],
        ),
        ("goal", ["goal: 2 of 2 ranks", "1 send (2 ranks), 1 recv (2 ranks)", "4 KiB"]),
        (
            "nccl_log",
            ["NCCL 2.21.5+cuda12.4: 2 processes", "mlx5_0:1/RoCE", "NET/IB/GDRDMA (2)", "1<-0", "ring", "Calls:"],
        ),
        ("nccl_tests", ["Table of a test, 2 ranks on 1 hosts (GeForce RTX 2080 Ti): 2 rows", "20.46 us"]),
        ("osu", ["Table of MPI Latency 5.7: 3 rows", "2.53 us"]),
    ],
)
def test_what_is_shown(form: str, shown: list[str], tmp_path: Path, fabricsim: Fabricsim) -> None:
    (tmp_path / "file").write_bytes(trace_samples.SAMPLES[form][0])

    code, out, err = fabricsim("inspect", str(tmp_path / "file"))

    assert (code, err) == (0, "")
    for text in shown:
        assert text in out


@pytest.mark.parametrize("form", ["kineto", "nccl_log", "osu"])
def test_json(form: str, tmp_path: Path, fabricsim: Fabricsim) -> None:
    (tmp_path / "file").write_bytes(trace_samples.SAMPLES[form][0])

    code, out, err = fabricsim("inspect", str(tmp_path / "file"), "--form", form, "--json")

    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {"trace", "logs"}
    assert (found["trace"] is None) == (form == "osu")


def test_names_of_an_archive_do_not_reach_the_terminal(tmp_path: Path, fabricsim: Fabricsim) -> None:

    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        member = tarfile.TarInfo("a\x1b[31mb\nc")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))

    code, _, err = fabricsim("inspect", str(tmp_path / "archive.tar"))

    assert code == 2
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_names_in_a_trace_do_not_command_the_terminal(tmp_path: Path, fabricsim: Fabricsim) -> None:
    sample = trace_samples.SAMPLES["kineto"][0].replace(b"NVIDIA", rb"\u001b[2J\u009b31m")
    (tmp_path / "file").write_bytes(sample)

    code, out, _ = fabricsim("inspect", str(tmp_path / "file"))

    assert (code, "\ufffd[2J\ufffd31m A100" in out) == (0, True)
    assert all(line.isprintable() for line in out.splitlines())
