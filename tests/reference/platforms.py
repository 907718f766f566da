"""Platforms as an engine builds them."""

from __future__ import annotations

from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.platform import Platform
from fabricsim.transports import flow_model


def build(scenario: Scenario) -> Platform:
    costs = flow_model(scenario.transport).costs
    made = (scenario.cluster, scenario.fabric, scenario.switch, scenario.link_rate, costs, scenario.seed)
    return Platform(*made)
