"""Collectives and sends that run at once, in both engines, against answers worked out by hand."""

from __future__ import annotations

import random
from typing import NamedTuple, cast

import numpy as np
import pytest
import simpy

from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.records.program import OVERLAPPED_STREAM
from fabricsim.run.pipeline import load, simulate
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, CollectiveName

ENGINES = ["flow", "packet"]
MS = 1e9
MB = 10**6
FINE = ('collectives.chunk="1MiB"', 'transport.packet.ack_wire="16B"')
"""Several pieces, and acknowledgements that take 0.4 % of the wire."""


class Part(NamedTuple):
    """One call: what, over whom, bytes, and the part that it waits for on each of its ranks (-1: none)."""

    collective: CollectiveName
    ranks: tuple[int, ...]
    size: int
    after: int = -1
    late: float = 0.0  # ms that the first of its ranks computes before


def ends(engine: str, parts: list[Part], *settings: str) -> list[float]:
    """When each part is over, ms."""
    builder = ProgramBuilder(("compute", "call"))
    calls = [builder.call(Call(part.collective, part.ranks, part.size, str(part.ranks))) for part in parts]
    ops: dict[tuple[int, int], int] = {}
    for rank in sorted({rank for part in parts for rank in part.ranks}):
        begin = builder.compute(rank, 0, "compute")
        for number, part in enumerate(parts):
            if rank in part.ranks:
                before = begin if part.after < 0 else ops[part.after, rank]
                if part.late and rank == part.ranks[0]:
                    before = builder.compute(rank, round(part.late * MS), "compute", after=[before])
                join = builder.join(calls[number], rank, "call", stream=OVERLAPPED_STREAM, after=[before])
                ops[number, rank] = join
    env = simpy.Environment()
    scenario = load("ideal-16", [f"engine={engine}", *settings]).scenario
    replay = cast("Replay", env.run(Fabric(env, scenario).replay(builder.build())))
    return [
        max(int(replay.spans["end"][op]) for (one, _), op in ops.items() if one == number) / MS
        for number in range(len(parts))
    ]


GATHER = Part("all_gather", (0, 1), 50 * MB)  # 25 MB each way: 2 ms
CASES = {
    "alone": ([GATHER], [2.0]),
    "apart": ([GATHER, Part("all_gather", (2, 3), 50 * MB)], [2.0, 2.0]),
    "two groups on one wire": ([GATHER, Part("all_gather", (0, 2), 50 * MB)], [4.0, 4.0]),
    "a short one beside a long one": ([GATHER, Part("all_gather", (0, 2), 10 * MB)], [2.4, 0.8]),
    "one after the other": ([GATHER, GATHER._replace(after=0)], [2.0, 4.0]),
    "a late sender": ([Part("send_recv", (0, 1), 25 * MB, late=3.0)], [5.0]),
    "sends from one host": (
        [Part("send_recv", (0, 1), 25 * MB), Part("send_recv", (0, 2), 25 * MB)],
        [4.0, 4.0],
    ),
    "sends to one host": (
        [Part("send_recv", (1, 0), 25 * MB), Part("send_recv", (2, 0), 25 * MB)],
        [4.0, 4.0],
    ),
    "both ways at once": ([Part("send_recv", (0, 1), 25 * MB), Part("send_recv", (1, 0), 25 * MB)], [2.0, 2.0]),
    "a send that comes in between": (
        [Part("send_recv", (0, 1), 50 * MB), Part("send_recv", (0, 2), 12_500_000, late=1.0)],
        [5.0, 3.0],
    ),
    "three rings that meet at a host": (
        [GATHER, Part("all_gather", (0, 2), 50 * MB), Part("all_gather", (0, 3), 50 * MB)],
        [6.0, 6.0, 6.0],
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("parts", "expected"), CASES.values(), ids=CASES)
def test_calls_at_once_share_wires_alike(engine: str, parts: list[Part], expected: list[float]) -> None:
    assert ends(engine, parts, *FINE) == pytest.approx(expected, rel=0.01)


def test_what_gpus_of_a_host_exchange_shares_its_pcie_with_what_leaves_it() -> None:
    """A send of 1 MB does not wait until an exchange of 100 MB in its host is over, which takes 10 ms."""
    parts = [Part("all_gather", (0, 1), 200 * MB), Part("send_recv", (0, 2), MB, late=1.0)]
    hosts = ("cluster=pinnacles", "cluster.hosts=2", "collectives=ideal", *FINE)

    found = {engine: ends(engine, parts, *hosts)[1] - 1.0 for engine in ENGINES}

    assert found["flow"] < 0.25
    assert found["packet"] == pytest.approx(found["flow"], rel=0.5)


def random_job(seed: int) -> list[str]:
    """Settings of a small job whose collectives run beside its passes, and beside those of other groups."""
    draw = random.Random(seed)  # noqa: S311  no secret
    tensor, data, pipeline = draw.choice([1, 1, 2]), draw.choice([2, 4]), draw.choice([1, 1, 2])
    zero, batch = draw.choice([0, 1, 2, 3]), draw.choice([1, 2])
    per_host, micro_batches = draw.choice([1, 2]), draw.choice([1, 2]) * pipeline
    shape = f"layers={2 * pipeline * draw.choice([1, 2])},hidden={draw.choice([256, 512, 1024])},heads=8"
    overlap = ["job.overlap=ddp", f"job.bucket={draw.choice(['1MiB', '4MiB', '25MiB'])}"] if zero < 3 else []
    return [
        f"cluster.gpus_per_host={per_host}",
        f"cluster.hosts={tensor * data * pipeline // per_host}",
        f"transport={draw.choice(['rdma-100g', 'roce-100g', 'ideal-100g', 'ipoib-100g', 'tcp-10g'])}",
        f"collectives={draw.choice(['ideal', 'nccl'])}",
        f'job.model={{name="drawn",family="{draw.choice(["gpt", "llama"])}",{shape},vocabulary=8192,positions=1024}}',
        f"job.micro_batch={batch}",
        f"job.global_batch={batch * data * micro_batches}",
        f"job.sequence={draw.choice([256, 512, 1024])}",
        f"job.parallelism={{tensor={tensor},data={data},pipeline={pipeline},zero={zero}}}",
        f"job.launch={draw.choice(['eager', 'graph'])}",
        "job.precision=fp16",
        "job.recompute=none",
        *overlap,
    ]


@pytest.mark.slow
def test_engines_agree_on_random_jobs_with_overlap() -> None:
    """In the mean; those that lose no packet each by itself: the flow engine knows no losses."""
    changes, lossless = [], []
    for seed in range(50):
        flow, packet = (simulate(load("gpt2-medium-dp", [*random_job(seed), f"engine={name}"])) for name in ENGINES)
        changes.append(abs(packet.iteration / flow.iteration - 1))
        lossless += [changes[-1]] * (packet.counters["drops"] == 0)

    assert np.mean(changes) < 0.05
    assert np.median(changes) < 0.01
    assert len(lossless) > 40
    assert np.max(lossless) < 0.05
