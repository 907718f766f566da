"""The jobs whose volumes are counted after Anthony et al., arXiv 2408.10197, and what is assumed of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from fabricsim.scenario.job import FULLY_SHARDED

RANKS = 16
"""GPUs of two nodes of Frontier."""


@dataclass(frozen=True)
class ModelSize:
    """A model of GPT-NeoX by its layers, hidden size and heads (configs/<name>.yml)."""

    name: str
    layers: int
    hidden: int
    heads: int


SIZES = (
    ModelSize("19M", 6, 512, 8),
    ModelSize("49M", 10, 640, 10),
    ModelSize("125M", 12, 768, 12),
    ModelSize("350M", 24, 1024, 16),
    ModelSize("760M", 24, 1536, 16),
    ModelSize("1.3B", 24, 2048, 16),
    ModelSize("2.7B", 32, 2560, 32),
    ModelSize("6.7B", 32, 4096, 32),
    ModelSize("13B", 40, 5120, 40),
)
"""Named as their files, which count one embedding, below 100M none."""
SWEPT = SIZES[5]
"""Model whose sequence length is swept."""
SEQUENCES = (512, 1024, 2048, 4096, 8192)
USUAL = 2048
"""Sequence length of all sizes."""
_MICRO_BATCH = 4
_ACCUMULATED = 4
_BUCKETS = ("job.overlap=ddp", "job.bucket=1GB", "job.first_bucket=1GB")
"""GPT-NeoX's ``reduce_bucket_size`` of 5e8 elements, with ``overlap_comm``; ZeRO-3 goes block by block here."""


@dataclass(frozen=True)
class Scheme:
    """A way to spread a job over `RANKS` GPUs.

    `name`: as the picture shows it.
    `tensor`, `pipeline`, `zero`: degrees, and the ZeRO stage; what is left is data parallel.
    `batches`: Micro-batches per replica.
    """

    name: str
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    batches: int = 1

    @property
    def data(self) -> int:
        """Replicas; one if nothing but tensor or pipeline parallelism is looked at."""
        return 1 if self.name in {"tensor", "pipeline"} else RANKS // (self.tensor * self.pipeline)


MIXED = Scheme("all three", tensor=2, pipeline=2, zero=1, batches=_ACCUMULATED)
"""Job whose bytes are shared out over the dimensions."""
SCHEMES = (
    Scheme("data"),
    Scheme("ZeRO-1", zero=1),
    Scheme("ZeRO-2", zero=2),
    Scheme("ZeRO-3", zero=3),
    Scheme("tensor", tensor=2),
    Scheme("pipeline", pipeline=2, batches=_ACCUMULATED),
    MIXED,
)


@dataclass(frozen=True)
class SweptJob:
    """One job: what is swept, model, sequence length and scheme."""

    sweep: str
    size: ModelSize
    sequence: int
    scheme: Scheme

    @property
    def settings(self) -> list[str]:
        """Settings over the scenario ``anthony2024``."""
        size, scheme = self.size, self.scheme
        lines = [
            f'job.model.name="gpt-neox-{size.name}"',
            f"job.model.layers={size.layers}",
            f"job.model.hidden={size.hidden}",
            f"job.model.heads={size.heads}",
            f"job.model.positions={USUAL if self.sweep == 'model' else SEQUENCES[-1]}",
            f"job.sequence={self.sequence}",
            f"job.global_batch={_MICRO_BATCH * scheme.data * scheme.batches}",
            f"job.parallelism.data={scheme.data}",
            f"job.parallelism.tensor={scheme.tensor}",
            f"job.parallelism.pipeline={scheme.pipeline}",
            f"job.parallelism.zero={scheme.zero}",
        ]
        return [*lines, *_BUCKETS] if scheme.data > 1 and scheme.zero < FULLY_SHARDED else lines


def points() -> Iterator[SweptJob]:
    """All jobs: the sweep of the sequence length, then that of the model size."""
    for scheme in SCHEMES:
        yield from (SweptJob("sequence", SWEPT, sequence, scheme) for sequence in SEQUENCES)
    for scheme in SCHEMES:
        yield from (SweptJob("model", size, USUAL, scheme) for size in SIZES)
