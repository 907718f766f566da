from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from fabricsim.cli.search import _sorted
from fabricsim.errors import FabricsimError, InputError
from fabricsim.report.swept import searched_text
from fabricsim.run.bill import COST
from fabricsim.run.pipeline import build_plan, load, simulate
from fabricsim.run.search.bound import HostRates, KernelBound, LeastTimes, _Clock, brief
from fabricsim.run.search.candidates import Budget
from fabricsim.run.search.layouts import KEYS as KEYS_OF_LAYOUTS
from fabricsim.run.search.layouts import choices, job_tables, layouts
from fabricsim.run.search.search import OUT, Extent, search
from fabricsim.run.sweeps.workers import Workers
from fabricsim.scenario.load import LoadedScenario
from fabricsim.units import PS_PER_S, human_seconds
from fabricsim.workload.program import Call
from fabricsim.workload.shapes import stage_blocks

MACHINE: dict[str, Any] = {
    "cluster.hosts": 2,
    "job.model": {"include": "llama3-8b", "layers": 8},
    "job.sequence": 4096,
    "job.global_batch": 32,
    "job.parallelism": {"tensor": 8, "pipeline": 1, "data": 2, "virtual_stages": 1},
}


def small() -> LoadedScenario:
    return load("llama3-405b", MACHINE)


def bounds(loaded: LoadedScenario) -> tuple[float, float, float]:
    """By kernels alone, by what ranks do, and by the order of passes."""
    job, hosts = build_plan(loaded).job, HostRates.of(loaded.scenario)
    scenario = loaded.scenario.model_copy(update={"job": brief(job)})
    short = LeastTimes(build_plan(LoadedScenario(scenario, "", {}, loaded.path)), scenario, hosts)
    return KernelBound(loaded.scenario).least(job, ""), short.filled(job), short.scheduled(job)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1, 4])
def test_kernels_bound_hosts_of_any_speed(speed: int) -> None:
    """A job whose host holds its GPU up: a bound by hosts as slow as they were would be above its time."""
    alone = {"cluster.hosts": 1, "job.parallelism.data": 1, "job.micro_batch": 1, "job.global_batch": 1}
    loaded = load("gpt2-medium-dp", {**alone, "cluster.host_speed": speed, "job.recompute": "none"})

    found = simulate(loaded).iteration / PS_PER_S

    assert 0.5 * found < KernelBound(loaded.scenario).least(build_plan(loaded).job, "") <= found


KEYS: dict[str, list[Any]] = {
    "job.parallelism.zero": [1, 3],
    "job.parallelism.context": [1],
    "job.parallelism.virtual_stages": [1, 2],
    "job.micro_batch": [1],
    "job.schedule": ["1f1b", "zb-h1"],
    "job.recompute": ["none", "full"],
}


@pytest.mark.slow
def test_what_the_bound_rules_out_is_not_the_best(tmp_path: Path) -> None:
    """Branch and bound finds what simulating all layouts finds, and simulates fewer."""
    loaded = load("llama3-405b", {**MACHINE, "job.global_batch": 16})
    keys = {**KEYS, "job.parallelism.tensor": [2, 8], "job.recompute": ["none"]}
    pruned = search(loaded, tmp_path / "pruned", given=keys)
    whole = search(loaded, tmp_path / "whole", given=keys, extent=Extent(exhaustive=True))

    assert pruned.layouts == whole.layouts == len(pruned.rows)
    assert pruned.simulated < whole.simulated
    best = {key: whole.rows[0][key] for key in whole.keys}
    assert {key: pruned.rows[0][key] for key in whole.keys} == best
    assert pruned.rows[0]["iteration_time_s"] == min(row["iteration_time_s"] or 1e9 for row in whole.rows)
    assert all(row["bound_s"] <= row["iteration_time_s"] for row in whole.rows if row["status"] == "done")
    assert all(row["error"] for row in pruned.rows if row["status"] == OUT)
    again = search(loaded, tmp_path / "two", given=keys, workers=Workers(2))
    assert again.rows == pruned.rows
    assert (tmp_path / "two" / "index.csv").read_bytes() == (tmp_path / "pruned" / "index.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.05, 0.5])
def test_a_gap_ends_a_search_as_soon_as_nothing_can_be_better_by_more(tmp_path: Path, gap: float) -> None:
    loaded = load("llama3-405b", {**MACHINE, "job.global_batch": 8})
    keys = {**KEYS, "job.parallelism.tensor": [1, 2, 4, 8], "job.recompute": ["none"]}
    best = search(loaded, tmp_path, given=keys)
    near = search(loaded, tmp_path, given=keys, extent=Extent(gap=gap))
    again = search(loaded, tmp_path / "two", given=keys, extent=Extent(gap=gap), workers=Workers(2))

    assert near.simulated < best.simulated
    assert again.rows == near.rows
    took = near.rows[0]["iteration_time_s"]
    assert (1 - gap) * took <= best.rows[0]["iteration_time_s"] <= took
    left = [row for row in near.rows if f"within the gap of {gap}" in row["error"]]
    assert left
    assert all((1 - gap) * took < row["bound_s"] <= took for row in left)
    told = "\n".join(map(str, searched_text(near.rows, near.keys, near.layouts, near.simulated)))
    assert f"{len(left)} whose bound is within the gap" in told
    least = human_seconds(min(row["bound_s"] for row in left))
    assert f"no layout takes less than {least}, " in told
    dearer = [{**row, "bound_s": 2 * took} if row in left else row for row in near.rows]
    assert "no layout" not in str(searched_text(dearer, near.keys, near.layouts, near.simulated)[-1])


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["1f1b", "gpipe", "zb-h1"]),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.sampled_from(["nccl", "fixed"]),
    st.sampled_from(["45.5us", "1ns"]),
    st.sampled_from(["none", "full"]),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from(["none", "ddp"]),
    st.sampled_from(["1", "0.9", "{ 3 = 0.8 }"]),
    st.booleans(),
)
def test_no_simulation_is_below_the_bound(  # noqa: PLR0913, PLR0917  what jobs differ in
    tensor: int,
    pipeline: int,
    micro_batch: int,
    schedule: str,
    chunks: int,
    sequence_parallel: bool,  # noqa: FBT001  of the job
    collectives: str,
    launch: str,
    recompute: str,
    context: int,
    zero: int,
    overlap: str,
    speed: str,
    pipeline_overlap: bool,  # noqa: FBT001
) -> None:
    data = 16 // (tensor * pipeline * context)
    assume(data * tensor * pipeline * context == 16 and (zero == 0 or data * context > 1))
    degrees = {"tensor": tensor, "pipeline": pipeline, "data": data, "context": context, "virtual_stages": chunks}
    layout = {**{f"job.parallelism.{key}": value for key, value in degrees.items()}, "job.parallelism.zero": zero}
    layout |= {"job.micro_batch": micro_batch, "job.schedule": schedule, "job.recompute": recompute}
    tables = {key: table for key, table in small().resolved.items() if key != "extensions"}
    own = {"kernel_launch": launch, "pipeline_overlap": pipeline_overlap}
    tables["job"] = job_tables({**tables["job"], **own}, layout)
    tables["job"]["parallelism"]["sequence_parallel"] = sequence_parallel and tensor > 1
    if overlap == "none":
        tables["job"] = {key: value for key, value in tables["job"].items() if key not in {"overlap", "bucket"}}
    try:
        more = {"collectives.channels": 1} if collectives == "fixed" else {}
        more["cluster.gpu_speed"] = tomllib.loads(f"x = {speed}")["x"]
        loaded = load(tables, {"cluster.gpu.memory": "1TiB", **more})
        kernels, filled, bound = bounds(loaded)
        took = simulate(loaded).iteration / 1e12
    except FabricsimError:
        assume(False)  # noqa: FBT003  does not fit together
    assert 0.3 * took < bound <= took
    assert 0.5 * bound < kernels <= filled <= bound


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["20us", "60us", "150us"])
def test_a_host_that_gains_on_the_gpu_in_one_block_and_loses_in_another_is_not_counted_twice(launch: str) -> None:
    """Of adapters the kernels are small, and host and GPU wait for each other in turn."""
    layout = {f"job.parallelism.{key}": 1 for key in ("tensor", "pipeline", "context", "virtual_stages")}
    layout |= {"job.parallelism.data": 16, "job.parallelism.zero": 0, "job.micro_batch": 1, "job.schedule": "1f1b"}
    tables = {key: table for key, table in small().resolved.items() if key != "extensions"}
    job = {**tables["job"], "kernel_launch": launch, "adapters": {"rank": 8, "targets": ["qkv"]}}
    tables["job"] = job_tables(job, {**layout, "job.recompute": "none"})
    loaded = load(tables, {"cluster.gpu.memory": "4TB", "job.sequence": 1024})

    kernels, filled, bound = bounds(loaded)

    assert 0.9 * bound < kernels <= filled <= bound <= simulate(loaded).iteration / 1e12


def test_virtual_stages_without_a_layer_are_bounded() -> None:
    layout = {"tensor": 2, "pipeline": 2, "data": 4, "virtual_stages": 8}
    job = {"job.model": {"include": "llama3-8b", "layers": 14}, "job.parallelism": layout, "job.micro_batch": 1}
    loaded = load("llama3-405b", {**MACHINE, **job, "job.adapters": {"rank": 4}})
    scenario = loaded.scenario
    assert scenario.job is not None
    stages = stage_blocks(scenario.job.model, 16, scenario.job.parallelism)
    assert [block.kind for block in stages[0]] == ["embedding"]  # which is frozen, and has no backward pass

    kernels, filled, _ = bounds(loaded)

    assert 0 < kernels <= filled


def test_groups_of_one_dimension_have_their_own_least_times() -> None:
    """Gradients of experts and of all else are reduced over different groups, though both are data-parallel."""
    plan = build_plan(small())
    clock = _Clock(plan, HostRates(8))
    for members in (2, 8):
        clock.begin()
        clock.join(clock.next_call(0, Call("all_gather", tuple(range(members)), 2**30, "data")), 0, "")
        assert plan.links is not None
        assert plan.links.inside is not None
        assert clock.now == int(1e12 * 2**30 * (members - 1) / members / plan.links.inside)


@pytest.mark.slow
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(
    ("tensor", "expert", "by_host", "by_nic"), [(1, 8, 0, 0), (2, 8, 4 * 4 / 8, 4), (4, 8, 2 * 6 / 8, 6)]
)
def test_all_to_alls_between_hosts_are_bounded_by_cables(
    tensor: int, expert: int, by_host: float, by_nic: float, *, direct: bool
) -> None:
    """Of ``n`` ranks, ``h`` on a host, ``h (n - h) / n`` of a buffer leave the host, ``(n - h) / n`` by each NIC."""
    degrees = {"tensor": tensor, "pipeline": 1, "data": 32 // tensor, "expert": expert, "virtual_stages": 1}
    degrees["sequence_parallel"] = tensor > 1
    model = {"include": "grok-1", "layers": 4}
    job = {"job.model": model, "job.sequence": 4096, "job.global_batch": 64, "job.parallelism": degrees}
    loaded = load("llama3-405b", {"cluster.hosts": 4, "cluster.gpu.memory": "4TB", **job})
    plan, hosts = build_plan(loaded), HostRates.of(loaded.scenario)._replace(direct=direct)
    near, far = (LeastTimes(plan, loaded.scenario, each).scheduled(plan.job) for each in (HostRates(8), hosts))

    assert (hosts.rate, hosts.nic_rate) == (8 * loaded.scenario.link_rate, loaded.scenario.link_rate)
    assert far <= simulate(loaded).iteration / 1e12
    # two dispatches and two combines of two experts' tokens in each layer, less what NVLink takes meanwhile
    buffer = 2 * 2 * 4096 * 6144 // tensor
    sent = 4 * 4 * plan.micro_batches * buffer * (by_nic if direct else by_host) / expert / hosts.nic_rate
    assert near + 0.7 * sent <= far <= near + sent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expert", "zero", "pipeline", "overlap"), [(16, 1, 1, True), (8, 3, 1, False), (4, 2, 2, True), (32, 0, 1, False)]
)
def test_no_simulation_with_experts_is_below_the_bound(expert: int, zero: int, pipeline: int, overlap: bool) -> None:  # noqa: FBT001  of the job
    degrees = {"tensor": 1, "pipeline": pipeline, "data": 32 // pipeline, "expert": expert, "zero": zero}
    layout = {f"job.parallelism.{key}": value for key, value in {**degrees, "virtual_stages": 1, "context": 1}.items()}
    tables = {key: table for key, table in small().resolved.items() if key != "extensions"}
    tables["job"] = job_tables({**tables["job"], "global_batch": 32}, {**layout, "job.schedule": "1f1b"})
    settings = {"cluster.hosts": 4, "cluster.gpu.memory": "4TB", "job.expert_overlap": overlap}
    loaded = load(tables, {**settings, "job.model": {"include": "qwen3-30b-a3b", "layers": 12}})
    kernels, filled, bound = bounds(loaded)

    took = simulate(loaded).iteration / 1e12
    assert 0.3 * took < kernels <= filled <= bound <= took


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "layouts_tried"), [(8, 1), (4, 2)])
def test_the_layout_of_the_scenario_is_tried_and_compared(tmp_path: Path, tensor: int, layouts_tried: int) -> None:
    usual = {"zero": 1, "context": 1, "virtual_stages": 1, "pipeline": 1, "tensor": tensor}
    few = {"job.micro_batch": [1], "job.schedule": ["1f1b"], "job.recompute": ["none"]}
    found = search(small(), tmp_path, given={**few, **{f"job.parallelism.{key}": [of] for key, of in usual.items()}})

    (own,) = [row for row in found.rows if row["own"]]
    assert (own["status"], found.layouts) == ("done", layouts_tried)
    assert own["iteration_time_s"] == simulate(small()).iteration / 1e12
    told = searched_text(found.rows, found.keys, found.layouts, found.simulated)[-2]
    others = [row["iteration_time_s"] for row in found.rows if not row["own"] and row["status"] == "done"]
    if not others:
        assert str(told).startswith("The scenario's own layout is the only one left")
    elif all(own["iteration_time_s"] <= other for other in others):
        assert told == "The scenario's own layout is the best."
    else:
        assert f"{100 * (own['iteration_time_s'] / min(others) - 1):.1f} % longer than the best" in str(told)


@pytest.mark.slow
def test_values_that_fit_nowhere_leave_the_own_layout_alone(tmp_path: Path) -> None:
    found = search(small(), tmp_path, given={"job.micro_batch": [4096, 8192]})

    told = str(searched_text(found.rows, found.keys, found.layouts, found.simulated)[-2])
    assert told.startswith("The scenario's own layout is the only one left; the commonest reason of others: job.")


@pytest.mark.slow
def test_layouts_of_different_batches_are_compared_per_token(tmp_path: Path) -> None:
    """The smaller batch has the shorter iteration; the larger one fills the pipeline better, and wins."""
    usual = {f"job.parallelism.{key}": [of] for key, of in (("zero", 1), ("context", 1), ("virtual_stages", 1))}
    few = {"job.micro_batch": [1], "job.schedule": ["1f1b"], "job.recompute": ["none"], "job.global_batch": [8, 32]}
    keys = {**usual, **few, "job.parallelism.tensor": [4, 8], "job.parallelism.pipeline": [2]}
    pruned = search(small(), tmp_path / "pruned", given=keys)
    whole = search(small(), tmp_path / "whole", given=keys, extent=Extent(exhaustive=True))

    done = [row for row in whole.rows if row["status"] == "done"]
    rates = [row["tokens_per_s"] for row in done]
    assert rates == sorted(rates, reverse=True)
    assert min(done, key=lambda row: row["iteration_time_s"])["tokens"] == 8 * 4096
    assert whole.rows[0]["tokens"] == 32 * 4096
    assert pruned.rows[0] == whole.rows[0]
    text = Console(width=160, record=True, file=io.StringIO())
    for part in searched_text(whole.rows, whole.keys, whole.layouts, whole.simulated):
        text.print(part)
    said = text.export_text()
    assert "Best layouts, by tokens per second" in said
    own = next(row for row in whole.rows if row["own"])
    assert f"{100 * (rates[0] / own['tokens_per_s'] - 1):.1f} % longer per token than the best" in said


@pytest.mark.parametrize("key", ["job.model", "job.model.layers"])
def test_models_are_not_searched_among(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=f"{key}: times of different models are not compared"):
        search(small(), tmp_path, given={key: [1, 2]})


def test_layouts_use_all_gpus_and_none_is_there_twice() -> None:
    keys = {
        "job.parallelism.tensor": [1, 2, 4],
        "job.parallelism.pipeline": [1, 2, 3],
        **KEYS,
    }
    found = list(layouts(16, keys))

    degrees = ("tensor", "pipeline", "data")
    for each in found:
        product = 1
        for name in degrees:
            product *= each[f"job.parallelism.{name}"]
        assert product == 16
    assert len({tuple(map(str, each.values())) for each in found}) == len(found)


def test_a_search_wants_a_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \[job\] to run"):
        search(load("hkbu"), tmp_path)


@pytest.mark.slow
def test_layouts_that_all_do_not_fit_are_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of .* layouts fits; such as: needs"):
        search(load("llama3-405b", {**MACHINE, "cluster.gpu.memory": "2GiB"}), tmp_path, given={"job.micro_batch": [8]})
    with pytest.raises(InputError, match=r"none of 0 layouts fits; no tensor, pipeline and context divide the 16 GPUs"):
        search(small(), tmp_path, given={"job.parallelism.tensor": [3]})


@pytest.mark.slow
def test_the_best_at_each_cost_is_what_simulating_all_finds(tmp_path: Path) -> None:
    few = {"job.schedule": ["1f1b"], "job.parallelism.zero": [1], "job.parallelism.tensor": [1, 8]}
    keys = {**KEYS, **few, "job.parallelism.pipeline": [1, 2], "fabric.link_rate": ["200Gbps", "400Gbps"]}
    pruned = search(small(), tmp_path / "pruned", given=keys, budget=Budget("list-400g"))
    whole = search(small(), tmp_path / "whole", given=keys, budget=Budget("list-400g"), extent=Extent(exhaustive=True))

    def frontier(rows: list[dict[str, Any]]) -> dict[float, float]:
        best: dict[float, float] = {}
        for row in (row for row in rows if row["status"] == "done"):
            cost = row[COST]
            best[cost] = min(best.get(cost, row["iteration_time_s"]), row["iteration_time_s"])
        return best

    # 16 GPUs on one switch of 128 x 200 or 64 x 400 Gb/s with a transceiver at both ends of each cable
    assert set(frontier(whole.rows)) == {36_000 / 16 + 2 * 320, 36_000 / 16 + 2 * 640}
    assert frontier(pruned.rows) == frontier(whole.rows)
    assert pruned.simulated < whole.simulated
    cheap = search(small(), tmp_path / "pruned", given=keys, budget=Budget("list-400g", cost=3000))
    assert {row[COST] for row in cheap.rows if row["status"] == "done"} == {2890}
    assert any(row["error"].startswith("costs US$ 3,530") for row in cheap.rows)
    text = Console(width=160, record=True, file=io.StringIO())
    for part in searched_text(pruned.rows, pruned.keys, pruned.layouts, pruned.simulated):
        text.print(part)
    assert "Best at each cost of the network" in text.export_text()


def test_networks_without_a_price_cannot_be_searched_by_cost(tmp_path: Path) -> None:
    said = r"price with fabric.link_rate = '100Gbps': .* no price of switch of 16 x 100 Gb/s"
    with pytest.raises(InputError, match=said):
        search(small(), tmp_path, given={**KEYS, "fabric.link_rate": ["100Gbps"]}, budget=Budget("list-400g"))


@pytest.mark.slow
def test_layouts_whose_network_has_no_price_are_out(tmp_path: Path) -> None:
    few = {"job.schedule": ["1f1b"], "job.parallelism.zero": [1], "job.parallelism.pipeline": [1]}
    keys = {**KEYS, **few, "fabric.link_rate": ["100Gbps", "400Gbps"]}
    rows = search(small(), tmp_path, given=keys, budget=Budget("list-400g")).rows

    out = [row for row in rows if row["fabric.link_rate"] == "100Gbps"]
    assert len(out) == len([row for row in rows if row["fabric.link_rate"] == "400Gbps" and not row["own"]])
    assert all("has no price with fabric.link_rate = '100Gbps'" in row["error"] for row in out)
    assert {row[COST] for row in out} == {None}
    assert {row["fabric.link_rate"] for row in rows if row["status"] == "done"} <= {"400Gbps", None}


def test_a_single_value_of_what_layouts_differ_in_is_the_only_one_tried() -> None:
    transports = ["roce-400g", "tcp-10g"]
    told = ["job.micro_batch=1", "cluster.hosts=4", "transport=roce-400g,tcp-10g"]

    assert _sorted(told) == (["cluster.hosts=4"], {"transport": transports, "job.micro_batch": [1]})
    assert set(choices(small().scenario, small().scenario.job, {})) == set(KEYS_OF_LAYOUTS)  # type: ignore[arg-type]


def test_only_interleaved_layouts_have_messages_beside_passes() -> None:
    degrees = {"tensor": 1, "pipeline": 2, "context": 1, "zero": 0, "data": 1, "virtual_stages": 1}

    for chunks in (1, 2):
        layout = {f"job.parallelism.{key}": value for key, value in {**degrees, "virtual_stages": chunks}.items()}
        assert ("pipeline_overlap" in job_tables({"pipeline_overlap": True, "parallelism": {}}, layout)) == (chunks > 1)


@pytest.mark.parametrize("tensor", [1, 2])
def test_only_layouts_that_split_products_have_gathers_beside_them(tensor: int) -> None:
    degrees = {"tensor": tensor, "pipeline": 1, "context": 1, "zero": 0, "data": 1, "virtual_stages": 1}
    layout = {f"job.parallelism.{key}": value for key, value in degrees.items()}

    base = {"product_overlap": True, "tensor_overlap": False, "parallelism": {}}
    assert job_tables(base, layout).keys() - {"parallelism"} == ({"product_overlap"} if tensor > 1 else set())


def test_a_layout_without_replicas_has_no_overlap_of_gradients() -> None:
    base = {"overlap": "ddp", "bucket": "1GiB", "prefetch": 2, "sharded_copies": "none", "parallelism": {}}
    degrees = {"tensor": 8, "pipeline": 2, "context": 1, "zero": 0, "data": 1, "virtual_stages": 1}

    def kept(**more: int) -> set[str]:
        layout = {f"job.parallelism.{key}": value for key, value in {**degrees, **more}.items()}
        return set(job_tables(base, layout)) & base.keys() - {"parallelism"}

    assert kept() == set()
    assert kept(context=2) == kept(data=2, zero=1) == {"overlap", "bucket"}
    assert kept(data=2, zero=3) == {"prefetch", "sharded_copies"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"job.microbatch": [1, 2]}, "job.microbatch: unknown key (did you mean 'micro_batch'?)"),
        ({"job.parallelism.zero": [1, 7]}, "job.parallelism.zero: 7 is too large (at most 3)"),
        ({"job.parallelism.tensor": [3]}, "no tensor, pipeline and context divide the 16 GPUs"),
    ],
)
def test_keys_and_values_that_no_job_has_are_refused(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(FabricsimError, match=re.escape(said)):
        search(small(), tmp_path, given=given)
