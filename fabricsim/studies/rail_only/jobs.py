"""Iterations of dense jobs on rails and on a Clos, by simulation and in closed form, over the size of the domain."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product, starmap
from typing import Any, NamedTuple

from fabricsim.errors import FabricsimError
from fabricsim.results.pairs import summarise_pairs
from fabricsim.run import closed_form
from fabricsim.run.pipeline import load, pairs_of, simulate
from fabricsim.scenario.load import LoadedScenario
from fabricsim.units import seconds

GPUS = 1024
DOMAINS = (8, 16, 32, 64, 128, 256, 1024)
"""GPUs of a domain; the last is all of them."""
_TENSOR, _PIPELINE, _MICRO_BATCH = (8, 16, 32), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4)


class DenseLayout(NamedTuple):
    """Degrees and micro-batch of a job on `GPUS`."""

    tensor: int
    pipeline: int
    micro_batch: int = 1

    @property
    def data(self) -> int:
        """What is left."""
        return GPUS // (self.tensor * self.pipeline)


class DenseModel(NamedTuple):
    """A dense model of the paper."""

    name: str
    settings: tuple[str, ...]
    layout: DenseLayout


MODELS = (
    DenseModel("GPT-146B", ("job.model.layers=80", "job.model.hidden=12288", "job.model.heads=96"), DenseLayout(8, 8)),
    DenseModel("GPT-1T", (), DenseLayout(8, 64)),
)
"""Shapes of Narayanan et al., arXiv 2104.04473, and Korthikanti et al., arXiv 2205.05198, with their degrees."""


def scenario(model: DenseModel, layout: DenseLayout, domain: int, topology: str, *more: str) -> LoadedScenario:
    """Load a job; `domain` is the size of the scale-up domains."""
    shape = f"hosts={GPUS // domain}, gpus_per_host={domain}, nics_per_host={domain}, pxn={str(domain < GPUS).lower()}"
    network = (
        f"fabric={{topology='{topology}', radix=64, routing='d-mod-k'}}" if domain < GPUS else "fabric=single-switch"
    )
    degrees = f"tensor={layout.tensor}, pipeline={layout.pipeline}, data={layout.data}, sequence_parallel=true"
    return load(
        "rail-only",
        [
            f"cluster={{include='hb-domain', {shape}}}",
            network,
            f"job.parallelism={{{degrees}}}",
            f"job.micro_batch={layout.micro_batch}",
            *model.settings,
            *more,
        ],
    )


@cache
def iteration(model: DenseModel, layout: DenseLayout, domain: int, topology: str) -> float:
    """Simulate one, seconds."""
    return seconds(simulate(scenario(model, layout, domain, topology)).iteration)


def best(model: DenseModel, domain: int, *more: str) -> tuple[DenseLayout, float]:
    """Find the fastest layout that fits into the memory, in closed form, and its seconds."""
    found = []
    for layout in starmap(DenseLayout, product(_TENSOR, _PIPELINE, _MICRO_BATCH)):
        if GPUS % (layout.tensor * layout.pipeline) == 0:
            try:
                found.append((closed_form.iteration(scenario(model, layout, domain, "rail-only", *more)).total, layout))
            except FabricsimError:  # does not divide the model, or does not fit
                continue
    took, layout = min(found)
    return layout, took


def sweep(model: DenseModel) -> Iterator[dict[str, Any]]:
    """Find the best layout for each size of the domain; simulate those of the smaller model on rails and on a Clos."""
    for domain in DOMAINS:
        layout, took = best(model, domain)
        row = {
            "model": model.name,
            "gpus_per_domain": domain,
            "tensor": layout.tensor,
            "pipeline": layout.pipeline,
            "data": layout.data,
            "micro_batch": layout.micro_batch,
            "closed_form_s": took,
        }
        if model == MODELS[0]:
            row["rail_only_s"] = iteration(model, layout, domain, "rail-only")
            two_networks = domain < GPUS  # a single domain has none
            row["clos_s"] = iteration(model, layout, domain, "rail-optimised") if two_networks else row["rail_only_s"]
        yield row


def over(model: DenseModel, key: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """Work out the closed form of a model's own layout over the values of a key, on domains of 8 and of all."""
    return [
        {key: value, **{f"domains_of_{domain}_s": _closed(model, domain, f"{key}={value}") for domain in (8, GPUS)}}
        for value in values
    ]


def _closed(model: DenseModel, domain: int, setting: str) -> float:
    return closed_form.iteration(scenario(model, model.layout, domain, "rail-only", setting)).total


def traffic() -> tuple[float, float]:
    """Percent of pairs without traffic, and of the bytes on the busiest 0.25 %, of GPT-3 on domains of 256."""
    shape = "cluster={include='hb-domain', hosts=4, gpus_per_host=256, nics_per_host=256}"
    shapes = ["job.model.layers=96", "job.model.hidden=12288", "job.model.heads=96"]
    degrees = "job.parallelism={tensor=8, pipeline=8, data=16, sequence_parallel=true}"
    found = summarise_pairs(pairs_of(load("rail-only", [shape, *shapes, degrees])))
    return 100 * found["pairs_without_traffic"], 100 * found["busiest"][0]["share_of_bytes"]


def small(engine: str) -> float:
    """Simulate a small GPT on 16 GPUs in domains of 4 by an engine, seconds."""
    machine = "cluster={include='hb-domain', hosts=4, gpus_per_host=4, nics_per_host=4}"
    shapes = ["job.model.layers=8", "job.model.hidden=2048", "job.model.heads=16", "job.global_batch=16"]
    degrees = "job.parallelism={tensor=4, pipeline=2, data=2, sequence_parallel=true}"
    return seconds(
        simulate(load("rail-only", [machine, *shapes, degrees, f"engine={engine}", "folding=off"])).iteration
    )
