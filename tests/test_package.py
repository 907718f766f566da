from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import fabricsim

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ["h5py", "matplotlib", "networkx", "numba", "pandas", "xarray"]


def modules_after(code: str) -> set[str]:
    """Top-level modules that a new interpreter has imported once it has run `code`."""
    report = "import json, sys; sys.stderr.write(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    script = f"try:\n    {code}\nexcept SystemExit:\n    pass\n{report}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603  our own words
    return set(json.loads(run.stderr))


@pytest.mark.parametrize("name", fabricsim.__all__)
def test_each_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(fabricsim, name) is not None
    assert name in dir(fabricsim)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = fabricsim.simulat


def declared_version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def test_version_is_that_of_the_installed_package_and_of_pyproject() -> None:
    try:
        installed = metadata.version("fabricsim")
    except metadata.PackageNotFoundError:
        pytest.skip("fabricsim is on the path but not installed")

    assert fabricsim.__version__ == installed == declared_version()


def test_changelog_has_an_entry_for_the_version() -> None:
    assert f"## [{declared_version()}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_package_says_that_it_is_typed() -> None:
    assert Path(fabricsim.__file__).with_name("py.typed").is_file()


@pytest.mark.parametrize(
    "code",
    [
        "import fabricsim",
        "import sys; sys.argv = ['fabricsim', '--help']; from fabricsim.cli.main import main; main()",
    ],
    ids=["import", "help"],
)
def test_start_up_imports_nothing_heavy(code: str) -> None:
    loaded = modules_after(code)

    assert "fabricsim" in loaded
    assert not loaded.intersection(HEAVY)


@pytest.mark.slow
def test_help_works_with_python_m() -> None:
    run = subprocess.run([sys.executable, "-m", "fabricsim", "--help"], capture_output=True, text=True, check=True)

    assert "validate" in run.stdout
