"""How experts run: who issues their products, what is sent, and what goes on beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import comb
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from fabricsim.records.program import COLLECTIVE, OVERLAPPED_STREAM
from fabricsim.run.pipeline import load, simulate
from fabricsim.scenario.job import KERNEL_LAUNCH, Job
from fabricsim.units import PS_PER_S
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.dispatcher import copies
from fabricsim.workload.flops import model_flops
from fabricsim.workload.links import HIDDEN, Links
from fabricsim.workload.operations import block_work
from fabricsim.workload.roofline import host_time, roofline_time
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Exchange, Item, Level, Operation, TokenRouting, Wait, Work
from tests.reference.jobs import make_job, make_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabricsim.scenario.cluster import Gpu
    from fabricsim.workload.program import Program

US = 10**6


def job_of(kernels: str, **changes: object) -> Job:
    settings = {"data": 4, "expert": 4, "sequence": 512, "launch": "eager", "expert_kernels": kernels, **changes}
    return make_job("mixtral-8x7b", **settings)


def layer(job: Job) -> Work:
    blocks = stage_blocks(job.model, 1, job.parallelism)[0]
    return block_work(next(block for block in blocks if block.kind == "expert-layer"), job)


def kernels(items: Iterable[Item]) -> list[Operation]:
    return [item for item in items if isinstance(item, Operation)]


def test_the_host_issues_products_of_experts_one_by_one() -> None:
    job = job_of("flex", expert=1, data=1)

    times = {each.name: host_time(each, job) for each in kernels(layer(job).forward)}

    assert times["experts up"] == times["experts down"] == KERNEL_LAUNCH["eager"] + round(7 * 33.4 * US)
    assert times["projection"] == KERNEL_LAUNCH["eager"]


def test_each_expert_has_its_input_quantised_alone() -> None:
    job = job_of("all-to-all", expert=1, data=1, products="fp8")

    times = [host_time(each, job) for each in kernels(layer(job).forward) if each.name == "quantise input"]

    assert sorted(times)[-2:] == [KERNEL_LAUNCH["eager"] + 7 * 5 * US] * 2
    assert times[:-2] == [KERNEL_LAUNCH["eager"]]  # of the projection; the norm writes that of queries, keys and values


def test_scales_of_each_expert_are_made_alone_in_two_kernels() -> None:
    job = job_of("all-to-all", expert=1, data=1, products="fp8", scaling="current")

    *_, of_experts = (each for each in kernels(layer(job).forward) if each.name == "scale of input")

    assert of_experts.kernels == 2 * 8
    assert host_time(of_experts, job) == KERNEL_LAUNCH["eager"] + 2 * 7 * 5 * US


def test_padding_copies_the_tokens_of_experts_before_and_behind_their_products() -> None:
    jobs = [job_of("flex", expert=1, data=1, products="fp8", padded_experts=each) for each in (True, False)]
    padded, plain = map(layer, jobs)

    elements = 2 * jobs[0].micro_batch * 512 * 4096  # of two experts per token
    for ours, theirs in ((padded.forward, plain.forward), (padded.backward, plain.backward)):
        more = sum(each.traffic for each in kernels(ours)) - sum(each.traffic for each in kernels(theirs))
        assert more == 2 * (2 + 2) * elements  # two copies, read and written


def test_kernels_that_turn_the_input_of_each_expert_start_and_drain() -> None:
    job = job_of("all-to-all", expert=1, data=1, products="fp8")
    gpu = load("recipes", ["cluster.gpu.include=b200-sxm"]).scenario.cluster.gpu
    *_, last = (each for each in kernels(layer(job).forward) if each.name == "quantise input")

    together = roofline_time(replace(last, kernels=1), "bf16", gpu)

    assert last.kernels == 8
    assert roofline_time(last, "bf16", gpu) - together == 7 * gpu.kernel_latency


def test_what_is_recorded_takes_the_host_as_long_as_a_graph() -> None:
    job = job_of("flex", recorded=("attention", "router"))

    work = layer(job)
    places = [place for place, item in enumerate(work.forward) if isinstance(item, Level)]

    assert len(places) == 1  # the host waits for the tokens of each expert, forward alone
    assert not any(isinstance(item, Level) for item in work.backward)
    assert {host_time(each, job) for each in kernels(work.forward[: places[0]])} == {KERNEL_LAUNCH["graph"]}
    assert all(host_time(each, job) >= KERNEL_LAUNCH["eager"] for each in kernels(work.forward[places[0] :]))


@pytest.mark.parametrize(("count", "chosen", "ranks"), [(4, 2, 2), (8, 3, 4), (8, 2, 8), (6, 2, 1)])
def test_a_token_goes_once_to_each_rank_that_has_its_experts(count: int, chosen: int, ranks: int) -> None:
    model = make_model("mixtral-8x7b", experts={"count": count, "per_token": chosen})
    each = count // ranks
    choices = [len({expert // each for expert in choice}) for choice in combinations(range(count), chosen)]

    sent = {
        kernels: copies(make_job(model, data=ranks, expert=ranks, expert_kernels=kernels))
        for kernels in ("grouped", "all-to-all", "flex", "fused")
    }

    assert sent["grouped"] == sent["all-to-all"] == chosen
    assert sent["flex"] == sent["fused"] == pytest.approx(fmean(choices))


def test_tokens_are_sorted_on_both_sides_of_an_all_to_all() -> None:
    """By local expert behind the first, by rank before the second, each way; of one expert there is nothing to sort."""
    several, one = (layer(job_of("all-to-all", expert=expert, data=expert)) for expert in (4, 8))

    for work in (several.forward, several.backward):
        assert len([each for each in kernels(work) if each.name.startswith("sort by")]) == 2
    assert not [each for each in kernels(one.forward) if each.name.startswith("sort by")]


def test_routing_takes_as_many_kernels_as_megatron_counts() -> None:
    counts = {
        kind: len(kernels(layer(job_of(kind, expert=8, data=8)).forward)) for kind in ("grouped", "all-to-all", "flex")
    }

    more = {kind: count - counts["grouped"] for kind, count in counts.items()}
    assert more == {"grouped": 0, "all-to-all": 31 - 3, "flex": 17 - 3}


def test_kernels_of_pytorch_that_route_take_less_of_the_host_than_those_of_transformer_engine() -> None:
    job = job_of("all-to-all", expert=8, data=8, launch="transformer-engine")
    work = layer(job)

    for way in (work.forward, work.backward):
        times = [host_time(each, job) for each in kernels(way) if each.name == "count tokens"]
        assert set(times) == {round(37.1 / 99.7 * 75 * US)}
        assert len(times) == 31 - 3


def test_fused_experts_leave_out_what_lies_between_their_products() -> None:
    apart, fused = (layer(job_of(kind, products="fp8")) for kind in ("grouped", "fused"))

    for ours, theirs in ((fused.forward, apart.forward), (fused.backward, apart.backward)):
        assert len(kernels(theirs)) - len(kernels(ours)) == 2  # activation, and quantisation of what it gives
        assert sum(each.flops for each in kernels(ours)) == sum(each.flops for each in kernels(theirs))
    assert fused.stored == apart.stored


@pytest.mark.parametrize(("expert", "load"), [(1, 1), (2, 2), (4, 3), (8, 3)])
def test_a_rank_has_no_more_tokens_than_there_are(expert: int, load: int) -> None:
    even, uneven = (
        layer(job_of("grouped", data=8, expert=expert, expert_imbalance=imbalance)) for imbalance in (1.0, 3.0)
    )

    rows = [
        [each.shape[0] * each.shape[1] for each in kernels(work.forward) if each.shape and each.name == "experts up"]
        for work in (even, uneven)
    ]
    assert [load * each for each in rows[0]] == rows[1]


def test_a_dispatcher_sends_the_busiest_rank_each_token_once() -> None:
    # at most the tokens of all ranks, one copy each; NCCL's all-to-all sends a token as often as it has experts there
    sent = {}
    for how in ("flex", "grouped"):
        job = job_of(how, data=2, expert=2, expert_imbalance=2.0)
        sent[how] = {item.size for item in layer(job).forward if isinstance(item, Exchange)}
    tokens = job.micro_batch * job.sequence

    assert sent["flex"] == {2 * tokens * 4096 * 2}
    assert sent["grouped"] == {2 * 2 * tokens * 4096 * 2}


def test_all_to_alls_of_another_micro_batch_go_on_beside_both_halves(gpu: Gpu) -> None:
    job = job_of("grouped", expert_overlap=True)
    work, plain = layer(job), layer(job_of("grouped"))

    for ours, theirs in ((work.forward, plain.forward), (work.backward, plain.backward)):
        kinds = [type(item) for item in ours if not isinstance(item, Operation)]
        assert kinds == [Exchange, Wait, Exchange, Wait]
        assert [item.size for item in ours if isinstance(item, Exchange)] == [
            item.size for item in theirs if isinstance(item, Exchange)
        ]
        nodes = [item for item in kernels(ours) if not item.kernels]
        assert [item for item in kernels(ours) if item.kernels] == kernels(theirs)
        assert sum(host_time(item, job) for item in nodes) == pytest.approx(4 * 4.3 * job.kernel_launch)
        assert all(roofline_time(item, job.precision, gpu) == 0 for item in nodes)
    assert kernels(layer(job_of("grouped", expert_overlap=True, launch="graph")).forward) == kernels(
        layer(job_of("grouped", launch="graph")).forward
    )


def test_kernels_slow_by_the_bytes_of_all_to_alls_beside_them(gpu: Gpu) -> None:
    """Four of a layer's in both of two pairs of passes, 3/4 of whose bytes each rank sends over NVLink."""
    slow = gpu.model_copy(update={"overlap_slowdown": 1.19})
    job = job_of("grouped", kernel_launch="0us", expert_overlap=True, micro_batches=3)
    size = next(item.size for item in layer(job).forward if isinstance(item, Exchange))

    ops = [JobPlan(job, each, links=Links(500e9)).program().ops for each in (gpu, slow)]
    busy = [int(each["duration"][each["rank"] == 0].sum()) for each in ops]

    extra = 2 * 32 * 4 * 0.19 / HIDDEN * 0.75 * size / 500e9 * PS_PER_S
    assert busy[1] - busy[0] == pytest.approx(extra, rel=1e-3)


def test_the_first_forward_and_the_last_backward_pass_have_no_other_micro_batch_beside_them(gpu: Gpu) -> None:
    program = JobPlan(job_of("grouped", expert_overlap=True, micro_batches=3), gpu).program()
    sent = program.ops[(program.ops["rank"] == 0) & (program.ops["kind"] == COLLECTIVE)]
    sent = sent[[program.calls[call].dimension == "expert" for call in sent["call"].tolist()]]

    beside = Counter((sent["stream"] == OVERLAPPED_STREAM).tolist())

    assert beside == {False: 4 * 32, True: 2 * 4 * 32}  # four of each of 32 layers in a pair of passes


def added(changed: Job, plain: Job, way: str) -> int:
    """Bytes that kernels of a layer move more than those of another job."""
    return sum(
        sum(each.traffic for each in kernels(getattr(layer(job), way))) * sign
        for job, sign in ((changed, 1), (plain, -1))
    )


@pytest.mark.slow
def test_biases_and_limits_are_kernels_unless_products_are_fused() -> None:
    for how in ("all-to-all", "flex", "fused"):
        plain = job_of(how, data=1, expert=1)
        experts = plain.model.experts
        assert experts is not None
        clamped = plain.model.model_copy(update={"experts": experts.model_copy(update={"clamped": True})})
        changed = plain.model_copy(update={"model": clamped})
        rows = 2 * 512 * plain.micro_batch
        inner, hidden = experts.feed_forward or plain.model.feed_forward or 0, plain.model.hidden
        # the product, its sum, their joint rows, which fp32 rounds; gradients of rows, weights and biases
        there, back = (4 + 10 + 8 + 6, 6 + 6 + 12 + 12 + 4) if how == "flex" else (2 * 6, 2 * 8)
        forward, backward = rows * (2 * 8 * inner + there * hidden), rows * (2 * 10 * inner + back * hidden)
        expected = (0, 0) if how == "fused" else (forward, backward)
        assert (added(changed, plain, "forward"), added(changed, plain, "backward")) == expected
        waits = [sum(isinstance(item, Level) for item in layer(job).forward) for job in (plain, changed)]
        assert waits == ([0, 0] if how == "fused" else [1, 2])


def test_a_router_in_fp32_turns_its_input_and_the_gradient_of_that() -> None:
    plain = job_of("flex", data=1, expert=1)
    experts = plain.model.experts
    assert experts is not None
    wide = experts.model_copy(update={"router_precision": "fp32"})
    changed = plain.model_copy(update={"model": plain.model.model_copy(update={"experts": wide})})
    tokens, hidden, count = 512 * plain.micro_batch, plain.model.hidden, experts.count

    assert added(changed, plain, "forward") == 2 * tokens * count
    products = 2 * (2 * tokens * count + tokens * hidden + tokens * hidden + hidden * count)
    accumulated = hidden * count * (4 + 2 if plain.fused_accumulation else 0)
    assert added(changed, plain, "backward") - 2 * tokens * hidden * (2 + 4) - products == accumulated


def test_a_router_of_a_job_in_fp32_is_in_fp32_anyhow() -> None:
    plain = job_of("flex", data=1, expert=1, precision="fp32")
    experts = plain.model.experts
    assert experts is not None
    wide = experts.model_copy(update={"router_precision": "fp32"})

    assert layer(plain.model_copy(update={"model": plain.model.model_copy(update={"experts": wide})})) == layer(plain)


def test_activations_of_experts_are_kept_or_repeated() -> None:
    kept, repeated = (job_of("flex", data=1, expert=1, recompute=how) for how in ("none", "expert-activation"))
    experts = kept.model.experts
    assert experts is not None
    elements = 2 * 512 * kept.micro_batch * (experts.feed_forward or kept.model.feed_forward or 0)

    assert layer(kept).forward == layer(repeated).forward
    assert added(repeated, kept, "backward") == 3 * 2 * elements  # both halves and what they give
    assert layer(kept).stored - layer(repeated).stored == 2 * elements


def test_heads_of_queries_and_keys_have_norms() -> None:
    plain = job_of("flex", data=1, expert=1)
    changed = plain.model_copy(update={"model": plain.model.model_copy(update={"head_norm": True})})
    model = plain.model
    elements = 512 * plain.micro_batch * model.hidden // model.heads * (model.heads + (model.kv_heads or model.heads))

    assert added(changed, plain, "forward") == 2 * 2 * elements
    assert added(changed, plain, "backward") == 5 * 2 * elements


def test_scaled_positions_are_kernels_of_their_own() -> None:
    plain = job_of("flex", data=1, expert=1)
    changed = plain.model_copy(update={"model": plain.model.model_copy(update={"yarn": True})})
    model = plain.model
    elements = 512 * plain.micro_batch * model.hidden // model.heads * (model.heads + (model.kv_heads or model.heads))

    assert added(changed, plain, "forward") == (12 - 2) * 2 * elements
    assert added(changed, plain, "backward") == (17 - 2) * 2 * elements


def test_whole_experts_have_the_tokens_of_their_own_ranks_and_no_gathers() -> None:
    degrees = {"tensor": 2, "data": 4, "sequence_parallel": True, "expert": 8, "micro_batch": 2}
    split, whole = job_of("grouped", **degrees | {"expert": 4}), job_of("grouped", **degrees, expert_tensor=1)

    found = {name: layer(job).forward for name, job in (("split", split), ("whole", whole))}
    shapes = {
        name: {each.name: each.shape for each in kernels(items) if each.name.startswith("experts")}
        for name, items in found.items()
    }
    rows = 2 * 512 * 2  # of two sequences, two experts for each token
    assert shapes["split"] == {
        "experts up": (2, rows // 2, 4096, 2 * 14336 // 2),
        "experts down": (2, rows // 2, 14336 // 2, 4096),
    }
    assert shapes["whole"] == {
        "experts up": (1, rows // 2, 4096, 2 * 14336),
        "experts down": (1, rows // 2, 14336, 4096),
    }
    sent = [[item for item in items if isinstance(item, Exchange)] for items in found.values()]
    assert [item.size for each in sent for item in each if item.collective == "all_to_all"] == [rows * 4096] * 4
    large = [[item for item in each if item.dimension == "tensor" and item.size == rows * 4096 * 2] for each in sent]
    assert [len(each) for each in large] == [2, 0]


@pytest.mark.parametrize(("experts", "per_token", "parts"), [(8, 2, 2), (8, 3, 4), (6, 1, 3), (4, 2, 1)])
def test_a_token_goes_to_the_parts_that_hold_its_experts(experts: int, per_token: int, parts: int) -> None:
    each = experts // parts
    found = [len({expert // each for expert in chosen}) for chosen in combinations(range(experts), per_token)]

    assert TokenRouting(experts, per_token).copies(parts) == pytest.approx(fmean(found))


def test_a_dispatcher_sends_a_token_once_to_each_host_and_on_from_there(gpu: Gpu) -> None:
    job = job_of("flex", data=8, expert=8)
    hosts = tuple(rank // 4 for rank in range(8))
    near, far = (JobPlan(job, gpu, Links(400e9, each)).program() for each in ((0,) * 8, hosts))

    def sent(program: Program) -> set[tuple[tuple[int, ...], int]]:
        return {(call.ranks, call.size) for call in program.calls if call.dimension == "expert"}

    ((everyone, size),) = sent(near)
    routing = TokenRouting(8, 2)
    assert everyone == tuple(range(8))
    rail = round(size * routing.copies(2) / routing.copies(8))
    assert sent(far) == {(ranks, size) for ranks in ((0, 1, 2, 3), (4, 5, 6, 7))} | {
        ((rank, rank + 4), rail) for rank in range(4)
    }


@pytest.mark.parametrize(
    ("kernels", "hosts", "groups"),
    [
        ("all-to-all", (0, 0, 0, 0, 1, 1, 1, 1), 1),  # NCCL's sends each copy
        ("flex", tuple(range(8)), 1),  # one rank on each host: once to each rank is once to each host
        ("flex", (0, 0, 0, 1, 1, 1, 1, 1), 1),  # not evenly spread
        ("flex", (), 1),
        ("flex", (0, 0, 1, 1, 2, 2, 3, 3), 6),
    ],
)
def test_only_several_ranks_on_each_of_several_hosts_share_what_is_sent(
    gpu: Gpu, kernels: str, hosts: tuple[int, ...], groups: int
) -> None:
    plan = JobPlan(job_of(kernels, data=8, expert=8), gpu, Links(400e9, hosts))

    assert len({call.ranks for call in plan.program().calls if call.dimension == "expert"}) == groups


@pytest.mark.slow
def test_what_goes_to_a_host_crosses_its_adapters_once() -> None:
    settings = ["job.model={ include = 'mixtral-8x7b', layers = 2 }", "job.model.experts.count=16", "cluster.hosts=2"]
    settings += ["job.parallelism={ context = 1, data = 16, expert = 16 }", "job.global_batch=16"]
    times = {}
    for kernels in ("all-to-all", "flex"):
        result = simulate(load("recipes", [*settings, f"job.expert_kernels={kernels}"]))
        times[kernels] = result.summary()["breakdown_s"]["exposed_communication"]["expert"]

    # of 2 copies half goes to the other host, or one copy if any of its 8 experts of 16 is chosen
    assert times["flex"] / times["all-to-all"] == pytest.approx(1 - comb(8, 2) / comb(16, 2), rel=0.03)


def test_what_pytorch_adds_up_by_token_takes_longer_than_what_one_kernel_does(gpu: Gpu) -> None:
    """Each row is added up by itself, forward and back, and its weight and their gradients are kernels of their own."""
    together, apart = (layer(job_of(each, expert=8, data=8)) for each in ("all-to-all", "unfused"))

    for way in ("forward", "backward"):
        one, many = (
            [each for each in kernels(getattr(work, way)) if each.name.startswith(("order by", "weight and"))]
            for work in (together, apart)
        )
        assert sum(roofline_time(each, "bf16", gpu) for each in one) < sum(
            roofline_time(each, "bf16", gpu) for each in many
        )
    assert together.stored == apart.stored
    assert [item for item in together.forward if isinstance(item, Exchange)] == [
        item for item in apart.forward if isinstance(item, Exchange)
    ]


@pytest.mark.parametrize(("tensor", "expert"), [(1, 1), (1, 4), (2, 1), (2, 2)])
def test_experts_one_after_another_take_slices_and_fill_a_buffer(tensor: int, expert: int) -> None:
    """Bytes by operation of ``SequentialMLP`` of Megatron-core 0.8 and by autograd's rules for slices."""
    degrees = {"tensor": tensor, "sequence_parallel": tensor > 1, "expert": expert, "data": expert}
    work = layer(job_of("unfused", **degrees))
    names = ("zeros", "result into", "gradient of", "add gradients of", "order by width")
    size, experts = 2 * 2 * 512 * 2 * 4096, 8 // expert  # two experts for each of 512 tokens of two sequences, in bf16
    width = 2 * (2 + 2) * size * (tensor > 1)  # read and written at both exchanges of tensor-parallel ranks

    forward, backward = (
        sum(each.traffic for each in kernels(items) if each.name.startswith(names))
        for items in (work.forward, work.backward)
    )

    assert forward + backward == 3 * size + (6 * experts + 4) * size + width


@pytest.mark.parametrize("kernels", ["all-to-all", "unfused"])
def test_experts_padded_to_their_capacity_have_as_many_tokens_each_and_no_wait_for_their_count(kernels: str) -> None:
    jobs = [
        job_of(kernels, **settings)
        for settings in (
            {},
            {"capacity_factor": 1.0, "pad_to_capacity": True},
            {"capacity_factor": 1.5, "pad_to_capacity": True},
        )
    ]
    plain, exact, padded = map(layer, jobs)

    assert [sum(isinstance(item, Level) for item in each.forward) for each in (plain, exact, padded)] == [1, 0, 0]
    assert exact.stored == plain.stored < padded.stored
    for names in (("experts up", "experts down"), ("order by expert", "weight and add up")):
        moved, same, more = (
            sum(each.flops + each.traffic for each in kernels_named(work, names)) for work in (plain, exact, padded)
        )
        assert same == moved
        assert more > 1.2 * moved
    flops = [sum(each.flops for each in kernels_named(work, ("experts",))) for work in (plain, padded)]
    assert flops[1] == pytest.approx(1.5 * flops[0])
    assert model_flops(jobs[2]) == model_flops(jobs[0])  # padding is no work of the model


def kernels_named(work: Work, starts: tuple[str, ...]) -> list[Operation]:
    return [each for each in kernels(work.forward + work.backward) if each.name.startswith(starts)]


def test_rows_added_up_atomically_take_as_long_as_they_were_measured() -> None:
    """Two of 4,096 elements for each of 2,048 tokens, on H200: 0.20 ms (tile-ai/TileOPs, pull request 608)."""
    moved, own, hidden = 2 * 2048, 2048, 4096
    gpu = load("recipes", ["cluster.gpu.include=h200-sxm"]).scenario.cluster.gpu
    rows = Operation("weight and add up", 0, 2 * (moved + own) * hidden, kernel="scatter")

    assert roofline_time(rows, "bf16", gpu) == pytest.approx(200 * US, rel=0.05)
