"""Whole runs without compilation give what compiled ones do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOAL = """num_ranks 2
rank 0 {
l1: calc 1000
l2: send 100000b to 1 tag 0
l2 requires l1
}
rank 1 {
l1: recv 100000b from 0 tag 0
l2: calc 500
l2 requires l1
}
"""
TINY = ["job.model.layers=1", "job.model.hidden=64", "job.model.heads=1", "job.model.vocabulary=128"]
TWO = ["cluster.hosts=2", "job.parallelism.data=2", "job.global_batch=16"]
REPLAY = ["replay", "pair.goal", "--fabric", "gpt2-medium-dp", "--set", "cluster.hosts=2"]
RUN = ["run", "gpt2-medium-dp", *[word for key in (*TINY, *TWO) for word in ("--set", key)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        RUN,
        [*RUN, "--engine", "packet"],
        ["replay", "pair.goal", "--fabric", "gpt2-medium-dp", "--set", "cluster.hosts=2"],
    ],
    ids=["flow", "packet", "replay"],
)
def test_a_run_without_compilation_is_the_compiled_one(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "pair.goal").write_text(GOAL, encoding="utf-8")
    found = []
    for uncompiled in ({}, {"NUMBA_DISABLE_JIT": "1"}):
        words = [sys.executable, "-m", "fabricsim", *command, "--json"]
        environment = os.environ | uncompiled
        run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  our own words
        assert run.returncode == 0, run.stderr
        found.append({key: value for key, value in json.loads(run.stdout).items() if key != "wall_seconds"})

    assert found[0] == found[1]
