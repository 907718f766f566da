"""A whole scenario: one TOML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from fabricsim.errors import ScenarioError
from fabricsim.scenario.base import Spec
from fabricsim.scenario.checks import problems
from fabricsim.scenario.cluster import Cluster, Nic
from fabricsim.scenario.collectives import Collectives
from fabricsim.scenario.fabric import Fabric
from fabricsim.scenario.job import Job
from fabricsim.scenario.transport import Transport

if TYPE_CHECKING:
    from fabricsim.scenario.switch import Switch


class Scenario(Spec):
    """What is simulated.

    A scenario without a job describes a fabric to use from SimPy or to benchmark. Ranks that the job
    does not use stay idle. Cross-checks between the tables (degrees against
    ranks, batch against data parallelism) are made here, so that a scenario that exists can be built.

    ``folding`` says whether one rank is simulated for all that are alike in a run of the flow engine: if that changes
    no time, in programs of 128 ranks and more (``"auto"``) or in all (``"on"``); ``"close"`` also if it changes little.
    """

    name: str
    cluster: Cluster
    fabric: Fabric
    transport: Transport
    job: Job | None = None
    collectives: Collectives = Collectives()
    engine: Literal["flow", "packet", "reference"] = "flow"
    folding: Literal["auto", "on", "close", "off"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

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
    def switch(self) -> Switch:
        """The switch type in force."""
        return self.fabric.switch if self.fabric.switch is not None else self.transport.switch

    @model_validator(mode="after")
    def _tables_fit_together(self) -> Self:
        # Not a ValueError: pydantic would fold it into its own report, keys and ways out lost.
        mistakes = problems(self)
        if mistakes:
            raise ScenarioError(mistakes)
        return self
