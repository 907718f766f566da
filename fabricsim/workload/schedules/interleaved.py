"""The interleaved part of 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2.2), as Megatron-LM runs it.

With ``v`` chunks per rank the bubble is ``(p - 1) (t_f + t_b) / v``. ``p`` micro-batches go through one chunk, then the
same ones through the next chunk, and so on; backward from the last chunk to the first.
"""


def warm_up(stage: int, stages: int, chunks: int) -> int:
    """Forward passes of a stage before its first backward pass follows one, if there are so many.

    ``2 (p - i - 1) + (v - 1) p`` on stage ``i`` of ``p``, so that ``p`` micro-batches have reached the last chunk
    (Megatron-LM, megatron/core/pipeline_parallel/schedules.py, `get_pp_rank_microbatches`).
    """
    return 2 * (stages - stage - 1) + (chunks - 1) * stages


def order(stages: int, micro_batches: int, chunks: int) -> list[tuple[int, int]]:
    """Micro-batch and chunk of each forward pass."""
    places = [divmod(number, stages * chunks) for number in range(micro_batches * chunks)]
    return [(group * stages + place % stages, place // stages) for group, place in places]
