"""The library of presets: GPUs, NICs, switches, clusters, transports, models, scenarios.

The files lie in ``workloads/<kind>/<name>.toml``: inside the package in an installed wheel, beside it
in a checkout and in an editable install.
"""

from functools import cache
from pathlib import Path

from fabricsim.errors import InputError
from fabricsim.scenario.suggest import did_you_mean

KINDS = (
    "scenarios",
    "clusters",
    "gpus",
    "nics",
    "cpus",
    "fabrics",
    "switches",
    "transports",
    "models",
    "collectives",
    "traffic",
    "traces",
    "prices",
)
"""What there are presets of; each is a folder."""


@cache
def root() -> Path:
    """Return the folder of the library. Raises InputError if the installation lacks it."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "workloads", package.parent / "workloads"):
        if (folder / "scenarios").is_dir():
            return folder
    msg = f"the library of presets is missing: neither {package} nor the folder above it holds workloads; reinstall"
    raise InputError(msg)


def names(kind: str) -> list[str]:
    """Names of all presets of a kind, sorted. Raises InputError if there is no such kind."""
    if kind not in KINDS:
        raise InputError(f"no presets of kind {kind!r}; {did_you_mean(kind, KINDS)}")
    return list(_presets(root() / kind))


@cache
def _presets(folder: Path) -> dict[str, Path]:
    return {name: folder / f"{name}.toml" for name in sorted(file.stem for file in folder.glob("*.toml"))}


def path(kind: str, name: str) -> Path:
    """File of one preset. Raises InputError if there is no such kind or name."""
    known = names(kind)
    if name not in known:  # a name is never joined to a path before it is known to be one of ours
        raise InputError(f"no preset {name!r} in {kind}; {did_you_mean(name, known)}")
    return _presets(root() / kind)[name]


def trace(given: Path) -> Path:
    """File of a captured trace that ships, if `given` names one and is no file of the user; else `given`."""
    if given.exists() or str(given) not in names("traces"):
        return given
    return root() / "traces" / f"{given}.tar.xz"


def described(kind: str) -> dict[str, str]:
    """Say what each preset of a kind is, for people: the first comment line of its file."""
    return {name: _description(path(kind, name)) for name in names(kind)}


def _description(file: Path) -> str:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            return line.lstrip("# ").strip()
    return ""
