"""All-to-all over rails: in two phases as the paper has it, by PXN as NCCL does, and directly over a Clos."""

from typing import Any, NamedTuple

import simpy

from fabricsim.collectives.two_phase import all_to_all_seconds
from fabricsim.engine.fabric import Fabric
from fabricsim.run.pipeline import load
from fabricsim.scenario.load import LoadedScenario


class Machine(NamedTuple):
    """What the paper reckons with, bytes/s of one direction: NVLink and adapter of a GPU."""

    gpu: str
    nvlink: float
    adapter: float


A100 = Machine("a100-sxm-80gb", 300e9, 25e9)
H100 = Machine("h100-sxm", 450e9, 50e9)
SIMULATED = ((A100, 8, 32), (A100, 8, 64), (A100, 16, 64), (H100, 8, 64), (H100, 16, 64))
"""Machine, GPUs of a domain, GPUs in all."""
_SIZE = 256 * 2**20  # bytes of a rank: beside their time latencies are small


def overhead(machine: Machine, domain: int, gpus: int) -> float:
    """Two phases over a direct all-to-all, less 1, in closed form; NVLink traffic of the latter is hidden."""
    phases = all_to_all_seconds(domain, gpus // domain, 1.0, machine.nvlink, machine.adapter)
    direct = (gpus - domain) / gpus / machine.adapter
    return phases / direct - 1


def simulated() -> list[dict[str, Any]]:
    """Simulate what `SIMULATED` lists, and put it beside the closed form."""
    return [_simulated(*case) for case in SIMULATED]


def _simulated(machine: Machine, domain: int, gpus: int) -> dict[str, Any]:
    direct = _seconds(_scenario(machine, domain, gpus, "rail-optimised"), gpus)
    phases = _seconds(_scenario(machine, domain, gpus, "rail-only", algorithm="two_phase"), gpus)
    forwarded = _seconds(_scenario(machine, domain, gpus, "rail-only", pxn=True), gpus)
    return {
        "gpu": machine.gpu,
        "gpus_per_domain": domain,
        "gpus": gpus,
        "two_phases_closed_form": overhead(machine, domain, gpus),
        "two_phases": phases / direct - 1,
        "pxn": forwarded / direct - 1,
    }


def _scenario(  # noqa: PLR0913  the last two by name only
    machine: Machine, domain: int, gpus: int, topology: str, *, algorithm: str = "direct", pxn: bool = False
) -> LoadedScenario:
    shape = f"hosts={gpus // domain}, gpus_per_host={domain}, nics_per_host={domain}, pxn={str(pxn).lower()}"
    return load(
        "rail-only",
        [
            f"cluster={{include='hb-domain', {shape}, gpu={{include='{machine.gpu}', nvlink_efficiency=1.0}}}}",
            f"fabric={{topology='{topology}', link_rate='{round(8 * machine.adapter / 1e9)}Gbps', routing='ecmp'}}",
            "transport=ideal-100g",
            f"collectives={{include='ideal', algorithm={{all_to_all='{algorithm}'}}}}",
        ],
        with_job=False,
    )


def _seconds(loaded: LoadedScenario, gpus: int) -> float:
    env = simpy.Environment()
    env.run(Fabric(env, loaded).all_to_all(range(gpus), _SIZE))
    return float(env.now)
