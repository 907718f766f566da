from __future__ import annotations

from collections.abc import Callable

import pytest

from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.platform import Platform
from fabricsim.transports import flow_model


def _build(scenario: Scenario) -> Platform:
    costs = flow_model(scenario.transport).costs
    made = (scenario.cluster, scenario.fabric, scenario.switch, scenario.link_rate, costs, scenario.seed)
    return Platform(*made)


@pytest.fixture(scope="session")
def build() -> Callable[[Scenario], Platform]:
    return _build
