"""Presets of GPUs, clusters and collective libraries state each figure that their kind has, and how certain it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import accumulate

import pytest

from fabricsim.scenario import library
from fabricsim.scenario.cluster import Gpu

ON_NVLINK = {"nccl_start", "nccl_step", "nccl_copy_rate", "nccl_ll_start", "nccl_ll_step"}
LINKS = {"nvlink_rate", "nvlinks", "nvlink_efficiency"}
LACKS = {  # and why
    "a100-pcie-40gb": LINKS | ON_NVLINK,  # no NVLink: PCIe is its cluster's
    "rtx-2080-ti": LINKS | ON_NVLINK,  # as above
    "quadro-rtx-5000": LINKS | ON_NVLINK,  # as above
    "t4": LINKS | ON_NVLINK,  # as above
    "v100-sxm2-16gb": ON_NVLINK - {"nccl_ll_start", "nccl_ll_step"},  # those of NCCL's tables, by its version
    "v100-sxm2-32gb": ON_NVLINK - {"nccl_ll_start", "nccl_ll_step"},  # as above
    "mi250x-gcd": ON_NVLINK
    | {"nvlinks"},  # they lead to other GPUs in different numbers; RCCL's times are those of collectives/rccl.toml
    "mi300x": ON_NVLINK,  # as above
}
OPTIONAL = {  # of jobs, measurements, newer types
    "memory_reserved",
    "kernels",
    "streams",
    "narrow_efficiency",
    "attention_forward_64",
    "attention_backward_64",
    "attention_forward_overhead",
    "attention_backward_overhead",
    "narrow_attention_forward",
    "transposed_factors",
    "narrow_attention_backward",
}
OF_HOSTS = {"hosts", "gpus_per_host", "gpu", "nic", "cpu", "join", "gpu_pcie", "gpudirect", "intra_host"}
OF_COLLECTIVES = {"channels", "chunk", "send_chunk", "start", "network_step", "intra_host_step"}
COUNTS = {"hosts", "gpus_per_host", "nics_per_host"}  # what a user sets


def stated(kind: str, name: str) -> dict[str, object]:
    """Read a preset, with what it includes beneath it."""
    table = tomllib.loads(library.path(kind, name).read_text(encoding="utf-8"))
    return (stated(kind, str(table["include"])) if "include" in table else {}) | table


def without_certainty(kind: str, name: str) -> list[str]:
    """List the keys of a preset with figures that its table of certainties does not name."""
    tables = tomllib.loads(library.path(kind, name).read_text(encoding="utf-8"))
    known = {key for keys in tables.pop("certainty", {}).values() for key in keys}
    return [key for key in _figures(tables) if not known & set(accumulate(key.split("."), "{}.{}".format))]


def _figures(tables: dict[str, object], path: str = "") -> Iterator[str]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _figures(value, f"{path}{key}.")
        elif isinstance(value, (int, float)) or re.match(r"[\d.]+[a-zA-Z]+$", str(value)):
            yield f"{path}{key}"


@pytest.mark.parametrize("name", library.names("gpus"))
def test_gpus(name: str) -> None:
    keys = set(Gpu.model_fields) - OPTIONAL

    assert keys - set(stated("gpus", name)) == LACKS.get(name, set())
    assert without_certainty("gpus", name) == []
    assert {"fp16", "fp32"} <= set(stated("gpus", name)["peak"])  # type: ignore[call-overload]


@pytest.mark.parametrize("name", library.names("clusters"))
def test_clusters(name: str) -> None:
    found = stated("clusters", name)

    needed = OF_HOSTS if found["join"] == "pcie" else OF_HOSTS - {"gpu_pcie", "gpudirect", "intra_host"}
    assert needed <= set(found)
    lacking = set(without_certainty("clusters", name)) - COUNTS
    assert name in {"ideal", "hb-domain"} or lacking == set()


@pytest.mark.parametrize("name", library.names("collectives"))
def test_collectives(name: str) -> None:
    found = stated("collectives", name)

    assert (OF_COLLECTIVES if "nccl" not in found else {"nccl", "send_chunk"}) <= set(found)
    assert name == "ideal" or without_certainty("collectives", name) == []
