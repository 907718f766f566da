"""Max-min fairness in plain Python: what the compiled solver must equal.

Progressive filling as in Bertsekas and Gallager, Data Networks, section 6.5.2, with a weight per
flow and a cost per flow and resource.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Flow:
    """A flow: its weight, and what a byte of it costs on each resource it crosses."""

    weight: float
    costs: Mapping[int, float]


def progressive_filling(capacities: Sequence[float], flows: Sequence[Flow]) -> list[float]:
    """Raise the level of all flows alike; when a resource is full, freeze the flows on it."""
    rates = [0.0] * len(flows)
    rising = set(range(len(flows)))
    left = list(capacities)
    while rising:
        levels = {}
        for resource in range(len(capacities)):
            demand = sum(flows[f].weight * flows[f].costs.get(resource, 0.0) for f in rising)
            if demand > 0:
                levels[resource] = max(left[resource], 0.0) / demand
        full = min(levels, key=lambda resource: (levels[resource], resource))
        for f in [f for f in rising if full in flows[f].costs]:
            rates[f] = flows[f].weight * levels[full]
            rising.discard(f)
            for resource, cost in flows[f].costs.items():
                left[resource] -= rates[f] * cost
    return rates


def violations(
    capacities: Sequence[float], flows: Sequence[Flow], rates: Sequence[float], *, tolerance: float = 1e-9
) -> list[str]:
    """What contradicts the definition of max-min fairness; empty if nothing does.

    No resource is over capacity, and every flow has a bottleneck: a full resource on which no flow
    has a higher level.
    """
    used = [0.0] * len(capacities)
    top = [0.0] * len(capacities)
    for flow, rate in zip(flows, rates, strict=True):
        for resource, cost in flow.costs.items():
            used[resource] += rate * cost
            top[resource] = max(top[resource], rate / flow.weight)
    found = [
        f"resource {resource} carries {load} of {capacity}"
        for resource, (load, capacity) in enumerate(zip(used, capacities, strict=True))
        if load > capacity * (1 + tolerance)
    ]
    for number, (flow, rate) in enumerate(zip(flows, rates, strict=True)):
        bottlenecks = [
            resource
            for resource in flow.costs
            if used[resource] >= capacities[resource] * (1 - tolerance)
            and rate / flow.weight >= top[resource] * (1 - tolerance)
        ]
        if not bottlenecks:
            found.append(f"flow {number} at {rate} has no bottleneck")
    return found


def finish_times(
    capacities: Sequence[float], flows: Sequence[Flow], starts: Sequence[float], sizes: Sequence[float]
) -> list[float]:
    """When each flow's last byte leaves, seconds: fill anew at every arrival and departure."""
    left = [float(size) for size in sizes]
    finish = [math.inf] * len(flows)
    pending = sorted(range(len(flows)), key=lambda f: starts[f])
    active: list[int] = []
    now = 0.0
    while pending or active:
        rates = progressive_filling(capacities, [flows[f] for f in active])
        due = [now + left[f] / rate for f, rate in zip(active, rates, strict=True)]
        until = min([*due, *(starts[f] for f in pending[:1])])
        for f, rate, end in zip(list(active), rates, due, strict=True):
            left[f] -= rate * (until - now)
            if end <= until:
                finish[f] = until
                active.remove(f)
        now = until
        while pending and starts[pending[0]] <= now:
            active.append(pending.pop(0))
    return finish
