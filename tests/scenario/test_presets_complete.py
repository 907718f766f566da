"""Every preset of a GPU, a cluster or a collective library states each figure that its kind has, with its source."""

from __future__ import annotations

import re
import tomllib

import pytest

from fabricsim.scenario import library
from fabricsim.scenario.cluster import Gpu

ON_NVLINK = {"nccl_start", "nccl_step", "nccl_copy_rate", "nccl_ll_start", "nccl_ll_step"}
LINKS = {"nvlink_rate", "nvlink_efficiency"}
LACKS = {  # and why
    "a100-pcie-40gb": LINKS | ON_NVLINK,  # no NVLink: PCIe is its cluster's
    "rtx-2080-ti": LINKS | ON_NVLINK,  # as above
    "t4": LINKS | ON_NVLINK,  # as above
    "v100-sxm2-16gb": ON_NVLINK - {"nccl_ll_start", "nccl_ll_step"},  # those of NCCL's tables, by its version
    "v100-sxm2-32gb": ON_NVLINK - {"nccl_ll_start", "nccl_ll_step"},  # as above
    "mi250x-gcd": ON_NVLINK,  # RCCL's times are those of collectives/rccl.toml
    "mi300x": ON_NVLINK,  # as above
}
OPTIONAL = {"memory_reserved", "kernels", "streams"}  # of jobs and measurements, not of the GPU's type
OF_HOSTS = {"hosts", "gpus_per_host", "gpu", "nic", "cpu", "join", "gpu_pcie", "gpudirect", "intra_host"}
OF_COLLECTIVES = {"channels", "chunk", "send_chunk", "start", "network_step", "intra_host_step"}
MARK = re.compile(r"#.*\b[ETU](: |$)", re.MULTILINE)
COUNTS = ("hosts", "gpus_per_host", "nics_per_host")  # the file begins with their source


def stated(kind: str, name: str) -> dict[str, object]:
    """Read a preset, with what it includes beneath it."""
    table = tomllib.loads(library.path(kind, name).read_text(encoding="utf-8"))
    return (stated(kind, str(table["include"])) if "include" in table else {}) | table


def without_source(kind: str, name: str) -> list[str]:
    """List the lines with figures that have no mark on them, and none in the comment right above."""
    above, missing = "", []
    for line in library.path(kind, name).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            above += line + "\n"
            continue
        figure = re.match(r'\w+ = ("?[\d.]|true|false|\{)', line)
        if figure and not MARK.search(line) and not MARK.search(above):
            missing.append(line)
        if not figure or MARK.search(line):
            above = ""  # a comment holds for all figures below it, up to an empty line or one with a source of its own
    return missing


@pytest.mark.parametrize("name", library.names("gpus"))
def test_gpus(name: str) -> None:
    keys = set(Gpu.model_fields) - OPTIONAL

    assert keys - set(stated("gpus", name)) == LACKS.get(name, set())
    assert without_source("gpus", name) == []
    assert {"fp16", "fp32"} <= set(stated("gpus", name)["peak"])  # type: ignore[call-overload]


@pytest.mark.parametrize("name", library.names("clusters"))
def test_clusters(name: str) -> None:
    found = stated("clusters", name)

    needed = OF_HOSTS if found["join"] == "pcie" else OF_HOSTS - {"gpu_pcie", "gpudirect", "intra_host"}
    assert needed <= set(found)
    lines = [line for line in without_source("clusters", name) if not line.startswith(COUNTS)]
    assert name == "ideal" or lines == []


@pytest.mark.parametrize("name", library.names("collectives"))
def test_collectives(name: str) -> None:
    found = stated("collectives", name)

    assert (OF_COLLECTIVES if "nccl" not in found else {"nccl", "send_chunk"}) <= set(found)
    assert name == "ideal" or without_source("collectives", name) == []
