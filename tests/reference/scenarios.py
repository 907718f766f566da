"""Scenarios made for hand calculation: every number in them is round and known to the test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import simpy

from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.transport import Transport
from fabricsim.transports import flow_model
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, CollectiveName, Program

RATE = 12.5e9
"""Payload bytes/s of every ideal link: 100 Gb/s."""
LINK_PS = 500_000
"""Propagation over every ideal cable (100 m at 5 ns/m), ps."""
WHOLE = "1TiB"
"""A chunk that no buffer of a test exceeds: one round."""
QUICKER = {
    "gpt3-175b": ["job.global_batch=256"],
    "llama3-405b": ["job.parallelism.virtual_stages=1"],
    "rail-only": ["job.global_batch=128"],
    "what-if-leaf-spine": ["job.global_batch=8", "job.model.layers=4"],
}
"""What makes shipped scenarios quick that take seconds."""


_GPU = {
    "name": "round",
    "peak": {"fp16": "100TFLOPS"},
    "memory": "40GB",
    "memory_rate": "1000GBps",
    "gemm_efficiency": 1.0,
    "memory_efficiency": 1.0,
}
_MODEL = {"name": "smallest", "family": "gpt", "layers": 1, "hidden": 8, "heads": 1, "vocabulary": 8, "positions": 8}
_JOB = {"model": _MODEL, "micro_batch": 1, "global_batch": 1, "sequence": 8, "kernel_launch": "0us"}


def _cluster(hosts: int, keys: dict[str, Any]) -> dict[str, Any]:
    nvlink = {"nvlink_rate": "300GBps", "nvlinks": 12} if keys.get("intra_host") == "nvlink" else {}
    return {
        "name": "made for tests",
        "hosts": hosts,
        "gpu": {**_GPU, **nvlink},
        "nic": {"name": "round", "pcie": {"generation": 4}},
        "cpu": {"name": "round", "copy_rate": "10GBps"},
        "join": "ideal",
        **keys,
    }


def ideal_scenario(  # noqa: PLR0913  a factory for tests: all but the first two by name
    hosts: int,
    topology: str = "single-switch",
    *,
    channels: int = 1,
    chunk: str = WHOLE,
    send_chunk: str = WHOLE,
    cable: str = "100m",
    switch_latency: str = "0ns",
    forwarding: str = "cut-through",
    seed: int = 0,
    transport: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    **fabric: object,
) -> Scenario:
    """A validated scenario whose links each carry `RATE` payload bytes/s after `LINK_PS`.

    The link rate is that of the payload times the wire bytes per payload byte: headers are there,
    yet the closed forms are in round numbers. ``fabric`` overrides keys of that table, `transport`
    those of a 4096-byte InfiniBand, `cluster` those of single-GPU hosts without limits of their own.
    """
    switch = {"name": "round", "latency": switch_latency, "forwarding": forwarding}
    keys = {"name": "round", "kind": "infiniband", "line_rate": "100Gbps", "switch": switch, "mtu": 4096}
    made = Transport.model_validate({**keys, "latency": "0us", **(transport or {})})
    wire = flow_model(made).costs.wire
    network = {"topology": topology, "host_cable": cable, "link_rate": f"{RATE * wire!r}Bps"}
    if topology != "single-switch":
        network["switch_cable"] = cable
    tables = {
        "name": "made for tests",
        "cluster": _cluster(hosts, cluster or {}),
        "fabric": {**network, **fabric},
        "transport": made,
        "job": _JOB,
        "collectives": {"channels": channels, "chunk": chunk, "send_chunk": send_chunk},
        "seed": seed,
    }
    return Scenario.model_validate(tables)


def program(*calls: Call) -> Program:
    """Calls that every rank of each joins at once, none waiting for another."""
    builder = ProgramBuilder(timers=["all"])
    numbers = [builder.call(call) for call in calls]
    for rank in range(max(max(call.ranks) for call in calls) + 1):
        builder.join_all([n for n, call in zip(numbers, calls, strict=True) if rank in call.ranks], rank, "all")
    return builder.build()


def measure(made: Scenario, collective: CollectiveName, ranks: Iterable[int], size: int) -> float:
    """Seconds that one collective takes on an idle fabric."""
    env = simpy.Environment()
    call = Call(collective, tuple(ranks), size, "data")
    replay = cast("Replay", env.run(Fabric(env, made).replay(program(call))))
    return float(replay.end - replay.start) * 1e-12
