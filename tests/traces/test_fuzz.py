"""Readers and damaged files, for a few seconds; ``tests/reference/fuzz_readers.py`` does the same for long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import InputError
from fabricsim.traces.form import FORMS
from fabricsim.traces.inspecting import inspect
from fabricsim.traces.log_views import VIEWS
from tests.reference import fuzz_uses, mutations, trace_samples

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted({**FORMS.own, **VIEWS})


@pytest.mark.parametrize("form", ALL)
def test_samples_are_whole(form: str, tmp_path: Path) -> None:
    for sample in trace_samples.SAMPLES[form]:
        (tmp_path / "nccl_trace_rank_1").write_bytes(sample)
        found = inspect([tmp_path / "nccl_trace_rank_1"])
        views = [name for log in found["logs"] for name in log["views"]]
        assert form in views or (found["trace"] is not None and found["trace"]["form"] == form)


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(FORMS.own))
def test_a_file_is_of_one_form(form: str, traces: Path) -> None:
    """So that the order in which forms are tried does not matter."""
    for sample in trace_samples.SAMPLES[form] + trace_samples.real_samples(form, traces):
        assert [name for name, each in FORMS.own.items() if each.recognises("file", sample[: 2**16])] == [form]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@pytest.mark.parametrize("form", ALL)
@given(drawn=st.data())
def test_damage_ends_in_a_trace_or_one_error(form: str, drawn: st.DataObject, tmp_path: Path) -> None:
    file = tmp_path / "nccl_trace_rank_1"
    file.write_bytes(drawn.draw(mutations.damaged(trace_samples.SAMPLES[form])))
    try:
        inspect([file], form)
    except InputError as error:
        assert str(error).isprintable()  # noqa: PT017  an error is one of two good ends
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@pytest.mark.parametrize("form", sorted(FORMS.own))
@given(drawn=st.data())
def test_what_was_read_is_used_or_refused(form: str, drawn: st.DataObject, tmp_path: Path) -> None:
    file, output = tmp_path / "nccl_trace_rank_1", tmp_path / "output"
    output.mkdir(exist_ok=True)
    file.write_bytes(drawn.draw(mutations.damaged(trace_samples.SAMPLES[form])))
    chance = drawn.draw(st.randoms(use_true_random=False))
    for use in fuzz_uses.USES:
        try:
            use.run(file, form, output, chance)
        except InputError as error:
            assert str(error).isprintable()  # noqa: PT017  as above
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, output.name]
    assert all(path.name.startswith(fuzz_uses.WRITTEN) for path in output.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("filler", [b" ", b"\n", b"[", b'{"a":', b"# OSU", b"size count type ", b"a:1:1 [1] ", b"/*"])
def test_beginnings_are_looked_at_in_no_time(filler: bytes, tmp_path: Path) -> None:
    file = tmp_path / "filled"
    file.write_bytes(filler * (2**16 // len(filler)))

    with pytest.raises(InputError):
        inspect([file])


@pytest.mark.slow
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabricsim.files.sources._FREELY", 2**18)
    monkeypatch.setattr(mutations, "BOMB", 3 * 2**20)
    for number, bomb in enumerate(mutations.bombs.__wrapped__()):
        (tmp_path / str(number)).write_bytes(bomb)
        with pytest.raises(InputError):
            inspect([tmp_path / str(number)])


@pytest.mark.slow
def test_a_long_run(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "tests.reference.fuzz_readers", "--form", "osu", "--inputs", "40"]
    command = [*script, "--bombs", "0", "--output", str(tmp_path / "failures")]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {key: value for key, value in os.environ.items() if key != "FABRICSIM_TRACES"} | {"PYTHONPATH": paths}

    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)  # noqa: S603  our own script

    assert (done.returncode, done.stderr) == (0, "")
    tally = json.loads(done.stdout)
    assert (tally["inputs"], tally["read"] + tally["refused"], tally["failures"]) == (40, 40, [])


BROKEN = {
    "raise KeyError('x')": "KeyError",
    "open('/tmp/fabricsim_escaped', 'w')": "Forbidden",
    "os.mkdir('/tmp/fabricsim_escaped')": "Forbidden",
    "while True: pass": "TooSlow",
    "bytearray(2**40)": "MemoryError",
    "raise InputError('two' + chr(10) + 'lines')": "not one line",
    "Path(paths[0].parent, 'more').touch()": "Forbidden",
}


@pytest.mark.slow
def test_what_a_trial_finds(tmp_path: Path) -> None:
    """A process of its own, as hooks and limits cannot be taken back."""
    code = f"""
import os, sys, time
from pathlib import Path
from tests.reference import fuzz_trial
from fabricsim.errors import InputError
trial = fuzz_trial.Trial("osu", Path({str(tmp_path)!r}))
trial.prepare([], fuzz_trial.Limits(seconds=0.3))
for body in {list(BROKEN)!r}:
    def broken(paths, form):
        exec(body, globals(), dict(paths=paths))
    fuzz_trial.inspect = broken
    print(repr(trial.one(b"x", named=True)))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment)  # noqa: S603  our own code

    assert done.stderr == ""
    for found, problem in zip(done.stdout.splitlines(), BROKEN.values(), strict=True):
        assert problem in found
    assert not Path("/tmp/fabricsim_escaped").exists()  # noqa: S108  what nothing may write
