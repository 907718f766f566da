"""What the network of a scenario consists of, and what that costs by a price list."""

from collections.abc import Sequence

import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import InputError
from fabricsim.scenario.network import Network
from fabricsim.scenario.prices import PriceList
from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.bill import Bill, make_bill, parts_of
from fabricsim.topology.inventory import Stock, take_stock
from fabricsim.topology.resources import ResourceList
from fabricsim.topology.wires import Wires, freeze, network_of

COST, POWER = "network_cost_per_gpu_usd", "network_power_per_gpu_w"
"""Columns of an index."""
REMARK = "price_remark"
"""Column that says why there is no price."""


def wired(scenario: Scenario) -> tuple[Network, Wires]:
    """Build the network of a scenario, and nothing on it."""
    network = network_of(scenario.fabric, scenario.ends)
    return network, freeze(network, scenario.link_rate, ResourceList(), scenario.fabric)


def down_for_good(scenario: Scenario) -> tuple[int, ...]:
    """Find the wires that are down from the start, and nobody knows until when, by their numbers."""
    failures = scenario.fabric.failures
    if not any(each.begin == 0 and each.until is each.mtbf is None and not each.degrades for each in failures):
        return ()
    return tuple(sorted(Fabric(simpy.Environment(), scenario).failures.lasting()))


def said_of(down: Sequence[int]) -> str:
    """Say how many cables are `down_for_good`."""
    count = len(down) // 2
    return f"{count} cable{'s are' if count > 1 else ' is'} down from the start (fabric.failures)"


def bill_of(scenario: Scenario, prices: PriceList, stock: Stock | None = None) -> Bill:
    """Price the network of a scenario.

    `stock`: of it, if it is counted already.
    Raises InputError for optical circuits, whose switches no inventory has.
    """
    if scenario.fabric.topology == "optical-circuits":
        raise InputError(f"{scenario.name}: circuit switches are in no bill of materials; price another topology")
    stock = stock or take_stock(*wired(scenario), scenario.ends.count)
    return make_bill(parts_of(stock, scenario.fabric.radix), prices, scenario.cluster.ranks)


def per_gpu(scenario: Scenario, prices: PriceList) -> dict[str, float]:
    """Say what the network costs and draws per GPU, as columns of an index. Raises InputError if a price is missing."""
    bill = bill_of(scenario, prices)
    if bill.cost is None or bill.power is None:
        missing = "; ".join(dict.fromkeys(map(str, bill.unpriced)))
        raise InputError(f"{scenario.name}: {prices.name} has no price of {missing}; add it to a list of your own")
    return {COST: bill.cost / bill.gpus, POWER: bill.power / bill.gpus}
