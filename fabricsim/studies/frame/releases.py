"""How releases of Megatron-Bridge run mixtures of experts, by their recipes; ``releases.toml`` has the sources."""

from collections.abc import Iterable

from fabricsim.files.packaged import tables

_TABLES = tables(__package__, "releases.toml")
_SETTINGS: dict[str, str] = _TABLES["settings"]
_WHOLE = "whole fused overlap"


def _named(names: str) -> tuple[str, ...]:
    return tuple(_SETTINGS[name] for name in names.split())


def mixture(release: str, model: str, gpu: str, precision: str) -> tuple[str, ...]:
    """Say how a release runs a mixture of experts, as settings of a job; one of no recipe as Megatron-LM does."""
    graph = _last("graphs", model, gpu, release)
    if precision == "mxfp8" and graph is not None:
        return _named(f"{_WHOLE} {graph[-1]}")
    own = _last("recipes", model, gpu, release)
    padding = _TABLES["padded"]
    padded = (padding["setting"],) if padding["after"] < release < padding["before"] and precision != "bf16" else ()
    return ("job.expert_kernels=all-to-all", *padded, *(_named(own[-1]) if own else ()))


def _last(table: str, model: str, gpu: str, release: str, precision: str = "") -> list[str] | None:
    """Find the last row of a table that fits: its model, its GPUs, since which release it holds, and its precision."""
    fitting = [
        row
        for row in _TABLES[table]["rows"]
        if (row[0] == model and gpu in (row[1].split() or [gpu]) and row[2] <= release)
        and (not precision or row[3] in {"", precision})
    ]
    return fitting[-1] if fitting else None


def dispatched(settings: Iterable[str], gpu: str, ranks: int) -> tuple[str, ...]:
    """Say what a dispatcher's kernels reach of NVLink between so many ranks, if settings have one."""
    if gpu == "h100" or not {*_named("flex fused")}.intersection(settings):
        return ()
    reached = _TABLES["dispatcher"]
    share = max(known for known in reached["racks"] if known[0] <= max(ranks, 8))[1]
    efficiency = share if gpu.startswith("gb") else reached["hosts"]
    return f"cluster.gpu.nvlink_efficiency={efficiency}", f"job.hybridep_processors={reached['processors']}"


def repeated(release: str, model: str, gpu: str, precision: str) -> str:
    """Say what a release computes again in backward passes, as `job.recompute`."""
    row = _last("repeated", model, gpu, release, precision)
    return row[-1] if row else "none"
