"""Runs with one planted bottleneck each: the first cause that is printed names it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from rich.console import Console

from fabricsim.report.text import summary_text
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from fabricsim.run import pipeline
from fabricsim.run.pipeline import load, simulate
from fabricsim.units import PS_PER_S
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, Program

MS = PS_PER_S // 1000
MODEL = 'job.model={include="gpt2-medium",layers=2}'
FOUR = (MODEL, "cluster.hosts=4", "job.micro_batch=1", "job.global_batch=4", "job.parallelism.data=4")
PACKETS = (*FOUR, "engine=packet")
TWO = (MODEL, "job.micro_batch=1", "job.global_batch=1", "cluster.hosts=1", "cluster.gpus_per_host=2")
TENSOR = (*TWO, 'cluster.intra_host="nvlink"', "job.parallelism={tensor=2,data=1}")
LOST = ("timeouts", "retransmissions")
PLAIN = 'name="plain",latency="1us",forwarding="store-and-forward"'


def leaves(spines: int, rate: str, more: str = "") -> str:
    return f'fabric={{topology="leaf-spine",hosts_per_leaf=2,spines={spines},uplink_rate="{rate}"{more}}}'


RAILS = (
    MODEL, "cluster.hosts=4", "cluster.gpus_per_host=2", "cluster.nics_per_host=2", 'cluster.intra_host="nvlink"',
    "cluster.gpu=a100-sxm-40gb", "cluster.gpudirect=true", "cluster.pxn=true", "transport=roce-100g",
    "job.micro_batch=1", "job.global_batch=8", "job.parallelism={data=8}",
)  # fmt: skip
EXPERTS = 'job.model={include="mixtral-8x7b",layers=2,hidden=512,feed_forward=1024,vocabulary=512}'


class Planted(NamedTuple):
    settings: tuple[str, ...]
    first: str | tuple[str, ...]
    says: str = ""


PLANTS = {
    "narrow uplink": Planted((*FOUR, leaves(1, "10Gbps")), "wire leaf", "->spine0, data all_reduce"),
    "oversubscribed spine": Planted(
        ("cluster.hosts=4", "cluster.gpus_per_host=1", "job.parallelism.data=4", "job.micro_batch=1",
         "job.global_batch=4", MODEL, "collectives=ideal", leaves(1, "50Gbps")),
        "wire leaf", "->spine0",
    ),
    "slow adapter": Planted((*FOUR, "transport=tcp-10g"), "wire host", "data all_reduce"),
    "slow GPU": Planted((*FOUR, "cluster.gpu=t4", "job.parallelism={data=1}", "job.global_batch=4"), "compute"),
    "memory-bound kernels": Planted((*FOUR, 'cluster.gpu.memory_rate="1GBps"'), "compute"),
    "small buffer": Planted(
        (*PACKETS, "transport=roce-100g", leaves(1, "50Gbps", f',switch={{{PLAIN},buffer={{per_port="60kB"}}}}')),
        LOST, " drops",
    ),
    "link down": Planted(
        (*PACKETS, "transport=roce-100g", 'fabric.failures=[{link="host0-switch0",from="15ms",until="35ms"}]'),
        "failed link host0->switch0, data all_reduce", " timeout",
    ),
    "switch lost": Planted(
        (*FOUR, "transport=roce-100g", leaves(2, "100Gbps", ',failures=[{switch="spine0",from="25ms"}]')),
        "failed link leaf", "->spine0, data all_reduce",
    ),
    "only way that is down from the start": Planted(
        (*FOUR, leaves(1, "100Gbps", ',reconvergence="1ms",failures=[{link="leaf0-spine0",until="300ms"}]')),
        "failed link leaf0->spine0, data all_reduce",
    ),
    "only way that routing knows to be down": Planted(
        (*FOUR, leaves(1, "100Gbps", ',reconvergence="0s",failures=[{switch="spine0",from="20ms",until="90ms"}]')),
        "failed link leaf0->spine0, data all_reduce",
    ),
    "cable that gets slow": Planted(
        (*FOUR, 'fabric.failures=[{link="host0-switch0",rate="10Gbps"}]'), "wire ", "host0"
    ),
    "bit errors": Planted((*PACKETS, "fabric.bit_error_rate=1e-6"), LOST, " errors"),
    "lossy cable": Planted(
        (*PACKETS, "fabric.cables.host0-*.bit_error_rate=1e-6"), LOST, "host0-* loses packets"
    ),
    "slow cable": Planted(
        (*FOUR, leaves(1, "100Gbps"), "fabric.cables.leaf0-spine0.rate=10Gbps"),
        "wire leaf", "it runs at 10 Gb/s, its tier at up to 100 Gb/s",
    ),
    "ECMP collision": Planted((*FOUR, "seed=1", "collectives=ideal", leaves(4, "25Gbps")), "wire leaf", "uneven load"),
    "kernel launch": Planted(
        (*TENSOR, "cluster.gpu=a100-sxm-40gb", 'job.kernel_launch="50us"', "job.sequence=64"), "host"
    ),
    "NVLink": Planted(
        (*TENSOR, "cluster.gpu=a100-sxm-40gb", 'cluster.gpu.nvlink_rate="1GBps"'),
        "NVLink host0/gpu", "tensor all_reduce",
    ),
    "pipeline bubble": Planted(
        ("cluster.hosts=4", "job.parallelism={data=1,pipeline=4}", "job.global_batch=1", "job.micro_batch=1"),
        "pipeline bubble",
    ),
    "copying thread": Planted((*FOUR, "transport=ipoib-100g"), "proxy thread host", "data all_reduce"),
    "PCIe": Planted((*FOUR, "cluster.nic.pcie={generation=1,lanes=4}"), "PCIe host0/nic"),
    "staging in host memory": Planted(
        (*FOUR, "cluster.gpudirect=false", "transport=rdma-400g", "cluster.gpu_pcie={generation=2}"), "PCIe host0/gpu0"
    ),
    "latency": Planted((*FOUR, 'fabric.host_cable="2000km"'), "latency, data all_reduce"),
    "algorithm that sends all in each step": Planted(
        (*FOUR, 'collectives={include="ideal",algorithm={all_reduce="recursive_doubling"}}'),
        "wire host", "data all_reduce",
    ),
    "optimizer": Planted(
        (*TENSOR, "cluster.gpu=a100-sxm-40gb", "job.launch=graph", "job.sequence=64"), "compute", "mostly optimizer"
    ),
    "second job": Planted(
        (MODEL, "cluster.hosts=4", "job.micro_batch=1", "job.global_batch=2", "job.parallelism.data=2",
         leaves(1, "50Gbps"), 'jobs={red={ranks="0,2"},blue={ranks="1,3"}}'),
        "wire leaf0->spine0, red data all_reduce", "shared with blue",
    ),
    "checkpoint to storage": Planted(
        (*FOUR, 'traffic={checkpoint={to_host=0,size="4GB"}}'), "wire switch0->host0", "shared with traffic checkpoint"
    ),
    "slow host": Planted(
        (*FOUR, 'cluster.kinds.old={hosts="2",gpu="t4"}'), "compute, rank 2", "times as long as the median rank"
    ),
    "throttled GPU": Planted((*FOUR, "cluster.gpu_speed.3=0.4"), "compute, rank 3", "2.14 times as long"),
    "jitter of kernels": Planted((*FOUR, "cluster.kernel_jitter={lognormal=0.8}"), "compute, mostly", "times as long"),
    "thread-bound receiver": Planted(
        (*FOUR, "transport=ipoib-100g", "transport.send_copy=0.02ns/B", "transport.receive_copy=1ns/B"),
        "proxy thread host", "data all_reduce",
    ),
    "slot of one adapter": Planted(
        (*FOUR, 'cluster.kinds.old={hosts="2",nic={include="connectx-5-edr",pcie={generation=1,lanes=4}}}'),
        "PCIe host2/nic/pcie", "data all_reduce",
    ),
    "NIC lost": Planted(
        (*RAILS, "cluster.nic_failover=true", 'fabric.failures=[{nic="host1/nic0"}]'), "wire host", "host1/nic0 is down"
    ),
    "slow cable of a rail": Planted(
        (*RAILS, 'fabric.cables.host1/nic0-*.rate="25Gbps"'), "wire host1/nic0->", "it runs at 25 Gb/s"
    ),
    "degraded switch": Planted(
        (*FOUR, leaves(1, "100Gbps", ',failures=[{switch="leaf0",rate="10Gbps"}]')),
        "wire host", "leaf0 is degraded to 10Gbps",
    ),
    "slow cable between stages": Planted(
        ("cluster.hosts=4", "job.parallelism={data=1,pipeline=4}", "job.global_batch=64", "job.micro_batch=1",
         'job.model={include="gpt2-medium",layers=4}', "transport=tcp-10g", 'fabric.cables.host2-*.rate="1Gbps"'),
        "wire switch0->host2, pipeline send_recv", "it runs at 1 Gb/s, its tier at up to 10 Gb/s",
    ),
    "all-to-all of experts": Planted(
        (EXPERTS, "cluster.hosts=4", "job.micro_batch=4", "job.global_batch=64", "job.parallelism={data=4,expert=4}",
         "transport=tcp-10g"),
        "wire host", "expert all_to_all",
    ),
    "tensor parallelism over the network": Planted(
        (MODEL, "cluster.hosts=2", "job.micro_batch=4", "job.global_batch=4", "job.parallelism={tensor=2,data=1}",
         "transport=tcp-10g"),
        "wire host", "tensor all_reduce",
    ),
    "timeouts": Planted(
        (*PACKETS, "transport=tcp-10g", leaves(1, "5Gbps", f',switch={{{PLAIN},buffer={{per_port="3kB"}}}}')),
        "timeouts, data all_reduce", " drops",
    ),
    "cable that flaps": Planted(
        (*PACKETS, "transport=tcp-10g", 'fabric.failures=[{link="host0-switch0",from="25ms",until="60ms"}]'),
        "failed link host0->switch0, data all_reduce", " timeouts",
    ),
    "small window on a long way": Planted(
        (*PACKETS, "transport=tcp-10g", 'fabric.host_cable="200km"', 'transport.packet.maximum_window="64KiB"'),
        "latency, data all_reduce",
    ),
}  # fmt: skip


def printed(result: RunRecord) -> list[str]:
    """Lines that the terminal shows."""
    console = Console(width=400, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(summary_text(summarise(result)))
    return capture.get().splitlines()


def first_cause(result: RunRecord) -> str:
    """What the terminal prints of the first cause: its name, and its row of the table."""
    lines = printed(result)
    said = next(line for line in lines if line.startswith("First cause: ")).removeprefix("First cause: ")
    name = said.rsplit(", ", 1)[0]
    return name + next(line for line in lines if line.startswith(name)).removeprefix(name)


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTS.values(), ids=PLANTS)
def test_the_first_cause_names_what_was_planted(planted: Planted) -> None:
    said = first_cause(simulate(load("gpt2-medium-dp", planted.settings)))
    assert said.startswith(planted.first)
    assert planted.says in said


def test_a_long_call_that_hardly_loads_a_link_hides_no_short_one_that_fills_it() -> None:
    fabric = 'fabric={topology="leaf-spine",hosts_per_leaf=4,spines=1,uplink_rate="60Gbps"}'
    slow = 'fabric.cables={host0-leaf0={rate="5Gbps"},host4-leaf1={rate="5Gbps"}}'
    light = 'light={ranks="0,4",parallelism={data=2},global_batch=2}'
    heavy = 'heavy={ranks="1-3,5-7",parallelism={data=6},global_batch=12}'
    job = "cluster.hosts=8", "job.micro_batch=1", "job.global_batch=8", f"jobs={{{light},{heavy}}}"
    result = simulate(load("gpt2-medium-dp", (MODEL, *job, "collectives=ideal", fabric, slow)))

    assert any("wire leaf0->spine0, heavy data all_reduce (shared with light)" in line for line in printed(result))


def test_jobs_that_send_one_after_the_other_have_their_own_links() -> None:
    """Each fills the links of its hosts as much as the one above them, which the other has at another time."""
    lines = printed(simulate(load("two-jobs", [MODEL, "jobs.red.start=200ms"])))

    assert sum("wire host" in line for line in lines if line.startswith(("red ", "blue "))) == 2
    assert not any("shared with" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spines", "failure", "said"),
    [
        (2, 'from="{last}ps"', "routing would have known after 5 s (fabric.reconvergence), when all was over"),
        (1, 'until="30ms"', "there is no other way, so that messages wait for the repair"),
    ],
)
def test_a_note_says_whether_routing_had_another_way(spines: int, failure: str, said: str) -> None:
    last = simulate(load("gpt2-medium-dp", (*FOUR, leaves(spines, "100Gbps")))).iteration - MS // 10
    fabric = leaves(spines, "100Gbps", f',failures=[{{link="leaf0-spine0",{failure.format(last=last)}}}]')
    (note,) = [note for note in simulate(load("gpt2-medium-dp", (*FOUR, fabric))).notes if "failed: " in note]

    assert said in note


def replayed(settings: tuple[str, ...], program: Program) -> RunRecord:
    ready = pipeline._one(program)  # noqa: SLF001  a run of any program, as a replay is
    return pipeline._run(load("gpt2-medium-dp", settings), lambda _: ready, None, None)  # noqa: SLF001  likewise


def test_the_first_cause_names_a_straggling_rank() -> None:
    builder = ProgramBuilder(timers=["forward-compute", "all-reduce"])
    call = builder.call(Call("all_reduce", (0, 1, 2, 3), 2**20, "data"))
    for rank in range(4):
        builder.compute(rank, (30 if rank == 2 else 10) * MS, "forward-compute")
        builder.join(call, rank, "all-reduce")
        if rank == 0:
            builder.compute(rank, MS, "forward-compute")
    said = first_cause(replayed(FOUR, builder.build()))
    assert said.startswith("compute, mostly rank 2")
    assert "2.86 times as long as the median rank's 10.5 ms" in said


@pytest.mark.slow
def test_the_first_cause_names_pauses_of_a_flow_that_congests_nothing() -> None:
    # host 0 sends to the idle host 12 over an uplink that is paused because nine hosts send to host 10
    builder = ProgramBuilder(timers=["compute", "send"])
    victim = builder.call(Call("send_recv", (0, 12), 2 * 10**7, "victim"))
    incast = [builder.call(Call("send_recv", (rank, 10), 2 * 10**7, "incast")) for rank in (1, *range(13, 20))]
    for rank in range(20):
        calls = [victim] if rank in (0, 12) else incast if rank == 10 else []
        own = {1: incast[0]} | dict(zip(range(13, 20), incast[1:], strict=True))
        builder.join_all([own[rank]] if rank in own else calls, rank, "send")
    builder.compute(12, 5 * MS, "compute")
    fabric = 'fabric={topology="leaf-spine",hosts_per_leaf=10,spines=1,uplink_rate="100Gbps"}'
    settings = ("cluster.hosts=20", "engine=packet", "transport=roce-100g-pfc", "collectives=ideal", fabric)
    said = first_cause(replayed(settings, builder.build()))
    assert said.startswith("pauses, victim send_recv")
