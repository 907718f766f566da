"""The tables of a scenario, not yet held against each other."""

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.scenario.background import Background
from fabricsim.scenario.base import OneOf, Spec
from fabricsim.scenario.cluster import Cluster, Nic
from fabricsim.scenario.collectives import Collectives
from fabricsim.scenario.fabric import TOPOLOGIES, FabricSpec
from fabricsim.scenario.job import Job
from fabricsim.scenario.jobs import PlacedJob
from fabricsim.scenario.network import Ends
from fabricsim.scenario.switch import SwitchSpec
from fabricsim.scenario.transport import Transport


class Parts(Spec):
    """The tables of a scenario; each is checked by itself.

    ``extensions`` has the SHA-256 of each file and installed module that the scenario takes something from, by name; it
    is written into results.
    """

    name: str
    cluster: Cluster
    fabric: Annotated[FabricSpec, OneOf("topology", TOPOLOGIES.all)]
    transport: Transport
    job: Job | None = None
    jobs: dict[str, PlacedJob] = Field(default_factory=dict)
    traffic: dict[str, Background] = Field(default_factory=dict)
    collectives: Collectives = Collectives()
    engine: Literal["flow", "packet", "reference"] = "flow"
    folding: Literal["auto", "on", "close", "off"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    extensions: dict[str, str] = Field(default_factory=dict)

    @property
    def link_rate(self) -> float:
        """Rate of the links between hosts and switches, bytes per second."""
        return self.fabric.link_rate if self.fabric.link_rate is not None else self.transport.line_rate

    @property
    def nic(self) -> Nic:
        """The adapter that the transport uses."""
        if self.transport.kind == "tcp" and self.cluster.ethernet_nic is not None:
            return self.cluster.ethernet_nic
        return self.cluster.nic

    @property
    def nics_per_host(self) -> int:
        """Adapters of a host that the transport uses; of ``ethernet_nic`` there is one."""
        return self.cluster.nics_per_host if self.nic is self.cluster.nic else 1

    @property
    def ends(self) -> Ends:
        """The NICs that the fabric joins."""
        return Ends(self.cluster.hosts, self.nics_per_host)

    @property
    def switch(self) -> SwitchSpec:
        """The switch type in force."""
        return self.fabric.switch if self.fabric.switch is not None else self.transport.switch
