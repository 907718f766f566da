"""What an iteration achieves: tokens, FLOPs, and the share of the GPUs' peak that they take."""

from typing import NamedTuple, TypedDict


class IterationWork(NamedTuple):
    """What one iteration does on all ranks together; None what is not known.

    `tokens`: that it trains on.
    `model_flops`: that the model needs, nothing recomputed (`fabricsim.workload.flops.model_flops`).
    `hardware_flops`: the same with what is recomputed (`fabricsim.workload.flops.hardware_flops`); of a trace, what it
        says.
    `peak`: dense peak of one GPU in the precision of the job, FLOP/s.
    """

    tokens: int | None
    model_flops: float | None
    hardware_flops: float
    peak: float | None


class ThroughputSummary(TypedDict):
    """Rates of an iteration.

    ``mfu`` is the model's FLOPs per second over the peak of all GPUs (Chowdhery et al., PaLM, arXiv 2204.02311,
    appendix B), ``hfu`` the same with FLOPs that are recomputed. ``tflops_per_gpu`` is in 10^12 FLOP/s: of the model's
    FLOPs, or of those that a trace says. What is not known is null.
    """

    tokens_per_s: float | None
    tflops_per_gpu: float
    mfu: float | None
    hfu: float | None
    peak_tflops: float | None


def throughput(work: IterationWork, ranks: int, iteration: float) -> ThroughputSummary:
    """Divide the work of an iteration by its time.

    `work`: of all ranks.
    `ranks`: GPUs, whether simulated or folded.
    `iteration`: time of one, s.
    """
    counted = work.hardware_flops if work.model_flops is None else work.model_flops
    return {
        "tokens_per_s": None if work.tokens is None else work.tokens / iteration,
        "tflops_per_gpu": counted / iteration / ranks / 1e12,
        "mfu": _share(work.model_flops, work.peak, ranks * iteration),
        "hfu": _share(work.hardware_flops, work.peak, ranks * iteration),
        "peak_tflops": None if work.peak is None else work.peak / 1e12,
    }


def _share(flops: float | None, peak: float | None, time: float) -> float | None:
    return None if flops is None or peak is None else flops / time / peak
