"""Puts together what a fabric consists of: transport, platform, and the world of the scenario's engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives.choice import Choice, Choose
from fabricsim.collectives.nccl.plan import chooser
from fabricsim.engine.failures import Failures
from fabricsim.engine.flow.world import World
from fabricsim.engine.packet.recorder import Recorder, Watch
from fabricsim.engine.wiring import Wiring
from fabricsim.errors import InputError
from fabricsim.scenario import given
from fabricsim.scenario.cluster import Cluster
from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.host import HostKinds
from fabricsim.topology.platform import WIRE, Platform
from fabricsim.transports import flow_model
from fabricsim.transports.base import FlowModel

_MOST_TAPS = 256
"""Wires whose rate is recorded over time; a larger fabric records those of its first hosts."""


@dataclass(frozen=True)
class Assembly:
    """The parts of a fabric.

    `taps`: resources whose payload rate the flow engine records.
    `recorder`: of a packet run; None in a flow run.
    """

    model: FlowModel
    platform: Platform
    taps: tuple[int, ...]
    world: World
    wiring: Wiring
    failures: Failures
    recorder: Recorder | None


def assemble(scenario: Scenario, *, taps: bool, watch: Watch | None) -> Assembly:
    """Make the parts of a scenario's fabric.

    `scenario`: cluster, fabric, transport and collectives; the job is not looked at.
    `taps`, `watch`: as of `fabricsim.engine.fabric.Fabric`.
    Raises InputError if `watch` names a wire that is not there, or the engine is not that of packets.
    """
    given.require(watch, (Watch, NoneType), "watch", "what fabricsim.Watch.parse makes, such as of ['queue:*']")
    views = scenario.of_kinds
    models = tuple(map(_model, views))
    model = models[0]
    kinds = HostKinds(
        tuple((_with_adapter(view), each.costs) for view, each in zip(views, models, strict=True)),
        scenario.cluster.kind_of_host,
    )
    platform = Platform(
        _with_adapter(scenario),
        scenario.fabric,
        scenario.switch,
        scenario.link_rate,
        model.costs,
        scenario.seed,
        kinds,
        reduces=scenario.engine != "flow" and scenario.collectives.reduces_in_network,
    )
    recorded, choose = tapped(platform) if taps else (), _choosing(views, platform)
    if scenario.engine != "flow":
        from fabricsim.engine.packet.assembly import make  # noqa: PLC0415  compiles much that the flow engine does not need

        parts = make(platform, model, scenario, choose, watch)
        return Assembly(model, platform, recorded, *parts[:2], Failures(*parts[:2], platform, scenario), parts[2])
    if watch:
        raise InputError('taps and captures need packets, and the flow engine has none; set engine = "packet"')
    world = World(platform.resources.capacities, recorded)
    wiring = Wiring(world, platform, model, choose, scenario.nic.interrupt_moderation)
    wiring.models = models if len(models) > 1 else ()
    balancing = scenario.transport.load_balancing
    wiring.repairs = balancing is not None and balancing.kind != "ecmp"
    return Assembly(model, platform, recorded, world, wiring, Failures(world, wiring, platform, scenario), None)


def _choosing(views: Sequence[Scenario], platform: Platform) -> Choose:
    """Choose as the hosts of a group do: by the transport that they speak."""
    if len(views) == 1:
        return chooser(views[0])
    of_kind = cache(lambda kind: chooser(views[kind]))

    def choose(collective: str, ranks: tuple[int, ...], size: int) -> Choice:
        kinds = dict.fromkeys(platform.kinds.kind[platform.host_of(rank)] for rank in ranks)
        return of_kind(platform.kinds.spoken(kinds))(collective, ranks, size)

    return choose


def _model(scenario: Scenario) -> FlowModel:
    """Give the transport as the flow engine sees it, with what was measured with the adapter."""
    model = flow_model(scenario.transport)
    return model if scenario.nic.latency is None else replace(model, latency=scenario.nic.latency, overhead=0)


def tapped(platform: Platform, stand_ins: NDArray[np.int64] | None = None) -> tuple[int, ...]:
    """Choose the wires whose rate is recorded; where given, of those that stand for others, shape ``(resources,)``."""
    wires = [index for index, kind in enumerate(platform.resources.kinds) if kind == WIRE]
    if stand_ins is not None:
        wires = [index for index in wires if stand_ins[index] == index]
    return tuple(wires[:_MOST_TAPS])


def _with_adapter(scenario: Scenario) -> Cluster:
    """Put the adapter that the transport uses in the place of ``nic``; what is said of those slots goes with it."""
    cluster = scenario.cluster
    if scenario.nic is cluster.nic:
        return cluster
    alone = {"nic": scenario.nic, "nic_below_gpu_switch": False, "nics_per_host": 1, "pxn": False}
    return cluster.model_copy(update=alone)
