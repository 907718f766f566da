"""The configurations of the study of Dai et al., and what is assumed where its abstracts are silent.

The abstracts give averages and maxima over runs whose batch sizes, node counts and degrees they do
not give. `Assumptions` says what is taken for them; `VARIATIONS` changes one at a time to show what
hangs on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

DATA, PIPELINE = "data", "pipeline"
WEAK, STRONG = "weak", "strong"
_SMALLEST = 2  # nodes of the smallest run that uses the network: the point that both kinds of scaling start from
_SCRIPT_RANKS = 8  # ranks that the scripts run on


@dataclass(frozen=True)
class Script:
    """What the scripts for one family of models set.

    `models`: of the library.
    `micro_batch`, `sequence`: sequences per micro-batch and tokens in each.
    `split_micro_batch`, `split_batch`: sequences per micro-batch, and of eight ranks together, of the script that
        splits the model.
    `settings`: whatever else differs from the scenario ``dai2024``.
    """

    models: tuple[str, ...]
    micro_batch: int
    sequence: int
    split_micro_batch: int
    split_batch: int
    settings: tuple[str, ...] = ()


EXAMPLES = (
    Script(("gpt2-medium", "gpt2-large", "gpt2-xl"), 8, 1024, 4, 16, ("job.recompute=full",)),
    Script(("bert-base", "bert-large"), 4, 512, 2, 16, ("job.recompute=none",)),
    Script(("t5-base", "t5-large"), 16, 512, 16, 128, ("job.recompute=none", "job.decoder_sequence=128")),
)
"""Megatron-LM's examples pretrain_{gpt,bert,t5}_distributed.sh and, of split models, .._distributed_with_mp.sh.

Only those for GPT checkpoint activations. Those that split have tensor parallelism of 2, on eight ranks, and a
pipeline of 2, which that for T5 leaves out; here all have one, since the study's timers are those of a pipeline.
"""

AUTHORS = (
    Script(("gpt2-medium", "gpt2-large"), 12, 512, 12, 12, ("job.recompute=none",)),
    Script(("bert-large",), 16, 512, 16, 16, ("job.recompute=none",)),
    Script(
        ("t5-large",),
        12,
        512,
        12,
        12,
        ("job.recompute=none", "job.decoder_sequence=128", "job.model.feed_forward=3072"),
    ),
)
"""What the study's first author published later, github.com/dailiuyao/tmp-file@2019f5a, megatron-node1_2gpus.sh.

It has two GPUs per node, and chooses between RDMA, IPoIB and TCP; whether the published figures come from it is not
said. It splits no model; a log beside it is of a pipeline with tensor parallelism of 2, whose whole batch is one
micro-batch.
"""


@dataclass(frozen=True)
class Assumptions:
    """What the abstracts leave open; if nothing else is said, what the author's scripts and logs have.

    `nodes`: of the runs in each kind of scaling.
    `scalings`: weak: the batch per rank stays that of the script. Strong: the batch of all ranks together stays that of
        the smallest run, two nodes.
    `micro_batch_factor`: multiplies the scripts' micro-batch.
    `families`: models whose name begins so.
    `settings`: laid over the scenario ``dai2024``.
    `gpus_per_host`: ranks per node of data parallelism.
    `tensor`: ranks of a node that share the layers of a split model; with 1 the pipeline has as many stages as data
        parallelism has ranks, and the micro-batch of data parallelism.
    `script_batches`: whether a split model has the batch of its script, in weak scaling per rank; otherwise its
        smallest run has one micro-batch, and in weak scaling others more.
    `scripts`: from which models and batches are.
    """

    nodes: tuple[int, ...] = (2, 4, 8)
    scalings: tuple[str, ...] = (WEAK, STRONG)
    micro_batch_factor: float = 1.0
    families: tuple[str, ...] = ("gpt2", "bert", "t5")
    settings: tuple[str, ...] = ()
    gpus_per_host: int = 2
    tensor: int = 2
    script_batches: bool = False
    scripts: tuple[Script, ...] = AUTHORS


VARIATIONS: dict[str, Assumptions] = {
    "weak scaling only": Assumptions(scalings=(WEAK,)),
    "strong scaling only": Assumptions(scalings=(STRONG,)),
    "adapter on the other socket": Assumptions(settings=("cluster.nic.socket=1",)),
    "one GPU per node": Assumptions(gpus_per_host=1),
    "pipelines alone": Assumptions(tensor=1),
    "examples of Megatron-LM": Assumptions(scripts=EXAMPLES),
    "examples, batches of those that split": Assumptions(scripts=EXAMPLES, script_batches=True),
    "examples on one GPU per node": Assumptions(scripts=EXAMPLES, gpus_per_host=1),
    "gradients in fp32": Assumptions(settings=("job.gradient_precision=fp32",)),
    # in 80 GB: T5-large would not fit into 40
    "twice the micro-batch": Assumptions(micro_batch_factor=2.0, settings=("cluster.gpu.memory=80GB",)),
    "GPT-2 only": Assumptions(families=("gpt2",)),
    "hosts without delay": Assumptions(settings=("job.launch=graph", "job.batch_time=0s")),
    "NCCL 2.21 step costs": Assumptions(settings=("collectives=nccl",)),
}
"""One assumption changed at a time, or two."""


@dataclass(frozen=True)
class Point:
    """One configuration of the study, to be run on each transport."""

    parallel: str
    model: str
    nodes: int
    scaling: str
    settings: tuple[str, ...]


def points(assumptions: Assumptions) -> Iterator[Point]:
    """Yield all configurations under given assumptions: per model, node count and scaling one of each parallelism."""
    for script in assumptions.scripts:
        for model in script.models:
            if not model.startswith(assumptions.families):
                continue
            for nodes in assumptions.nodes:
                for scaling in assumptions.scalings:
                    common = _common(script, model, nodes)
                    for parallel, own in (
                        (DATA, _data_parallel(script, nodes, scaling, assumptions)),
                        (PIPELINE, _split(script, nodes, scaling, assumptions)),
                    ):
                        yield Point(parallel, model, nodes, scaling, (*common, *assumptions.settings, *own))


def _common(script: Script, model: str, nodes: int) -> tuple[str, ...]:
    return (f"job.model={model}", f"job.sequence={script.sequence}", f"cluster.hosts={nodes}", *script.settings)


def _scaled(micro_batch: int, assumptions: Assumptions) -> int:
    return max(1, round(micro_batch * assumptions.micro_batch_factor))


def _data_parallel(script: Script, nodes: int, scaling: str, assumptions: Assumptions) -> tuple[str, ...]:
    """Give each rank its share of the batch as one micro-batch."""
    ranks = nodes * assumptions.gpus_per_host
    sharing = ranks if scaling == WEAK else _SMALLEST * assumptions.gpus_per_host
    batch = _scaled(script.micro_batch, assumptions) * sharing
    return (
        f"cluster.gpus_per_host={assumptions.gpus_per_host}",
        f"job.micro_batch={batch // ranks}",
        f"job.global_batch={batch}",
        f"job.parallelism.data={ranks}",
    )


def _split(script: Script, nodes: int, scaling: str, assumptions: Assumptions) -> tuple[str, ...]:
    """Split layers over the ranks of a node, and the model over all nodes."""
    tensor = assumptions.tensor
    per_host = max(assumptions.gpus_per_host, tensor)
    micro = _scaled(script.micro_batch if tensor == 1 else script.split_micro_batch, assumptions)
    if assumptions.script_batches:
        own = _scaled(script.split_batch, assumptions)
        batch = own * nodes * per_host // _SCRIPT_RANKS if scaling == WEAK else own
    else:
        batch = micro * (nodes // _SMALLEST if scaling == WEAK else 1)
    return (
        f"cluster.gpus_per_host={per_host}",
        f"job.micro_batch={micro}",
        f"job.global_batch={batch}",
        "job.parallelism.data=1",
        f"job.parallelism.tensor={tensor}",
        # Megatron-LM's default: --no-scatter-gather-tensors-in-pipeline turns it off
        f"job.parallelism.scatter_gather={str(tensor > 1).lower()}",
        f"job.parallelism.pipeline={nodes * per_host // tensor}",
    )
