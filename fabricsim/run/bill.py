"""What the network of a scenario consists of, and what that costs by a price list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.errors import InputError
from fabricsim.topology.bill import make_bill, parts_of
from fabricsim.topology.inventory import take_stock
from fabricsim.topology.resources import ResourceList
from fabricsim.topology.wires import freeze

if TYPE_CHECKING:
    from fabricsim.scenario.network import Network
    from fabricsim.scenario.prices import PriceList
    from fabricsim.scenario.scenario import Scenario
    from fabricsim.topology.bill import Bill
    from fabricsim.topology.inventory import Stock
    from fabricsim.topology.wires import Wires


def wired(scenario: Scenario) -> tuple[Network, Wires]:
    """Build the network of a scenario, and nothing on it."""
    network = scenario.fabric.network(scenario.ends)
    network.require_ports(scenario.fabric.radix)
    return network, freeze(network, scenario.link_rate, ResourceList(), scenario.fabric)


def bill_of(scenario: Scenario, prices: PriceList, stock: Stock | None = None) -> Bill:
    """Price the network of a scenario.

    `stock`: of it, if it is counted already.
    Raises InputError for optical circuits, whose switches no inventory has.
    """
    if scenario.fabric.topology == "optical-circuits":
        msg = f"{scenario.name}: circuit switches are in no bill of materials; price another topology"
        raise InputError(msg)
    stock = stock or take_stock(*wired(scenario), scenario.ends.count)
    return make_bill(parts_of(stock, scenario.fabric.radix), prices, scenario.cluster.ranks)
