"""What a program sends equals the closed formulas, for random shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.run.pipeline import build_plan, load
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job, Model
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.links import Links
from fabricsim.workload.shapes import parameters
from fabricsim.workload.tally import Volume, Volumes, plan_calls, tally
from fabricsim.workload.volumes import closed_forms
from tests.reference.jobs import make_job, make_model
from tests.reference.program_calls import program_calls

SHAPES = settings(max_examples=30)


@st.composite
def models(draw: st.DrawFn, layers: int, families: tuple[str, ...]) -> dict[str, Any]:
    """Small transformers whose layers `layers` divides, and whose heads and widths 4 does."""
    family = draw(st.sampled_from(families))
    heads = draw(st.sampled_from([4, 8]))
    table = {
        "name": "small",
        "family": family,
        "layers": layers * draw(st.integers(1, 3)),
        "hidden": 8 * heads,
        "heads": heads,
        "vocabulary": 128 * draw(st.integers(1, 4)),
        "positions": 256,
        "tied_embedding": draw(st.booleans()),
    }
    if family == "t5":
        return {**table, "decoder_layers": table["layers"], "tied_embedding": True}
    return {**table, "kv_heads": 4, "feed_forward": 96} if family == "llama" else table


@st.composite
def jobs(
    draw: st.DrawFn, families: tuple[str, ...] = ("gpt", "bert", "t5", "llama"), **degrees: st.SearchStrategy[Any]
) -> dict[str, Any]:
    """Jobs with drawn degrees of parallelism; batches and sequences follow."""
    drawn = {name: draw(strategy) for name, strategy in degrees.items()}
    stages = drawn.get("pipeline", 1) * drawn.get("virtual_stages", 1)
    model = draw(models(stages, families))
    batch, batches = draw(st.integers(1, 3)), draw(st.integers(1, 3)) * drawn.get("pipeline", 1)
    table = {
        "model": model,
        "parallelism": drawn,
        "micro_batch": batch,
        "global_batch": batch * batches * drawn.get("data", 1),
        "sequence": 32 * draw(st.integers(1, 3)),
        "precision": draw(st.sampled_from(["fp16", "bf16"])),
        "gradient_precision": draw(st.sampled_from([None, "fp32"])),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
    }
    return {**table, "decoder_sequence": 32} if model["family"] == "t5" else table


OVERLAPS = st.fixed_dictionaries(
    {"overlap": st.sampled_from(["none", "ddp"]), "bucket": st.sampled_from(["2KiB", "1MiB"])}
)


def both(table: dict[str, Any], gpu: Gpu, per_host: int | None = None) -> tuple[Volumes, Volumes]:
    """Volumes of a job as its program has them, and by the formulas; on hosts of so many GPUs, if it is given."""
    job = Job.model_validate(table)
    hosts = () if per_host is None else tuple(rank // per_host for rank in range(job.parallelism.ranks))
    plan = JobPlan(job, gpu, Links(400e9, hosts))
    program = tally(program_calls(plan.program()))
    assert tally(plan_calls(plan)) == program
    return program, tally(closed_forms(plan.job, plan.placement.expert_hosts))


def agree(table: dict[str, Any], gpu: Gpu, per_host: int | None = None) -> Volumes:
    """Check that both are the same; what they are."""
    program, formula = both(table, gpu, per_host)
    assert program == formula
    return program


@pytest.mark.slow
@SHAPES
@given(table=jobs(data=st.integers(1, 6), pipeline=st.integers(1, 4)), overlap=OVERLAPS)
def test_data_and_pipeline_parallelism(table: dict[str, Any], overlap: dict[str, Any], gpu: Gpu) -> None:
    agree({**table, **overlap}, gpu)


@pytest.mark.slow
@SHAPES
@given(table=jobs(data=st.integers(2, 5), pipeline=st.integers(1, 2), zero=st.integers(1, 2)), overlap=OVERLAPS)
def test_zero_1_and_2(table: dict[str, Any], overlap: dict[str, Any], gpu: Gpu) -> None:
    assert {("data", "reduce_scatter"), ("data", "all_gather")} <= set(agree({**table, **overlap}, gpu))


@pytest.mark.slow
@SHAPES
@given(table=jobs(data=st.integers(2, 5), pipeline=st.integers(1, 2), zero=st.just(3)), prefetch=st.integers(1, 3))
def test_zero_3(table: dict[str, Any], prefetch: int, gpu: Gpu) -> None:
    volumes = agree({**table, "prefetch": prefetch}, gpu)

    if table["gradient_precision"] is None:
        assert volumes["data", "all_gather"].wire == 2 * volumes["data", "reduce_scatter"].wire


@pytest.mark.slow
@SHAPES
@given(table=jobs(data=st.sampled_from([4, 6]), pipeline=st.integers(1, 2), zero=st.just(3)), replicate=st.just(2))
def test_hybrid_sharding(table: dict[str, Any], replicate: int, gpu: Gpu) -> None:
    table["parallelism"] = {**table["parallelism"], "replicate": replicate, "expert": 1}

    volumes = agree({**table, "model": {**table["model"], "experts": None}}, gpu)

    assert {("data", kind) for kind in ("all_gather", "reduce_scatter", "all_reduce")} <= set(volumes)


@pytest.mark.slow
@SHAPES
@given(table=jobs(data=st.integers(2, 5), pipeline=st.integers(1, 2), zero=st.integers(1, 3)), overlap=OVERLAPS)
def test_parameters_gathered_in_8_bits(table: dict[str, Any], overlap: dict[str, Any], gpu: Gpu) -> None:
    gpu = gpu.model_copy(update={"peak": {**gpu.peak, "fp8": 624e12}})
    if table["parallelism"]["zero"] < 3:
        table |= overlap
    narrow = agree({**table, "products": "fp8", "narrow_gathers": True}, gpu)["data", "all_gather"]

    assert narrow.wire < agree(table, gpu)["data", "all_gather"].wire


@pytest.mark.slow
@SHAPES
@given(table=jobs(data=st.integers(2, 5), pipeline=st.integers(1, 2), zero=st.just(3)))
def test_parameters_that_stay_are_gathered_once(table: dict[str, Any], gpu: Gpu) -> None:
    again = agree(table, gpu)["data", "all_gather"]
    table["parallelism"] = {**table["parallelism"], "reshard_after_forward": False}

    assert 2 * agree(table, gpu)["data", "all_gather"].wire == again.wire


@pytest.mark.slow
@SHAPES
@given(table=jobs(tensor=st.sampled_from([2, 4]), data=st.integers(1, 2), pipeline=st.integers(1, 2)))
def test_tensor_parallelism(table: dict[str, Any], gpu: Gpu) -> None:
    assert ("tensor", "all_reduce") in agree(table, gpu)


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        families=("gpt", "llama"),
        tensor=st.just(4),
        pipeline=st.integers(1, 2),
        context=st.integers(1, 2),
        sequence_parallel=st.booleans(),
    ),
    kv_heads=st.sampled_from([1, 2]),
)
def test_ranks_that_share_heads_of_keys(table: dict[str, Any], kv_heads: int, gpu: Gpu) -> None:
    table |= {"attention": "fused", "recompute": "full"}
    whole = agree(table, gpu)
    model = {**table["model"], "kv_heads": kv_heads}
    shared = agree({**table, "model": model}, gpu)

    tokens = (
        2 * table["sequence"] * table["global_batch"] // table["parallelism"]["context"]
    )  # bytes of an element each
    columns = model["hidden"] + 2 * model["hidden"] // model["heads"] * kv_heads
    wire = tokens * columns * 3 * table["parallelism"]["context"] * model["layers"]  # three other ranks have it
    nothing = Volume()
    more = {
        kind: shared["tensor", kind].wire - whole.get(("tensor", kind), nothing).wire
        for kind in ("all_gather", "reduce_scatter")
    }
    assert more == {"all_gather": 2 * wire, "reduce_scatter": wire}  # forward passes run twice


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        tensor=st.sampled_from([2, 4]),
        pipeline=st.integers(1, 2),
        data=st.integers(1, 2),
        sequence_parallel=st.just(value=True),
    ),
    product_overlap=st.booleans(),
)
def test_sequence_parallelism(table: dict[str, Any], *, product_overlap: bool, gpu: Gpu) -> None:
    table["product_overlap"] = product_overlap

    assert {("tensor", "all_gather"), ("tensor", "reduce_scatter")} <= set(agree(table, gpu))


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        families=("gpt", "bert", "llama"),
        tensor=st.sampled_from([2, 4]),
        pipeline=st.integers(1, 2),
        context=st.integers(1, 2),
        sequence_parallel=st.booleans(),
    ),
    logits=st.fixed_dictionaries(
        {
            "loss_kernels": st.sampled_from(["fused", "unfused"]),
            "predictions": st.sampled_from([None, 3, 8]),
            "products": st.sampled_from([None, "fp8", "mxfp8", "nvfp4"]),
            "narrow_logits": st.booleans(),
        }
    ),
)
def test_logits_and_their_loss(table: dict[str, Any], logits: dict[str, Any], gpu: Gpu) -> None:
    gpu = gpu.model_copy(update={"peak": {**gpu.peak, **dict.fromkeys(("fp8", "mxfp8", "nvfp4"), 624e12)}})
    logits["narrow_logits"] &= logits["products"] is not None
    if table["model"]["family"] != "bert":
        del logits["predictions"]
    agree({**table, **logits, "attention": "fused"}, gpu)


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        families=("gpt", "llama"),
        pipeline=st.integers(2, 3),
        virtual_stages=st.integers(2, 3),
        tensor=st.sampled_from([1, 2]),
        data=st.integers(1, 2),
        zero=st.just(0),
    ),
    overlap=OVERLAPS,
)
def test_interleaved_pipelines(table: dict[str, Any], overlap: dict[str, Any], gpu: Gpu) -> None:
    volumes = agree({**table, **overlap}, gpu)
    degrees = table["parallelism"]
    boundaries = degrees["pipeline"] * degrees["virtual_stages"] - 1
    micro_batches = table["global_batch"] // table["micro_batch"] // degrees["data"]
    ranks = degrees["tensor"] * degrees["data"]

    assert volumes["pipeline", "send_recv"].calls == 2 * micro_batches * boundaries * ranks


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        tensor=st.sampled_from([2, 4]),
        pipeline=st.integers(2, 3),
        data=st.integers(1, 2),
        scatter_gather=st.just(value=True),
    )
)
def test_scatter_gather_between_stages(table: dict[str, Any], gpu: Gpu) -> None:
    agree(table, gpu)


@pytest.mark.slow
@SHAPES
@given(table=jobs(pipeline=st.integers(1, 4)), schedule=st.sampled_from(["gpipe", "zb-h1"]))
def test_schedules_send_the_same(table: dict[str, Any], schedule: str, gpu: Gpu) -> None:
    assert agree({**table, "schedule": schedule}, gpu) == agree(table, gpu)


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        families=("gpt", "llama"),
        context=st.sampled_from([2, 4]),
        tensor=st.sampled_from([1, 2]),
        data=st.integers(1, 2),
        pipeline=st.integers(1, 2),
        zero=st.integers(0, 3),
        context_method=st.sampled_from(["ring", "ulysses"]),
    )
)
def test_context_parallelism(table: dict[str, Any], gpu: Gpu) -> None:
    if table["parallelism"]["context_method"] == "ulysses":
        table["parallelism"].update(context=2)  # the heads of keys are 4, and of a rank 2
    volumes = agree({**table, "attention": "fused"}, gpu)

    ring = table["parallelism"]["context_method"] == "ring"
    assert ("context", "ring_exchange" if ring else "all_to_all") in volumes


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        families=("gpt", "llama"),
        expert=st.sampled_from([1, 2, 4]),
        expert_tensor=st.sampled_from([None, 1]),
        context=st.sampled_from([1, 2]),
        data=st.just(4),
        tensor=st.sampled_from([1, 2]),
        sequence_parallel=st.booleans(),
        pipeline=st.integers(1, 2),
        zero=st.integers(0, 3),
    ),
    experts=st.fixed_dictionaries(
        {
            "count": st.sampled_from([4, 8]),
            "per_token": st.integers(1, 3),
            "shared": st.integers(0, 2),
            "dense_layers": st.integers(0, 2),
            "every": st.integers(1, 2),
        }
    ),
    load=st.fixed_dictionaries(
        {
            "expert_imbalance": st.sampled_from([1.0, 1.3]),
            "capacity_factor": st.sampled_from([None, 1.1]),
            "expert_kernels": st.sampled_from(["grouped", "flex"]),
            "hybridep_processors": st.sampled_from([None, 16]),
        }
    )
    | st.just({"capacity_factor": 1.1, "pad_to_capacity": True, "expert_kernels": "all-to-all"}),
    per_host=st.sampled_from([None, 2, 4]),
)
def test_expert_parallelism(
    table: dict[str, Any], experts: dict[str, Any], load: dict[str, Any], per_host: int | None, gpu: Gpu
) -> None:
    degrees = table["parallelism"]
    # ranks that all have the same tokens cannot send them to experts
    alike = degrees["expert"] > 1 or degrees["expert_tensor"] == 1
    degrees["sequence_parallel"] = degrees["tensor"] > 1 and (degrees["sequence_parallel"] or alike)
    experts["dense_layers"] = min(experts["dense_layers"], table["model"]["layers"] - 1)
    attention = {"attention": "fused"} if degrees["context"] > 1 else {}
    if load["expert_kernels"] != "flex" or degrees["expert"] == 1:
        load.pop("hybridep_processors", None)
    volumes = agree({**table, **load, **attention, "model": {**table["model"], "experts": experts}}, gpu, per_host)

    last = table["model"]["layers"] // experts["every"] * experts["every"]  # layer that may have experts, from 1
    mixed = last > experts["dense_layers"]
    assert (("expert", "all_to_all") in volumes) == (degrees["expert"] > 1 and mixed)


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        ("llama",),
        data=st.integers(1, 2),
        context=st.sampled_from([1, 2, 4]),
        tensor=st.sampled_from([1, 2]),
        sequence_parallel=st.booleans(),
        context_method=st.sampled_from(["ring", "ulysses"]),
    ),
    recompute=st.sampled_from(["none", "latent"]),
)
def test_latent_attention(table: dict[str, Any], recompute: str, gpu: Gpu) -> None:
    degrees, model = table["parallelism"], table["model"]
    degrees["sequence_parallel"] &= degrees["tensor"] > 1
    if degrees["context"] == 1 or degrees["context"] * degrees["tensor"] > 4:
        degrees.update(context=1)
        del degrees["context_method"]
    del model["kv_heads"]
    latent = {"query_rank": 24, "key_rank": 16, "rotary": 8}
    agree({**table, "model": {**model, "latent": latent}, "attention": "fused", "recompute": recompute}, gpu)


@pytest.mark.slow
@SHAPES
@given(
    table=jobs(
        ("llama",),
        data=st.integers(1, 3),
        tensor=st.sampled_from([1, 2]),
        sequence_parallel=st.booleans(),
        pipeline=st.integers(1, 2),
        zero=st.integers(0, 3),
    ),
    targets=st.sampled_from([("qkv",), ("qkv", "projection"), ("up", "down")]),
)
def test_adapters(table: dict[str, Any], targets: tuple[str, ...], gpu: Gpu) -> None:
    degrees = table["parallelism"]
    degrees["sequence_parallel"] &= degrees["tensor"] > 1
    if degrees["data"] == 1:
        degrees["zero"] = 0
    agree({**table, "adapters": {"rank": 4, "targets": targets}}, gpu)


def test_data_parallelism_sends_twice_the_gradients(gpu: Gpu) -> None:
    size = parameters(make_model("gpt2-medium")) * 2
    volumes = tally(program_calls(JobPlan(make_job(data=8), gpu).program()))

    assert volumes["data", "all_reduce"].wire == 2 * size * (8 - 1)
    assert volumes["data", "all_reduce"].sizes == {(8, size): 1}


def test_pipeline_sends_two_messages_per_micro_batch_and_boundary(gpu: Gpu) -> None:
    volumes = tally(program_calls(JobPlan(make_job(pipeline=4, micro_batches=5), gpu).program()))

    # b s h W of the fixture's micro-batch of 2 and sequence of 512
    assert volumes["pipeline", "send_recv"].sizes == {(2, 2 * 512 * 1024 * 2): 2 * 5 * (4 - 1)}


def one_more_layer(model: Model, gpu: Gpu, **changes: Any) -> dict[tuple[str, str], tuple[int, int]]:  # noqa: ANN401  any field
    """Calls and bytes on the wire that a further layer adds to a job of 2 micro-batches of 2 x 512 tokens."""
    found = []
    for layers in (2, 3):
        job = make_job(model.model_copy(update={"layers": layers, "vocabulary": 50304}), global_batch=4, **changes)
        found.append(tally(program_calls(JobPlan(job, gpu).program())))
    fewer, more = found
    return {
        key: (more[key].calls - fewer[key].calls, more[key].wire - fewer[key].wire)
        for key in more
        if more[key] != fewer[key]
    }


ACTIVATIONS = 2 * 512 * 1024 * 2
"""Bytes b s h W of the fixture's micro-batch, and of the hidden size of GPT-2 medium."""


@pytest.mark.parametrize(("recompute", "calls"), [("none", 4), ("full", 6)])
def test_tensor_parallelism_as_published(gpu: Gpu, recompute: str, calls: int) -> None:
    # Narayanan et al., section 3.2: per layer and micro-batch 8 b s h (t - 1) / t elements and rank, in 4 calls
    split = {"tensor": 4, "recompute": recompute}
    added = one_more_layer(make_model("gpt2-medium"), gpu, **split)

    wire = 2 * calls * ACTIVATIONS * 3 // 4 * 4  # of all 4 ranks
    assert added == {("tensor", "all_reduce"): (2 * calls, 2 * wire)}


def test_sequence_parallelism_sends_as_much_but_for_gathering_again(gpu: Gpu) -> None:
    # Korthikanti et al., section 4.2.2: an all-reduce is a reduce-scatter and an all-gather
    model = make_model("gpt2-medium")
    whole = one_more_layer(model, gpu, tensor=4, recompute="none")["tensor", "all_reduce"]
    split = one_more_layer(model, gpu, tensor=4, sequence_parallel=True, recompute="none")

    assert split["tensor", "reduce_scatter"] == (2 * 4, whole[1] // 2)
    assert split["tensor", "all_gather"] == (2 * (4 + 2), whole[1] // 2 * 6 // 4)


def test_ring_attention_passes_keys_and_values_on(gpu: Gpu) -> None:
    # Liu et al.: c - 1 times forward; backward with their gradients, which take a step more to come home
    fused = {"context": 4, "attention": "fused", "recompute": "none"}
    added = one_more_layer(make_model("gpt2-medium"), gpu, **fused)

    blocks = 2 * ACTIVATIONS  # keys and values of all ranks
    assert added["context", "ring_exchange"] == (2 * (3 + 4), 2 * blocks * (3 + 3 + 3))


def test_ulysses_trades_query_key_value_and_result(gpu: Gpu) -> None:
    fused = {"context": 4, "context_method": "ulysses", "attention": "fused", "recompute": "none"}
    added = one_more_layer(make_model("gpt2-medium"), gpu, **fused)

    assert added["context", "all_to_all"] == (2 * 4 * 2, 2 * 4 * 2 * ACTIVATIONS * 3 // 4)


def test_experts_take_four_exchanges_per_layer(gpu: Gpu) -> None:
    model = make_model("gpt2-medium", experts={"count": 8, "per_token": 2})
    added = one_more_layer(model, gpu, data=2, expert=2, recompute="none")

    # one micro-batch on each of 2 ranks; each hands in 2 copies of its tokens, and keeps half of them
    assert added["expert", "all_to_all"] == (4, 4 * 2 * ACTIVATIONS)


@pytest.mark.parametrize(("zero", "ratio"), [(1, 1.0), (2, 1.0), (3, 1.5)])
def test_zero_against_data_parallelism_as_published(gpu: Gpu, zero: int, ratio: float) -> None:
    # Rajbhandari et al., section 7; 1 and 2 send the same, and 3 half as much again
    sent = [
        sum(
            volume.wire
            for volume in tally(program_calls(JobPlan(make_job(data=8, zero=stage), gpu).program())).values()
        )
        for stage in (0, zero)
    ]
    assert sent[1] / sent[0] == pytest.approx(ratio, rel=1e-3)  # what is shared out is padded


@pytest.mark.slow
@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.parametrize(("expert", "copies"), [(1, 4), (2, 2), (4, 1)])
def test_gradients_of_whole_experts_are_reduced_without_data_parallelism(expert: int, copies: int, zero: int) -> None:
    """Tensor-parallel ranks that hold the same experts have had other tokens."""
    degrees = {"data": 1, "tensor": 4, "sequence_parallel": True, "expert": expert, "expert_tensor": 1, "zero": zero}
    if copies == 1:
        degrees["zero"] = 0  # nobody to share with
    changes = {
        "cluster": {"include": "dgx-a100", "hosts": 1, "gpus_per_host": 4, "nics_per_host": 4},
        "fabric": "single-switch",
        "job": {
            "model": {"include": "mixtral-8x7b", "layers": 1},
            "micro_batch": 1,
            "global_batch": 1,
            "sequence": 512,
            "parallelism": degrees,
        },
    }
    program = build_plan(load("gpt2-medium-dp", changes)).program(None)
    found = [call for call in program.calls if call.dimension == "data"]

    elements = 8 // expert * 3 * 4096 * 14336
    assert {len(call.ranks) for call in found} == ({copies} if copies > 1 else set())
    reduced = sum(call.size for call in found if call.collective != "all_gather")
    assert reduced == (elements * 2 * 4 // copies if copies > 1 else 0)
