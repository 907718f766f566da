"""A whole scenario: one TOML file."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from fabricsim.errors import ScenarioError
from fabricsim.scenario.checks import problems
from fabricsim.scenario.parts import Parts


class Scenario(Parts):
    """What is simulated.

    A scenario without a job describes a fabric to use from SimPy or to benchmark. Ranks that the job
    does not use stay idle. Cross-checks between the tables (degrees against
    ranks, batch against data parallelism) are made here, so that a scenario that exists can be built.

    ``folding`` says whether one rank is simulated for all that are alike in a run of the flow engine: if that changes
    no time, in programs of 128 ranks and more (``"auto"``) or in all (``"on"``); ``"close"`` also if it changes little.
    """

    @model_validator(mode="after")
    def _tables_fit_together(self) -> Self:
        # Not a ValueError: pydantic would fold it into its own report, keys and ways out lost.
        mistakes = problems(self)
        if mistakes:
            raise ScenarioError(mistakes)
        return self

    @property
    def of_kinds(self) -> tuple[Scenario, ...]:
        """Scenarios all of whose hosts are of one kind: of the cluster itself, and of each of its ``kinds``."""
        if not self.cluster.kinds:
            return (self,)
        transports = [None, *(kind.transport for kind in self.cluster.kinds.values())]
        return tuple(
            self.model_copy(update={"cluster": cluster, "transport": transport or self.transport})
            for cluster, transport in zip(self.cluster.variants, transports, strict=True)
        )
