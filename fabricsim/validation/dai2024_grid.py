"""The configurations of the study of Dai et al., and what is assumed where its abstracts are silent.

The abstracts give averages and maxima over runs whose batch sizes, node counts and degrees they do
not give. `Assumptions` says what is taken for them; `VARIATIONS` changes one at a time to show what
hangs on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA, PIPELINE = "data", "pipeline"
WEAK, STRONG = "weak", "strong"
_SMALLEST = 2
"""Nodes of the smallest run that uses the network: the point that both kinds of scaling start from."""


@dataclass(frozen=True)
class Script:
    """What one of Megatron-LM's example scripts sets: sequences per micro-batch, and further settings."""

    models: tuple[str, ...]
    micro_batch: int
    sequence: int
    settings: tuple[str, ...] = ()


SCRIPTS = (
    Script(("gpt2-medium", "gpt2-large", "gpt2-xl"), 8, 1024, ("job.recompute=full",)),
    Script(("bert-base", "bert-large"), 4, 512, ("job.recompute=none",)),
    Script(("t5-base", "t5-large"), 16, 512, ("job.recompute=none", "job.decoder_sequence=128")),
)
"""The scripts' values; only that for GPT checkpoints activations."""


@dataclass(frozen=True)
class Assumptions:
    """What the abstracts leave open.

    Attributes
    ----------
    nodes
        Of the runs in each kind of scaling.
    scalings
        Weak: the batch per rank stays that of the script. Strong: the batch of all ranks together
        stays that of the smallest run, two nodes.
    micro_batch_factor
        Multiplies the scripts' micro-batch.
    families
        Models whose name begins so.
    settings
        Laid over the scenario ``dai2024``.
    gpus_per_host
        Ranks per node.
    """

    nodes: tuple[int, ...] = (2, 4, 8)
    scalings: tuple[str, ...] = (WEAK, STRONG)
    micro_batch_factor: float = 1.0
    families: tuple[str, ...] = ("gpt2", "bert", "t5")
    settings: tuple[str, ...] = ()
    gpus_per_host: int = 1


VARIATIONS: dict[str, Assumptions] = {
    "weak scaling only": Assumptions(scalings=(WEAK,)),
    "strong scaling only": Assumptions(scalings=(STRONG,)),
    "adapter on the other socket": Assumptions(settings=("cluster.nic.socket=1",)),
    "two GPUs per node": Assumptions(gpus_per_host=2),
    "gradients in fp32": Assumptions(settings=("job.gradient_precision=fp32",)),
    # in 80 GB: T5-large would not fit into 40
    "twice the micro-batch": Assumptions(micro_batch_factor=2.0, settings=("cluster.gpu.memory=80GB",)),
    "GPT-2 only": Assumptions(families=("gpt2",)),
    "kernel launch of 10 us": Assumptions(settings=("cluster.gpu.kernel_launch=10us",)),
    "NCCL 2.21 step costs": Assumptions(settings=("collectives=nccl",)),
}
"""One assumption changed at a time."""


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
    for script in SCRIPTS:
        for model in script.models:
            if not model.startswith(assumptions.families):
                continue
            for nodes in assumptions.nodes:
                for scaling in assumptions.scalings:
                    common = _common(script, model, nodes, assumptions)
                    for parallel, batch in (
                        (DATA, _data_parallel(script, nodes, scaling, assumptions)),
                        (PIPELINE, _pipeline_parallel(script, nodes, scaling, assumptions)),
                    ):
                        yield Point(parallel, model, nodes, scaling, (*common, *batch))


def _common(script: Script, model: str, nodes: int, assumptions: Assumptions) -> tuple[str, ...]:
    return (
        f"job.model={model}",
        f"job.sequence={script.sequence}",
        f"cluster.hosts={nodes}",
        f"cluster.gpus_per_host={assumptions.gpus_per_host}",
        *script.settings,
        *assumptions.settings,
    )


def _micro_batch(script: Script, assumptions: Assumptions) -> int:
    return max(1, round(script.micro_batch * assumptions.micro_batch_factor))


def _data_parallel(script: Script, nodes: int, scaling: str, assumptions: Assumptions) -> tuple[str, ...]:
    """Give each rank its share of the batch as one micro-batch."""
    ranks = nodes * assumptions.gpus_per_host
    sharing = ranks if scaling == WEAK else _SMALLEST * assumptions.gpus_per_host
    batch = _micro_batch(script, assumptions) * sharing
    return (
        f"job.micro_batch={batch // ranks}",
        f"job.global_batch={batch}",
        f"job.parallelism.data={ranks}",
    )


def _pipeline_parallel(script: Script, nodes: int, scaling: str, assumptions: Assumptions) -> tuple[str, ...]:
    """Keep the micro-batch of the script, and one of them in the smallest run."""
    micro = _micro_batch(script, assumptions)
    micro_batches = nodes // _SMALLEST if scaling == WEAK else 1
    return (
        f"job.micro_batch={micro}",
        f"job.global_batch={micro * micro_batches}",
        "job.parallelism.data=1",
        f"job.parallelism.pipeline={nodes * assumptions.gpus_per_host}",
    )
