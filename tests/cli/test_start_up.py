from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"h5py", "matplotlib", "networkx", "numba", "numpy", "rich", "simpy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], HEAVY | {"pydantic"}),
        (["run", "--help"], HEAVY),  # where pydantic is there, typer checks options with it
        (["validate", "--help"], HEAVY),
        (["bench", "--help"], HEAVY),
        (["nonsense"], HEAVY),
        (["list"], HEAVY - {"numpy", "rich"}),
        (["run", "gpt2-medium-dp", "--json"], {"h5py", "matplotlib", "networkx", "rich"}),
    ],
)
def test_what_needs_no_library_waits_for_none(arguments: list[str], heavy: set[str]) -> None:
    report = "sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))"
    script = f"""
import sys
sys.argv = ["fabricsim", *{arguments!r}]
from fabricsim.cli.main import main
try:
    main()
except SystemExit:
    pass
{report}
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603  our own words
    loaded = set(run.stderr.splitlines()[-1].split())

    assert "typer" in loaded
    assert loaded & heavy == set()
