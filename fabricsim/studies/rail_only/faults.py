"""A NIC, a rail switch and a GPU that are lost: the iteration from then on, with and without what works around it.

Tensor parallelism is over the 8 GPUs of a host, data parallelism over 8 hosts: on each rail a ring reduces gradients,
all at once. The ring of a lost rail goes by the next one, over NVLink at both ends, so that both take twice as long;
spread over all seven adapters that are left, the eight rings of a host would take 8/7 of the time at least.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fabricsim.errors import FabricsimError
from fabricsim.run import closed_form
from fabricsim.run.pipeline import load, simulate
from fabricsim.scenario.load import LoadedScenario
from fabricsim.units import seconds

HOSTS, GPUS = 8, 8
_LOST = 26  # GPU 2 of host 3
NETWORKS = {"rail-only": "topology='rail-only'", "Clos": f"topology='rail-optimised', hosts_per_unit={HOSTS}"}


class Fault(NamedTuple):
    """What is lost, and what works around it.

    `name`: of both; `failure`: of the scenario; `failover`: whether traffic goes by other NICs; `ranks`: that the job
    takes, all but spare ones; `spares`: hosts besides.
    """

    name: str
    failure: str = ""
    failover: bool = False
    ranks: str = ""
    spares: int = 0


_HOSTS_LEFT = "0-23,64-71,32-63"  # host 8 in the place of host 3
_GPUS_LEFT = f"0-{_LOST - 1},66,{_LOST + 1}-63"  # GPU 2 of host 8 in the place of that of host 3
FAULTS = (
    Fault("nothing"),
    Fault("a NIC", "nic='host3/nic2'"),
    Fault("a NIC, with failover", "nic='host3/nic2'", failover=True),
    Fault("a rail switch", "switch='leaf2'"),
    Fault("a rail switch, with failover", "switch='leaf2'", failover=True),
    Fault("a GPU", f"gpu='gpu{_LOST}'"),
    Fault("a GPU, with a spare host", f"gpu='gpu{_LOST}'", ranks=_HOSTS_LEFT, spares=1),
    Fault("a GPU, with a spare GPU elsewhere", f"gpu='gpu{_LOST}'", ranks=_GPUS_LEFT, spares=1),
)


def scenario(fault: Fault, network: str) -> LoadedScenario:
    """Load a GPT of 22 billion parameters on 64 A100 that lack something from the beginning."""
    failover = str(fault.failover).lower()
    shape = f"hosts={HOSTS + fault.spares}, gpus_per_host={GPUS}, nics_per_host={GPUS}, pxn=true"
    failures = f"[{{{fault.failure}}}]" if fault.failure else "[]"
    placed = [f"jobs.one.ranks='{fault.ranks}'"] if fault.ranks else []
    return load(
        "rail-only",
        [
            f"cluster={{include='hb-domain', {shape}, nic_failover={failover}}}",
            f"fabric={{{NETWORKS[network]}, radix=64, routing='d-mod-k', failures={failures}}}",
            "job.model='megatron-22b'",
            "job.global_batch=16",
            f"job.parallelism={{tensor={GPUS}, pipeline=1, data={HOSTS}, sequence_parallel=true}}",
            "folding='off'",
            *placed,
        ],
    )


def iteration(fault: Fault, network: str = "rail-only") -> tuple[float | None, str]:
    """Simulate one: seconds, or why it does not end."""
    try:
        return seconds(simulate(scenario(fault, network)).iteration), ""
    except FabricsimError as error:
        return None, str(error)


def reduction() -> float:
    """Seconds for which gradients are reduced on a sound network, in closed form."""
    return closed_form.iteration(scenario(FAULTS[0], "rail-only")).data


def table() -> Iterator[dict[str, Any]]:
    """Simulate all faults on rails and on a Clos; what works around a lost rail beside what it takes by hand."""
    by_hand = closed_form.iteration(scenario(FAULTS[0], "rail-only")).total + reduction()
    for fault in FAULTS:
        found = {network: iteration(fault, network) for network in NETWORKS}
        yield {
            "lost": fault.name,
            "rail_only_s": found["rail-only"][0],
            "clos_s": found["Clos"][0],
            "by_hand_s": by_hand if fault.failover else None,
            "ends": found["rail-only"][1],
        }
