from __future__ import annotations

import re

import pytest

from fabricsim.errors import ScenarioError
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario

DP = "gpt2-medium-dp"
PP = "gpt2-medium-pp"
T5 = "t5-base-dp"
TREE = ("fabric={ topology = 'fat-tree' }",)
LEAVES = ("fabric={ topology = 'leaf-spine', hosts_per_leaf = 4, spines = 2 }",)
CABLES = (f"fabric={{ topology = 'file', links = {__file__!r} }}",)  # any regular file will do
ALONE = ("job.parallelism.data=1",)
TENSOR = "job.parallelism={{ data = 1, tensor = {} }}"
CONTEXT = "job.parallelism={{ data = 1, context = {} }}"
WHOLE = "data = 1, tensor = 4, sequence_parallel = true, expert_tensor = 1"
FOUR = ("job.model.experts={ count = 4 }",)
PADDED = (*FOUR, "job.pad_to_capacity=true")
IDEAL = ("cluster=ideal",)
TWO = ("cluster.ethernet_nic=intel-10gbe",)
EIGHT = ("cluster.gpus_per_host=8", "cluster.nics_per_host=8")
NVLINK = ("cluster.gpu=a100-sxm-80gb", "cluster.intra_host=nvlink")
HKBU = "hkbu"  # has two adapters and no job

REFUSED = [
    (
        DP,
        ["job.parallelism.data=16", "job.global_batch=128"],
        "job.parallelism",
        "the group is larger than the cluster",
    ),
    (DP, ["cluster.hosts=2000000"], "cluster.hosts", "the cluster has 2000000 GPUs, more than 1048576"),
    (DP, ["cluster.hosts=800000", *TREE], "cluster.hosts", "the fat-tree fabric of 800000 hosts has 24"),
    (DP, ["cluster.hosts=10001", "engine=packet"], "cluster.hosts", "give a switch of the single-switch fabric 10001 "),
    (DP, ["job.global_batch=65"], "job.global_batch", "65 is no multiple of micro_batch 8 x data 8"),
    (DP, [*ALONE, "job.micro_batch=1", "job.global_batch=20000000"], "job.global_batch", "more than 1000000 micro-"),
    (PP, ["job.parallelism.pipeline=7"], "job.parallelism.pipeline", "24 layers cannot be shared evenly by 7 stages"),
    (
        PP,
        ["job.global_batch=32", "job.model.layers=5", "job.parallelism={ data = 1, pipeline = 4, virtual_stages = 2 }"],
        "job.parallelism.pipeline",
        "5 layers cannot be shared evenly by 4 stages of 2 chunks",  # two would have nothing
    ),
    (
        T5,
        ["job.parallelism={ data = 1, pipeline = 7 }"],
        "job.parallelism.pipeline",
        "12 encoder and 12 decoder layers cannot",
    ),
    (DP, ["job.model.decoder_layers=4"], "job.model.decoder_layers", "a gpt has no separate decoder"),
    (DP, ["job.decoder_sequence=4"], "job.decoder_sequence", "a gpt has no separate decoder"),
    (DP, ["job.model=t5-base", "job.sequence=512"], "job.decoder_sequence", "a t5 has a decoder"),
    (DP, ["job.sequence=1025"], "job.sequence", "1025 is longer than the 1024 positions"),
    (DP, ["job.predictions=20"], "job.predictions", "a gpt has logits of all tokens"),
    (DP, [*FOUR, "job.recompute=feed-forward"], "job.recompute", "all layers of 'gpt2-medium' have experts alone"),
    ("bert-large-dp", ["job.predictions=513"], "job.predictions", "513 is more than the 512 tokens of a sequence"),
    (T5, ["job.decoder_sequence=513"], "job.decoder_sequence", "513 is longer than the 512 positions"),
    (DP, ["job.model.heads=15"], "job.model.heads", "hidden 1024 is no multiple of 15 heads"),
    (DP, ["job.model.kv_heads=3"], "job.model.kv_heads", "3 does not divide 16 heads"),
    (T5, ["job.model.kv_heads=2"], "job.model.kv_heads", "a t5 has as many as heads"),
    ("recipes", ["job.model=kimi-k2", "job.model.head_norm=true"], "job.model.head_norm", "has no effect"),
    ("recipes", ["job.model=kimi-k2", "job.model.yarn=true"], "job.model.yarn", "has no effect"),
    (DP, ["job.model.yarn=true"], "job.model.yarn", "has no effect in a gpt"),
    (DP, [TENSOR.format(3)], "job.parallelism.tensor", "3 does not divide job.model.heads, 16"),
    (DP, [TENSOR.format(2), "job.model.vocabulary=50257"], "job.parallelism.tensor", "job.model.vocabulary, 50257"),
    (
        DP,
        [TENSOR.format(4), "job.model.heads=24", "job.model.head_width=64", "job.model.kv_heads=6"],
        "job.parallelism.tensor",
        "4 neither divides job.model.kv_heads, 6, nor is a multiple of it",
    ),
    (DP, [TENSOR.format(2), "job.model.feed_forward=4097"], "job.parallelism.tensor", "job.model.feed_forward, 4097"),
    (DP, ["job.parallelism.sequence_parallel=true"], "job.parallelism.sequence_parallel", "no effect: tensor is 1"),
    (
        DP,
        [TENSOR.format("2, sequence_parallel = true"), "job.tensor_overlap=false"],
        "job.tensor_overlap",
        "the input's gradient is reduced beside the weight's",
    ),
    (DP, ["job.product_overlap=true"], "job.product_overlap", "which only sequence parallelism has"),
    (DP, [TENSOR.format(2), "job.product_overlap=true"], "job.product_overlap", "which only sequence parallelism has"),
    (DP, ["job.optimizer=tensors", "job.parallelism.zero=1"], "job.optimizer", "a rank has a share of all"),
    (DP, ["job.elementwise=separate", "job.model=llama2-7b"], "job.elementwise", "not of a llama"),
    (
        DP,
        ["job.flatten_gradients=true", "job.overlap=ddp"],
        "job.flatten_gradients",
        "which overlap and zero do not have",
    ),
    (
        DP,
        [TENSOR.format("2, sequence_parallel = true"), "job.sequence=1023"],
        "job.sequence",
        "1023 is no multiple of tensor 2 x context 1",
    ),
    (DP, [CONTEXT.format(3), "job.attention=fused"], "job.sequence", "1024 cannot be cut into 6 equal parts"),
    (DP, [CONTEXT.format(2)], "job.attention", "cannot merge the partial results of ring attention"),
    (
        DP,
        [CONTEXT.format("4, context_method = 'ulysses'"), "job.model.kv_heads=2"],
        "job.parallelism.context",
        "Ulysses cannot spread 2 key and value heads",
    ),
    (T5, [CONTEXT.format(2)], "job.parallelism.context", "a t5 cannot be split along its sequences"),
    (DP, ["job.parallelism.expert=2"], "job.parallelism.expert", "no effect: the model 'gpt2-medium' has no experts"),
    (DP, ["jobs={}"], "jobs", "has no effect: it names no job"),
    (DP, ["job.capacity_factor=1.25"], "job.capacity_factor", "no effect: the model 'gpt2-medium' has no experts"),
    (DP, ["job.expert_imbalance=1.25"], "job.expert_imbalance", "no effect: the model 'gpt2-medium' has no experts"),
    (DP, ["job.expert_kernels=flex"], "job.expert_kernels", "no effect: the model 'gpt2-medium' has no experts"),
    (DP, ["job.pad_to_capacity=true"], "job.pad_to_capacity", "no effect: the model 'gpt2-medium' has no experts"),
    (
        DP,
        [*PADDED, "job.expert_kernels=all-to-all"],
        "job.pad_to_capacity",
        "there is no job.capacity_factor to pad to",
    ),
    (DP, [*PADDED, "job.capacity_factor=1"], "job.pad_to_capacity", "have no host that waits for counts"),
    (
        DP,
        [*PADDED, "job.capacity_factor=1", "job.expert_kernels=flex"],
        "job.pad_to_capacity",
        "'flex' kernels are not padded",
    ),
    (
        DP,
        [*PADDED, "job.capacity_factor=1", "job.expert_kernels=all-to-all", "job.expert_imbalance=1.5"],
        "job.expert_imbalance",
        "no effect: job.pad_to_capacity gives all experts the same number of tokens",
    ),
    (
        DP,
        [*FOUR, "job.precision=fp16", "job.model.experts.router_precision=bf16"],
        "job.model.experts.router_precision",
        "the job is in fp16, and its router, too",
    ),
    (DP, ["job.dropout=false", "job.elementwise=operators"], "job.dropout", "kernels have dropout in any case"),
    (DP, ["job.padded_experts=true"], "job.padded_experts", "no effect: the model 'gpt2-medium' has no experts"),
    (DP, [*FOUR, "job.padded_experts=true"], "job.padded_experts", "products of experts are in 16 bits"),
    (DP, ['job.recorded=["router"]'], "job.recorded", "no effect: the model 'gpt2-medium' has no experts"),
    (DP, ['job.recorded=["attention"]', "job.launch=graph"], "job.recorded", "with launch = 'graph' all is recorded"),
    (DP, [*FOUR, "job.expert_kernels=flex", "job.launch=graph"], "job.expert_kernels", "'flex' needs the host"),
    (DP, ["job.expert_overlap=true"], "job.expert_overlap", "experts have no all-to-alls"),
    (DP, ["job.model.experts={ count = 4, per_token = 5 }"], "job.model.experts.per_token", "more than the 4 experts"),
    (
        DP,
        ["job.model.experts={ count = 6, per_token = 2 }", "job.expert_imbalance=3.1"],
        "job.expert_imbalance",
        "3.1 times the even share is more tokens than there are",
    ),
    (
        DP,
        ["job.model.experts={ count = 4, dense_layers = 25 }"],
        "job.model.experts.dense_layers",
        "25 is more than the 24 layers",
    ),
    (T5, ["job.model.experts={ count = 4 }"], "job.model.experts", "no effect in a t5"),
    (DP, [*FOUR, "job.parallelism.expert=8"], "job.parallelism.expert", "4 experts cannot be shared evenly by 8"),
    (
        DP,
        ["job.model.experts={ count = 6 }", "job.parallelism.expert=3"],
        "job.parallelism.expert",
        "3 does not divide the data-parallel degree, 8",
    ),
    (DP, ["job.parallelism.expert_tensor=1"], "job.parallelism.expert_tensor", "model 'gpt2-medium' has no experts"),
    (
        DP,
        [*FOUR, "job.parallelism={ data = 2, tensor = 4, sequence_parallel = true, expert_tensor = 2 }"],
        "job.parallelism.expert_tensor",
        "2: experts are whole or split by all 4 tensor-parallel ranks",
    ),
    (
        DP,
        [*FOUR, "job.parallelism={ data = 2, tensor = 4, expert_tensor = 1 }"],
        "job.parallelism.sequence_parallel",
        "false, but",
    ),
    (
        DP,
        ["job.model.experts={ count = 6 }", "job.parallelism={ data = 8, expert = 3, expert_tensor = 1 }"],
        "job.parallelism.expert",
        "3 does not divide the ranks of a stage, 8",
    ),
    (
        DP,
        [*FOUR, "job.parallelism={ data = 8, zero = 3, replicate = 2, expert_tensor = 1 }"],
        "job.parallelism.expert_tensor",
        "is not modelled with replicate",
    ),
    (
        DP,
        [*FOUR, "job.parallelism={ data = 2, expert = 2, tensor = 2 }"],
        "job.parallelism.sequence_parallel",
        "cannot send them to experts",
    ),
    (DP, ["cluster.gpu=v100-sxm2-32gb", "job.precision=bf16"], "job.precision", "has no peak for 'bf16'"),
    (DP, ["fabric={ topology = 'leaf-spine', spines = 2 }"], "fabric.hosts_per_leaf", "is missing"),
    (DP, ["fabric={ topology = 'leaf-spine', hosts_per_leaf = 2 }"], "fabric.spines", "is missing"),
    (DP, ["fabric.hosts_per_leaf=4"], "fabric.hosts_per_leaf", 'no effect with topology = "single-switch"'),
    (DP, ["fabric.uplink_rate=10Gbps"], "fabric.uplink_rate", 'no effect with topology = "single-switch"'),
    (DP, ["fabric.switch_cable=3m"], "fabric.switch_cable", 'no effect with topology = "single-switch"'),
    (DP, ["fabric.k=4"], "fabric.k", 'no effect with topology = "single-switch"'),
    (DP, ["fabric.routing=d-mod-k"], "fabric.routing", 'no effect with topology = "single-switch"'),
    (DP, ["fabric.links=x.csv"], "fabric.links", 'no effect with topology = "single-switch"'),
    (DP, ["fabric.paths=x.csv"], "fabric.paths", 'no effect with topology = "single-switch"'),
    (DP, ["fabric={ topology = 'file' }"], "fabric.links", "is missing"),
    (DP, [*CABLES, "fabric.link_rate=1Gbps"], "fabric.link_rate", 'no effect with topology = "file"'),
    (DP, [*CABLES, "fabric.host_cable=1m"], "fabric.host_cable", 'no effect with topology = "file"'),
    (DP, [*CABLES, "fabric.paths=nowhere.csv"], "fabric.paths", "'nowhere.csv' there is no such file"),
    (DP, [*LEAVES, "fabric.k=4"], "fabric.k", 'no effect with topology = "leaf-spine"'),
    (DP, [*TREE, "fabric.spines=4"], "fabric.spines", 'no effect with topology = "fat-tree"'),
    (DP, [*TREE, "fabric.k=2"], "fabric.k", "a fat tree of 2-port switches holds 2 hosts (k^3/4), not the 8"),
    (DP, [*TREE, "fabric.k=2000000000"], "fabric.k", "2000000000 is too large"),
    (DP, [*TREE, "fabric.k=4", *EIGHT], "fabric.k", "holds 16 NICs (k^3/4), not the 64 of the cluster"),
    (
        DP,
        ["cluster.nics_per_host=2", "cluster.gpus_per_host=3"],
        "cluster.nics_per_host",
        "2 does not divide the 3 GPUs",
    ),
    (DP, [*EIGHT, "cluster.nic.socket=1"], "cluster.nic.socket", "has no effect with nics_per_host = 8"),
    (DP, ["fabric.rails=true"], "fabric.rails", "has no effect if a host has one NIC"),
    (DP, [*EIGHT, *TREE, "fabric.rails=true"], "fabric.rails", 'no effect with topology = "fat-tree"'),
    (
        DP,
        [*EIGHT, "fabric.rails=true", "transport=tcp-10g", *TWO],
        "fabric.rails",
        "has no effect if a host has one NIC",
    ),
    (DP, ["cluster.pxn=true", *NVLINK], "cluster.pxn", "has no effect if a host has one NIC"),
    (DP, [*EIGHT, "cluster.pxn=true", "cluster.gpudirect=true"], "cluster.pxn", "goes over NVLink, and intra_host is"),
    (DP, [*EIGHT, "cluster.pxn=true", *NVLINK], "cluster.pxn", "which it can with gpudirect only"),
    (
        DP,
        [*EIGHT, "cluster.pxn=true", *NVLINK, "cluster.gpudirect=true", "transport=ipoib-100g"],
        "cluster.pxn",
        "a transport of kind ipoib stages in host memory",
    ),
    (DP, [*LEAVES, "fabric.spines=2000000000"], "fabric.spines", "2000000000 is too large"),
    (DP, ["fabric.host_cable=1e20km"], "fabric.host_cable", "is too large"),
    (DP, ["job.bucket=1MiB"], "job.bucket", 'no effect with overlap = "none"'),
    (DP, ["job.first_bucket=1MiB"], "job.first_bucket", 'no effect with overlap = "none"'),
    (DP, ["job.overlap=ddp", "job.bucket=0B"], "job.bucket", "is zero"),
    (DP, ["job.schedule=gpipe"], "job.schedule", "no effect with pipeline = 1"),
    (PP, ["job.overlap=ddp"], "job.overlap", "no effect with data = 1"),
    (
        DP,
        [*FOUR, f"job.parallelism={{ {WHOLE}, expert = 4 }}", "job.overlap=ddp"],
        "job.overlap",
        "no effect with data = 1",
    ),
    (DP, ["cluster.intra_host=nvlink"], "cluster.intra_host", "has no nvlink_rate"),
    (DP, [*IDEAL, "cluster.gpudirect=true"], "cluster.gpudirect", 'no effect with join = "ideal"'),
    (DP, [*IDEAL, "cluster.gpu_pcie.generation=3"], "cluster.gpu_pcie", 'no effect with join = "ideal"'),
    (DP, ["cluster.nic.socket=2"], "cluster.nic.socket", "2 is no socket of a CPU 'xeon-gold-6330' with 2"),
    (DP, ["cluster.cpu=ideal", "cluster.cpu.sockets=2"], "cluster.cpu.inter_socket_rate", "there are 2 sockets"),
    (DP, ["cluster.gpus_per_pcie_switch=3"], "cluster.gpus_per_pcie_switch", "3 does not divide the 1 GPUs"),
    (DP, ["cluster.nic_below_gpu_switch=true"], "cluster.nic_below_gpu_switch", "there is no switch"),
    (DP, ["transport.initial_window=10"], "transport.initial_window", "no effect on a transport of kind infiniband"),
    (DP, ["transport={ kind = 'tcp', idle_restart = '1s' }"], "transport.idle_restart", "no effect without initial"),
    (DP, ["transport.idle_restart=1s"], "transport.idle_restart", "no effect on a transport of kind infiniband"),
    (DP, ["cluster.nic.mpi_inline_limit=64B"], "cluster.nic.mpi_inline_latency", "only together"),
    (DP, ["cluster.nic.mpi_inline_latency=1us"], "cluster.nic.mpi_inline_limit", "only together"),
    (DP, [*TWO, "cluster.ethernet_nic.mpi_inline_limit=64B"], "cluster.ethernet_nic.mpi_inline_latency", "only tog"),
    (DP, [*TWO, "cluster.ethernet_nic.socket=2"], "cluster.ethernet_nic.socket", "2 is no socket of a CPU"),
    (
        DP,
        [*TWO, "cluster.ethernet_nic.interrupt_moderation=[{above='1B',interval='1us'},{above='1B',interval='2us'}]"],
        "cluster.ethernet_nic.interrupt_moderation[1].above",
        "not larger than that of the step before",
    ),
    (HKBU, ["cluster.hosts=2000000"], "cluster.hosts", "the cluster has 8000000 GPUs"),
    (HKBU, ["fabric.spines=2"], "fabric.spines", 'no effect with topology = "single-switch"'),
    (HKBU, ["cluster.ethernet_nic.socket=2"], "cluster.ethernet_nic.socket", "2 is no socket of a CPU"),
    (HKBU, ["collectives.send_chunk=0B"], "collectives.send_chunk", "is zero"),
    (HKBU, ["collectives.channels=4"], "collectives.channels", "has no effect: NCCL 2.6 decides"),
    ("ideal-16", ["collectives.protocol=ll"], "collectives.protocol", "has no effect without collectives.nccl"),
    (HKBU, ["collectives.algorithm=rings"], "collectives.algorithm", "'rings' is no algorithm"),
    (
        HKBU,
        ["collectives.algorithm.all_reduce=xyz"],
        "collectives.algorithm.all_reduce",
        "'xyz' is no algorithm for all",
    ),
    (HKBU, ["collectives.algorithm.all_reduce=xyz"], "collectives.algorithm.all_reduce", "'xyz' is no algorithm for"),
    (HKBU, ["collectives.algorithm.reduce_all=ring"], "collectives.algorithm.reduce_all", "is no collective"),
    (
        DP,
        ["cluster.nic.interrupt_moderation=[{above='2kB',interval='1us'},{above='1kB',interval='2us'}]"],
        "cluster.nic.interrupt_moderation[1].above",
        "not larger than that of the step before",
    ),
    (DP, ["cluster.hosts=2000000"], "cluster.hosts", "the cluster has 2000000 GPUs"),
    *[(DP, [f"{key}=0B"], key, "is zero") for key in ("cluster.gpu.memory", "collectives.send_chunk")],
    *[
        (DP, [f"{key}=0{unit}"], key, f"'0{unit}' is too small")
        for key, unit in [
            ("cluster.gpu.memory_rate", "Bps"),
            ("cluster.gpu.peak.fp16", "FLOPS"),
            ("cluster.cpu.copy_rate", "Bps"),
            ("cluster.cpu.inter_socket_rate", "Bps"),
            ("fabric.link_rate", "bps"),
            ("transport.line_rate", "bps"),
        ]
    ],
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "overrides", "key", "problem"), REFUSED, ids=lambda value: str(value)[:40])
def test_tables_that_do_not_fit_together_are_refused(name: str, overrides: list[str], key: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(name, overrides)

    (mistake,) = caught.value.mistakes
    assert mistake.key == key
    assert problem in mistake.problem
    assert mistake.way_out


def test_what_a_scenario_keeps_of_another_cluster_is_named_beside_the_key_of_a_preset() -> None:
    with pytest.raises(ScenarioError) as caught:
        load(DP, ["cluster=dgx-h100"])

    assert [mistake.key for mistake in caught.value.mistakes] == [
        "cluster.gpus_per_pcie_switch",
        "cluster.nics_per_host",
    ]
    kept = "; cluster.gpus_per_host is from workloads/scenarios/gpt2-medium-dp.toml:7"
    assert all(mistake.problem.endswith(kept) for mistake in caught.value.mistakes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "virtual", "fitting"),
    [
        # up to three chunks may have a layer less, so that 61 layers are 62, 63 or 64 less one, two or three
        (61, 1, "one of 1, 2, 3, 4, 7, 8, 9, 16, 21, 31, 32, 61"),
        (6, 2, "one of 2, 3, 4"),  # in four the first chunk has the embedding alone, and the last the head
        (1, 4, "lower job.parallelism.virtual_stages"),
    ],
)
def test_stages_that_layers_can_be_shared_out_to_are_named(layers: int, virtual: int, fitting: str) -> None:
    degrees = f"job.parallelism={{ data = 1, pipeline = 5, virtual_stages = {virtual} }}"
    overrides = [f"job.model.layers={layers}", degrees, "job.global_batch=80"]
    with pytest.raises(ScenarioError) as caught:
        load(PP, overrides)

    (mistake,) = caught.value.mistakes
    assert mistake.way_out == fitting
    for stages in re.findall(r"\d+", fitting):
        works = [each.replace("pipeline = 5", f"pipeline = {stages}") for each in overrides[:2]]
        load(PP, [*works, f"job.global_batch={8 * int(stages)}", "cluster.hosts=64"])


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        (DP, ["cluster.hosts=9"]),
        (DP, [*TREE]),
        (DP, [*TREE, "fabric.k=4", "fabric.uplink_rate=10Gbps"]),
        (DP, [*LEAVES, "fabric.uplink_rate=10Gbps", "fabric.switch_cable=3m"]),
        (DP, [*LEAVES, "fabric.routing=d-mod-k"]),
        (DP, [*CABLES, "fabric.routing=d-mod-k", f"fabric.paths={__file__}"]),
        (DP, ["job.overlap=ddp", "job.bucket=1MiB"]),
        (PP, ["job.schedule=gpipe"]),
        (DP, ["job.model.experts={ count = 4, every = 2 }", "job.recompute=feed-forward"]),
        (DP, ["job.model.experts={ count = 4, shared = 1 }", "job.recompute=feed-forward"]),
        (DP, ["job.model.experts={ count = 4, dense_layers = 1 }", "job.recompute=feed-forward"]),
        # two tensor-parallel ranks have a copy of each expert, and reduce its gradients
        (DP, [*FOUR, f"job.parallelism={{ {WHOLE}, expert = 2 }}", "job.overlap=ddp"]),
        (PP, ["job.global_batch=64"]),
        (T5, ["job.parallelism={ data = 1, pipeline = 8 }"]),
        (DP, ["job.model.heads=15", "job.model.head_width=64"]),
        (DP, ["cluster=ideal", "transport=tcp-10g"]),
        (DP, ["cluster=ideal", "cluster.gpus_per_host=8", "cluster.intra_host=nvlink"]),
        (DP, ["cluster.gpudirect=true", "transport=roce-100g"]),
        ("gpt2-xl-dp-16", ["cluster.gpus_per_pcie_switch=2", "cluster.nic_below_gpu_switch=true"]),
        ("gpt2-xl-dp-16", ["cluster=hkbu", "transport=tcp-10g"]),
        (DP, ["cluster.gpudirect=true", "transport=tcp-10g"]),
        (DP, ["cluster.gpudirect=true", "transport=ipoib-100g"]),
        (DP, [*TWO, "cluster.ethernet_nic.socket=1"]),
        (DP, [*EIGHT, "fabric.rails=true"]),
        (DP, [*EIGHT, *LEAVES, "fabric.rails=true"]),
        (DP, [*EIGHT, *NVLINK, "cluster.gpudirect=true", "cluster.pxn=true"]),
        (DP, [*EIGHT, *NVLINK, *TWO, "cluster.gpudirect=true", "cluster.pxn=true", "transport=tcp-10g"]),
        (HKBU, ["cluster.ethernet_nic.socket=0", "transport=tcp-10g"]),
        (DP, ["cluster=ideal", "transport=new-reno-100g", "transport.idle_restart=1s", "engine=packet"]),
        (HKBU, ["cluster.gpu=h100-sxm", "cluster.gpu.peak={ fp32 = '1TFLOPS' }"]),
    ],
    ids=str,
)
def test_tables_that_fit_are_accepted(name: str, overrides: list[str]) -> None:
    assert load(name, overrides).scenario.cluster.hosts


@pytest.mark.parametrize("letter", ["\0", "\n", "\x1b", "\x7f", "\u2028", "\u202e", "\u2066", "\u200f", "\ud800"])
@pytest.mark.parametrize("key", ["name", "transport.name", "cluster.name", "traffic"])
def test_names_with_control_characters_are_refused_in_a_line(key: str, letter: str) -> None:
    name = f"a{letter}b"
    told: object = {name: {"pattern": "incast", "size": "1MB"}} if key == "traffic" else name
    with pytest.raises(ScenarioError, match=f"U\\+{ord(letter):04X}|is no table") as caught:
        load({"extends": "gpt2-medium-dp"}, {key: told})

    assert letter not in str(caught.value).split("\n", 1)[1]


def test_names_in_any_script_are_taken() -> None:
    assert load({"extends": "gpt2-medium-dp", "name": "ünï 漢字 🚀 שלום"}).scenario.name == "ünï 漢字 🚀 שלום"


def test_the_largest_fat_tree_that_is_needed_is_named() -> None:
    with pytest.raises(ScenarioError, match="at least 8, or leave it out"):
        load(DP, [*TREE, "fabric.k=4", "cluster.hosts=100"])


def test_models_built_in_python_are_checked_as_well() -> None:
    tables = load(DP).resolved

    with pytest.raises(ScenarioError, match=r"job\.parallelism: the group is larger than the cluster"):
        Scenario.model_validate({**tables, "cluster": {**tables["cluster"], "hosts": 7}})


def test_link_rate_and_switch_default_to_those_of_the_transport() -> None:
    preset = load(DP).scenario
    own = load(DP, ["fabric.link_rate=25Gbps", "fabric.switch=spectrum-sn2700"]).scenario

    assert (preset.link_rate, preset.switch.name) == (12.5e9, "edr")
    assert (own.link_rate, own.switch.name) == (25e9 / 8, "spectrum-sn2700")


@pytest.mark.parametrize(
    ("transport", "adapter"),
    [("tcp-10g", "intel-10gbe"), ("ipoib-100g", "connectx-5-edr"), ("rdma-100g", "connectx-5-edr")],
)
def test_tcp_uses_the_ethernet_adapter_where_there_is_one(transport: str, adapter: str) -> None:
    assert load(HKBU, [f"transport={transport}"]).scenario.nic.name == adapter
    assert load(DP, [f"transport={transport}"]).scenario.nic.name == "connectx-6-hdr100"


def test_of_the_ethernet_adapter_there_is_one() -> None:
    assert load(DP, EIGHT).scenario.nics_per_host == 8
    assert load(DP, [*EIGHT, *TWO]).scenario.nics_per_host == 8
    assert load(DP, [*EIGHT, *TWO, "transport=tcp-10g"]).scenario.nics_per_host == 1
