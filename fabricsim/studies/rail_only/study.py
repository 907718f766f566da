"""Is an any-to-any network needed? Rail-only networks, after Wang et al., arXiv 2307.12169.

The paper's own tables were not at hand: counts are held against the formulas that its claims imply, the rest against
its abstracts. Savings by implied prices reproduce what these are derived from; those by listed prices are found.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fabricsim import measured
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run import closed_form
from fabricsim.run.pipeline import load
from fabricsim.studies.frame.study import Progress, Study, headline_rows
from fabricsim.studies.megatron import published_run
from fabricsim.studies.rail_only import faults, forwarding, jobs, networks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.figure import Figure


_DERIVED = "formulas implied by the claims of arXiv 2307.12169 (see the table's conditions)"
_PAPER = "arXiv 2307.12169v5, abstract: the same training performance"
_HFU = {"22B": 43.7, "175B": 52.8, "530B": 57.0, "1T": 57.0}
"""Percent, table 5 of Korthikanti et al., arXiv 2205.05198, sequence parallelism and selective recomputation."""


def compare(progress: Progress) -> Validation:
    """Work out all parts, one after the other."""
    rows: list[ValidationRow] = []
    summary: dict[str, Any] = {}
    parts: list[Callable[[], None]] = [
        lambda: rows.extend(_counts()),
        lambda: rows.extend(headline_rows("rail-only", _headlines())),
        lambda: rows.extend(_iterations()),
        lambda: rows.extend(_utilisation()),
        lambda: summary.update(savings=_savings(), forwarding=forwarding.simulated(), faults=[*faults.table()]),
        lambda: rows.extend(_faults(summary["faults"])),
        *(partial(_sweep, summary, model) for model in jobs.MODELS),
        lambda: summary.update(_over_values()),
    ]
    for done, part in enumerate(parts, start=1):
        part()
        progress(done / len(parts))
    return Validation("rail-only", rows, summary, _parameters())


def _counts() -> Iterator[ValidationRow]:
    for radix, domain in networks.CASES:
        rails = (
            networks.rail_only(networks.GPUS, radix, domain),
            networks.derived_rail_only(networks.GPUS, radix, domain),
        )
        both = (
            ("rail-only", *rails),
            ("Clos", networks.clos(networks.GPUS, radix), networks.derived(networks.GPUS, radix)),
        )
        for name, parts, known in both:
            for what, found, published in zip(
                ("switches", "transceivers"), (parts.switches, parts.transceivers), known, strict=True
            ):
                quantity = f"{name}, radix {radix}, domains of {domain}: {what}"
                yield ValidationRow(quantity, "1", published, found, _DERIVED, "inferred")


def _savings() -> list[dict[str, Any]]:
    names = ("radix", "gpus_per_domain", "cost_implied", "power_implied", "cost_listed", "power_listed")
    return [dict(zip(names, row, strict=True)) for row in networks.savings()]


def _headlines() -> dict[str, float]:
    saved = [row for row in networks.savings() if row[2] > 0]
    costs, powers = [100 * row[2] for row in saved], [100 * row[3] for row in saved]
    silent, busiest = jobs.traffic()
    return {
        "least_cost_saved": min(costs),
        "most_cost_saved": max(costs),
        "least_power_saved": min(powers),
        "most_power_saved": max(powers),
        "least_forwarding": 100 * forwarding.overhead(forwarding.A100, 64, networks.GPUS),
        "most_forwarding": 100 * forwarding.overhead(forwarding.H100, 256, networks.GPUS),
        "silent_pairs": silent,
        "busiest_pairs": busiest,
    }


def _iterations() -> Iterator[ValidationRow]:
    """Rails against a Clos, which the paper says are equal."""
    for model in jobs.MODELS:
        rails, clos = (
            jobs.iteration(model, model.layout, jobs.DOMAINS[0], topology)
            for topology in ("rail-only", "rail-optimised")
        )
        yield ValidationRow(
            f"{model.name}: iteration, rail-only over Clos", "x", 1.0, rails / clos, _PAPER, "published"
        )
    flow, packet = (jobs.small(engine) for engine in ("flow", "packet"))
    source = "the flow engine, on 16 GPUs"
    yield ValidationRow("small GPT on rails: iteration by packets", "s", flow, packet, source, "inferred")


def _faults(table: list[dict[str, Any]]) -> Iterator[ValidationRow]:
    """Put what goes round a lost rail by the next one beside what two rings on one rail take."""
    for row in (row for row in table if row["by_hand_s"] is not None):
        quantity, source = f"iteration without {row['lost']}", "closed form: gradients are reduced for twice as long"
        yield ValidationRow(quantity, "s", row["by_hand_s"], row["rail_only_s"], source, "inferred")


def _utilisation() -> Iterator[ValidationRow]:
    """Hardware FLOPs utilisation in closed form, one parameter set for all."""
    table = measured.load("megatron")
    for record in table.rows:
        name = str(record["name"])
        size = next((size for size in _HFU if f"Korthikanti {size}, selective" in name), None)
        if size is not None:
            run = published_run(record)
            job, took = run.job(), closed_form.iteration(load(run.scenario, list(run.settings))).total
            h, s, layers, v = job.model.hidden, job.sequence, job.model.layers, job.model.vocabulary
            flops = 72 * job.global_batch * layers * s * h**2 * (1 + s / (3 * h) + v / (12 * h * layers))
            peak = load(run.scenario, list(run.settings)).scenario.cluster.gpu.peak[job.precision]
            found = 100 * flops / (job.parallelism.ranks * took * peak)
            source = "arXiv 2205.05198, table 5"
            yield ValidationRow(f"HFU of {size} in closed form", "%", _HFU[size], found, source, "published")


def _sweep(summary: dict[str, Any], model: jobs.DenseModel) -> None:
    summary.setdefault("sweep", []).extend(jobs.sweep(model))


def _over_values() -> dict[str, Any]:
    model = jobs.MODELS[0]
    return {
        "over_batch": jobs.over(model, "job.global_batch", ("128", "256", "512", "1024", "2048")),
        "over_adapter": jobs.over(model, "fabric.link_rate", ("50Gbps", "100Gbps", "200Gbps", "400Gbps", "800Gbps")),
        "over_nvlink": jobs.over(model, "cluster.gpu.nvlink_rate", ("150GBps", "300GBps", "450GBps", "900GBps")),
    }


def _parameters() -> dict[str, Any]:
    return {
        "gpus": {"counts and cost": networks.GPUS, "jobs": jobs.GPUS},
        "prices": {"implied": networks.IMPLIED, "listed": networks.LISTED},
        "scenario": "rail-only",
        "all_to_all": "300 and 25 GB/s (A100), 450 and 50 GB/s (H100), one direction of NVLink and adapter",
        "hfu": "the paper states 0.15 %, calibrated on runs of its own; nothing is calibrated here",
    }


def _pictures(found: Validation) -> Iterator[tuple[str, Figure]]:
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    sweep = found.summary["sweep"]
    for model in jobs.MODELS:
        own = [row for row in sweep if row["model"] == model.name]
        domains = [row["gpus_per_domain"] for row in own]
        names = {"rail_only_s": "rail-only", "clos_s": "Clos", "closed_form_s": "closed form"}
        series = {name: (domains, [row[key] for row in own]) for key, name in names.items() if key in own[0]}
        title = f"{model.name} on {jobs.GPUS:,} A100, best layout for each size"
        yield f"{model.name.lower()}.png", plots.lines(series, "GPUs of a domain", "Iteration time (s)", title)
    yield "frontier.png", _frontier(sweep)


def _frontier(sweep: list[dict[str, Any]]) -> Figure:
    """Draw the iteration over the cost of the network per GPU, by the price list."""
    from fabricsim.report import plots  # noqa: PLC0415  as above

    model = jobs.MODELS[0].name
    points = []
    for row in (row for row in sweep if row["model"] == model and row["gpus_per_domain"] < jobs.GPUS):
        domain = row["gpus_per_domain"]
        both = ("rail-only", networks.rail_only(jobs.GPUS, 64, domain)), ("Clos", networks.clos(jobs.GPUS, 64))
        for name, parts in both:
            cost = (parts.bill(networks.LISTED, jobs.GPUS).cost or 0.0) / jobs.GPUS
            key = "rail_only_s" if name == "rail-only" else "clos_s"
            points.append((cost, row[key], f"K = {domain}", name))
    return plots.frontier(points, "Cost of the network per GPU (US$)", "Iteration time (s)", f"{model} on 1,024 A100")


STUDY = Study("rail-only", __doc__, compare, _pictures)
