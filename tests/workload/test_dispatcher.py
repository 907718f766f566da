"""What HybridEP takes beside the time of links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.errors import InputError
from fabricsim.records.program import COMPUTE, OVERLAPPED_STREAM
from fabricsim.run.pipeline import build_plan, load, simulate
from fabricsim.units import PS_PER_S
from fabricsim.workload.dispatcher import FIND, from_experts, routes, to_experts, visits
from fabricsim.workload.experts import experts
from fabricsim.workload.tape import Tape
from fabricsim.workload.work import Operation

if TYPE_CHECKING:
    from fabricsim.scenario.job import Job


Shape = tuple[int, int, int]
"""Elements of a token, experts, and how many of them a token goes to."""

SMALL = (1024, 128, 8)


def settings(shape: Shape, tokens: int, ranks: int = 8, processors: int = 32) -> list[str]:
    hidden, count, chosen = shape
    return [
        f"job.model.hidden={hidden}",
        f"job.model.experts={{ count = {count}, per_token = {chosen}, feed_forward = 256 }}",
        f"job.sequence={tokens}",
        "job.micro_batch=1",
        f"job.global_batch={ranks}",
        f"job.parallelism={{ context = 1, data = {ranks}, expert = {ranks} }}",
        f"cluster.hosts={ranks // 8}",
        "job.recompute=none",
        "job.expert_kernels=flex",
        f"job.hybridep_processors={processors}",
    ]


def job_of(shape: Shape, tokens: int, ranks: int = 8, processors: int = 32) -> Job:
    job = load("recipes", settings(shape, tokens, ranks, processors)).scenario.job
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("count", "chosen", "with_weights", "without"),
    [(256, 36, 972.5, 876.7), (256, 8, 647.0, 577.4), (128, 8, 626.4, 581.5)],
)
def test_short_tokens_are_pulled_as_slowly_as_measured(
    count: int, chosen: int, with_weights: float, without: float
) -> None:
    """Kernels of branch hybrid-ep on 8 B200, 8,192 tokens of 512 elements (notes/hybrid-ep-sparse-opt-new.md)."""
    job = job_of((512, count, chosen), 8192)
    tape = Tape(job)

    results, gradients = from_experts(tape, job)[0], to_experts(tape, job)[1]

    assert results.least / 1e6 == pytest.approx(without, rel=0.02)
    assert gradients.least / 1e6 == pytest.approx(with_weights, rel=0.12)
    assert not to_experts(tape, job)[0].least
    assert not from_experts(tape, job)[1].least


@pytest.mark.parametrize(("processors", "measured", "ratio"), [(16, 473, 1.26), (32, 480, 0.62)])
def test_long_tokens_are_pulled_by_16_processors_faster_than_predicted(
    processors: int, measured: float, ratio: float
) -> None:
    """4,096 tokens of 7,168 elements: 674 GB/s on B200 (Hybrid-EP_Implementation.md), 665 GB/s on B300 (the notes).

    With 32 processors links are the slower ones.
    """
    job = job_of((7168, 64, 8), 4096, processors=processors)

    assert from_experts(Tape(job), job)[0].least / 1e6 == pytest.approx(ratio * measured, rel=0.02)


def test_routes_are_gathered_and_searched_as_measured() -> None:
    """412 us on B300: 72 ranks of 12,288 tokens, each to 6 of 576 experts (notes/isolated-scan-bench.md)."""
    job = job_of((512, 576, 6), 12288, ranks=72)

    (gather,) = routes(Tape(job), job)

    assert gather.size == 72 * 12288 * 576  # a byte for each token and expert
    assert (gather.behind - FIND * visits(job, 12288)) / 1e6 == pytest.approx(412.4, rel=0.02)


def test_places_are_found_as_measured() -> None:
    """1.34 ms on GB200, 12,288 tokens of 72 ranks to 36 of 2,304 experts (nsys_e72_full_iteration_analysis.md)."""
    job = job_of((512, 2304, 36), 12288, ranks=72)

    assert FIND * visits(job, 12288) / 1e6 == pytest.approx(1340, rel=0.02)


@pytest.mark.parametrize(
    ("count", "chosen", "order", "add_up"), [(256, 36, 393.6, 267.3), (256, 8, 257.2, 127.3), (128, 8, 153.8, 103.5)]
)
def test_short_tokens_are_ordered_about_as_measured(count: int, chosen: int, order: float, add_up: float) -> None:
    """Kernels of branch hybrid-ep on B200, as above: memory would allow a tenth of that."""
    job, tape = (each(job_of((512, count, chosen), 8192)) for each in (lambda job: job, Tape))
    experts(tape, job, 8192)
    found = {item.name: item for item in tape.work().forward if isinstance(item, Operation)}

    assert found["order by expert"].least / 1e6 == pytest.approx(order, rel=0.20)
    assert found["weight and add up"].least / 1e6 == pytest.approx(add_up, rel=0.32)


def test_weights_of_all_experts_go_with_tokens_and_come_back_with_gradients() -> None:
    job = job_of((2048, 128, 8), 4096)
    tape = Tape(job)
    (tokens, of_tokens), (results, of_results) = to_experts(tape, job), from_experts(tape, job)

    copies = tokens.size / (2 * 2048)

    assert tokens.weights == of_tokens.weights == pytest.approx(copies * 128 * 4, rel=1e-6)
    assert results.weights == of_results.weights == 0


def sums(processors: int, *more: str) -> tuple[int, int]:
    """Time of an iteration and of kernels beside the main stream, ps."""
    found = simulate(load("recipes", [*settings(SMALL, 4096, processors=processors), *more]))
    beside = found.ops[(found.ops["kind"] == COMPUTE) & (found.ops["stream"] == OVERLAPPED_STREAM)]
    return found.iteration, int(beside["duration"].sum())


@pytest.mark.slow
def test_what_links_do_not_bound_makes_an_iteration_longer() -> None:
    recorded = ("job.launch=graph", "job.expert_kernels=fused")  # the host holds nothing up
    many, few = (sums(processors, *recorded)[0] for processors in (128, 16))
    plan = build_plan(load("recipes", settings(SMALL, 4096)))
    pulls = 2 * plan.job.model.layers  # results, and gradients of tokens
    job = job_of(SMALL, 4096, processors=16)

    least = from_experts(Tape(job), job)[0].least
    links = plan.links
    assert links is not None
    exchange = from_experts(Tape(job), job)[0]
    wire = links.seconds("all_to_all", range(8), exchange.size) * PS_PER_S
    heavy = links.seconds("all_to_all", range(8), exchange.size + to_experts(Tape(job), job)[1].weights) * PS_PER_S

    # 128 processors keep up with links
    assert few - many == pytest.approx(pulls / 2 * (2 * least - wire - heavy), rel=0.02)


@pytest.mark.slow
def test_beside_other_kernels_it_lasts_as_long() -> None:
    overlap = ("job.expert_overlap=true", "job.global_batch=32")
    (gather,) = routes(Tape(job_of(SMALL, 4096)), job_of(SMALL, 4096))

    many, few = (sums(processors, *overlap)[1] for processors in (128, 16))

    assert many > 0  # of searches alone, as long each
    assert many % gather.behind == 0
    assert few > many


@pytest.mark.parametrize(
    ("base", "more", "problem"),
    [
        ("recipes", "job.expert_kernels=all-to-all", "'all-to-all' kernels are not behind a dispatcher"),
        ("recipes", "job.parallelism={ context = 1, data = 8, expert = 1 }", "experts have no all-to-alls"),
        ("gpt2-medium-dp", "job.hybridep_processors=32", "has no experts"),
    ],
)
def test_without_a_dispatcher_it_is_refused(base: str, more: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load(base, [*(settings(SMALL, 4096) if base == "recipes" else ()), more])
