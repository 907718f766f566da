"""A folded run is the unfolded one: every rank, resource and rate, to the picosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
import simpy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.folding.fold import fold
from fabricsim.engine.folding.prepared import fold_onto
from fabricsim.engine.outcome import call_records, rate_series
from fabricsim.errors import SimulationError
from fabricsim.records.program import NONE, OVERLAPPED_STREAM
from fabricsim.run.pipeline import build_plan
from fabricsim.scenario.load import load
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, GroupSet
from tests.reference import training
from tests.reference.scenarios import ideal_scenario
from tests.reference.whole_program import WholeProgram

if TYPE_CHECKING:
    from fabricsim.engine.completions import Replay
    from fabricsim.engine.folding.folding import Folding
    from fabricsim.scenario.scenario import Scenario
    from fabricsim.workload.program import CollectiveName, Plan, Program

ROCE = {"kind": "roce", "latency": "2us"}
HOSTS_OF_4 = {"gpus_per_host": 4, "intra_host": "nvlink"}
MESHED = {**HOSTS_OF_4, "nvlinks_between": 4}
SQUARE = [[0, 2, 0, 4], [2, 0, 4, 0], [0, 4, 0, 2], [4, 0, 2, 0]]
"""NVLinks between four GPUs, none across."""


class Run(NamedTuple):
    fabric: Fabric
    program: Program
    replay: Replay


def run(made: Scenario, plan: Plan, *, folded: bool) -> Run | None:
    env = simpy.Environment()
    fabric = Fabric(env, made, taps=True)
    if not folded:
        program = plan.program(None)
    else:
        found = fold(fabric, plan)
        if found is None:
            return None
        program, folding = found
        fold_onto(fabric, folding)
    return Run(fabric, program, cast("Replay", env.run(fabric.replay(program))))


def assert_equal(whole: Run, folded: Run) -> None:
    """Every rank has the spans, and every resource the figures, of what stands for it."""
    folding = cast("Folding", folded.fabric.wiring.folding)
    for rank, stand_in in enumerate(folding.rank_of.tolist()):
        mine = whole.replay.spans[whole.program.ops["rank"] == rank]
        there = folded.replay.spans[folded.program.ops["rank"] == stand_in]
        assert mine.tolist() == there.tolist()
    assert folded.replay.end == whole.replay.end
    for figure in ("load", "payload"):
        mine, there = (run.fabric.world.resources[figure] for run in (whole, folded))
        assert there[folding.resource_of] == pytest.approx(mine, rel=1e-12)
    mine, there = (
        dict(zip(series.names, series.rate, strict=True))
        for series in (rate_series(each.fabric, each.replay.end) for each in (whole, folded))
    )
    for name in there.keys() & mine.keys():
        assert there[name] == pytest.approx(mine[name], rel=1e-9, abs=1e-3)
    # Which resource limits a call is an index into another list, and of several used alike another may be named.
    mine, there = ({call._replace(limit=NONE, used=0.0) for call in call_records(*run)} for run in (whole, folded))
    assert there == mine


def folded_to(made: Scenario, plan: Plan) -> int:
    """Ranks that stand for all, after a comparison of both runs."""
    folded = run(made, plan, folded=True)
    if folded is None:
        return plan.ranks
    assert_equal(cast("Run", run(made, plan, folded=False)), folded)
    assert folded.program.ranks == plan.ranks
    return len(folded.program.representatives or ())


def test_a_folded_call_uses_what_limits_it_as_all_calls_alike_do() -> None:
    """Four rings side by side over one adapter use it as one: 3/4 of 4 x 1 MB at 12.5 GB/s, in 246 us."""
    made = ideal_scenario(4, channels=2, chunk="64KiB", cluster=HOSTS_OF_4)
    plan = training.Training(data=4, tensor=4)
    found = [call_records(*cast("Run", run(made, plan, folded=folded))) for folded in (True, False)]

    mine, there = ({round(call.used, 9) for call in calls if call.dimension == "data"} for calls in found)
    assert mine == there
    assert min(mine) > 0.9


@pytest.mark.slow
def test_slow_gpus_fold_if_they_come_again_and_no_further() -> None:
    """Every fourth GPU is slow: the four places between two of them are told apart, and no others."""
    settings = ["transport=ideal-100g", "collectives=ideal", "cluster=ideal", "cluster.hosts=16"]
    job = ["job.parallelism.data=16", "job.global_batch=128"]
    loaded = load("gpt2-medium-dp", [*settings, *job, 'cluster.gpu_speed={"0-15/4" = 0.8}'])

    assert folded_to(loaded.scenario, build_plan(loaded)) == 4


# ---- what folds, and to how much ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "cluster", "ranks"),
    [
        # a ring over hosts of one GPU: all are alike
        ({"data": 8}, {}, 1),
        # rings side by side over the adapters of the hosts
        ({"data": 4, "tensor": 4}, HOSTS_OF_4, 1),
        ({"data": 4, "tensor": 4}, MESHED, 1),
        ({"data": 8, "tensor": 2}, {**HOSTS_OF_4, "nvlinks_between": SQUARE}, 2),
        # one ring through the hosts: alike are those with the same place in their host
        ({"data": 16}, HOSTS_OF_4, 4),
        # stages differ, and stages that lie together in a host fold by host
        ({"pipeline": 4, "data": 8}, {}, 4),
        ({"pipeline": 4, "data": 4, "order": "DPT"}, HOSTS_OF_4, 4),
        ({"tensor": 4, "pipeline": 2, "data": 4}, HOSTS_OF_4, 2),
        # a chain's members do different things
        ({"tensor": 4, "data": 4, "tensor_collective": "broadcast"}, HOSTS_OF_4, 4),
        # shards that differ by a byte
        ({"data": 8, "data_bytes": 10**6 + 1}, {}, 8),
        ({"tensor": 4, "data": 4, "tensor_bytes": 10**6 + 1}, HOSTS_OF_4, 4),
        # six ranks on hosts of four: one host is half empty
        ({"tensor": 2, "data": 3}, HOSTS_OF_4, 3),
    ],
)
def test_alike_ranks_fold(job: dict[str, Any], cluster: dict[str, Any], ranks: int) -> None:
    plan = training.Training(**job)
    made = ideal_scenario(-(-plan.ranks // cluster.get("gpus_per_host", 1)), channels=2, chunk="64KiB", cluster=cluster)

    assert folded_to(made, plan) == ranks


@pytest.mark.parametrize(("cluster", "ranks"), [({}, 1), (HOSTS_OF_4, 4)])
def test_members_of_an_all_to_all_fold_with_what_they_send_and_receive(cluster: dict[str, Any], ranks: int) -> None:
    builder = ProgramBuilder(["all"])
    call = builder.call(Call("all_to_all", tuple(range(8)), 8 * 10**5, "expert"))
    for rank in range(8):
        builder.join(call, rank, "all")
    made = ideal_scenario(8 // cluster.get("gpus_per_host", 1), send_chunk="16KiB", cluster=cluster)

    assert folded_to(made, WholeProgram(builder.build())) == ranks


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize(("durations", "ranks"), [((10**6,), 2), ((10**6, 10**7), 4), ((10**6, 10**7, 10**8), 8)])
@pytest.mark.parametrize("chunk", [2**40, 2**14])
def test_members_that_a_switch_serves_in_a_row_fold(
    collective: CollectiveName, durations: tuple[int, ...], ranks: int, chunk: int
) -> None:
    """Three durations do not repeat among four members, so that none stands for another."""
    builder = ProgramBuilder(["all"])
    hosts = [tuple(range(first, first + 4)) for first in (0, 4)]
    switched = [builder.call(Call(collective, host, 10**6, "tensor")) for host in hosts]
    sent = [builder.call(Call("all_to_all", host, 4 * 10**5, "expert")) for host in hosts]
    across = [builder.call(Call("send_recv", pair, 10**6, "pipeline")) for pair in zip(*hosts, strict=True)]
    for rank in range(8):
        builder.compute(rank, durations[rank % 4 % len(durations)], "all")
        for call in (across[rank % 4], sent[rank // 4], switched[rank // 4]):
            builder.join(call, rank, "all")
    made = ideal_scenario(2, cluster=HOSTS_OF_4)
    keys = {"algorithm": {collective: "nvls"}, "chunk": chunk, "intra_host_step": 2_000_000}
    made = made.model_copy(update={"collectives": made.collectives.model_copy(update=keys)})

    assert folded_to(made, WholeProgram(builder.build())) == ranks


@pytest.mark.parametrize(("transport", "ranks"), [({}, 1), ({"kind": "tcp", "initial_window": 65536}, 2)])
def test_pairs_that_two_groups_share_tell_no_others_apart(transport: dict[str, Any], ranks: int) -> None:
    """Ranks 0 and 1 are neighbours in the ring and in a half, 1 and 2 in the ring alone: only TCP remembers that."""
    builder = ProgramBuilder(["all"])
    ring = builder.call(Call("all_gather", (0, 1, 2, 3), 4 * 10**5, "data"))
    halves = [builder.call(Call("all_to_all", half, 10**5, "expert")) for half in ((0, 1), (2, 3))]
    for rank in range(4):
        builder.join(ring, rank, "all")
        builder.join(halves[rank // 2], rank, "all")
    made = ideal_scenario(4, transport=transport)

    assert folded_to(made, WholeProgram(builder.build())) == ranks


@pytest.mark.slow
@pytest.mark.parametrize(("routing", "ranks"), [("ecmp", 8), ("d-mod-k", 4)])
def test_folding_follows_the_routes(routing: str, ranks: int) -> None:
    made = ideal_scenario(16, "leaf-spine", channels=2, chunk="64KiB", hosts_per_leaf=4, spines=4, routing=routing)

    assert folded_to(made, training.Training(data=16, data_bytes=32 * 10**5)) == ranks


def test_adapters_that_read_ahead_keep_ranks_apart() -> None:
    plan = training.Training(data=8)

    assert folded_to(ideal_scenario(8, channels=2, cluster={"join": "pcie"}), plan) == 8
    assert folded_to(ideal_scenario(8, channels=2, cluster={"join": "pcie"}, transport=ROCE), plan) == 1


@pytest.mark.slow
def test_a_plan_that_folds_never_writes_out_all_ranks() -> None:
    plan = training.Training(tensor=4, pipeline=4, data=64, data_bytes=128 * 10**4)
    made = ideal_scenario(256, channels=2, cluster=HOSTS_OF_4)

    folded = cast("Run", run(made, plan, folded=True))

    assert plan.asked == [4]
    assert folded.program.ranks == 1024
    assert len(folded.program.representatives or ()) == 4
    assert {len(call.ranks) for call in folded.program.calls if call.dimension == "data"} == {64}


def test_groups_alike_are_one_though_their_stand_ins_are_in_different_ones() -> None:
    def crossed(size: int) -> WholeProgram:
        builder = ProgramBuilder(["all"])
        calls = [builder.call(Call("all_reduce", ring, size, "data")) for ring in ((0, 3), (2, 1))]
        for rank in range(4):
            builder.compute(rank, (10**6, 10**6, 10**8, 10**8)[rank], "all")
            builder.join(calls[rank in {1, 2}], rank, "all")
        return WholeProgram(builder.build())

    plan = crossed(10**6)
    made = ideal_scenario(4, channels=2, chunk="64KiB")

    assert folded_to(made, plan) == 2
    assert folded_to(made, crossed(10**6 + 1)) == 4  # ranks 0 and 1 send shards that differ by a byte
    folded = cast("Run", run(made, plan, folded=True))
    assert folded.program.representatives == (0, 2)
    assert [call.ranks for call in folded.program.calls] == [(0, 3)]
    assert folded.program.ops["member"][folded.program.ops["call"] == 0].tolist() == [0, 1]


def test_calls_that_ranks_issue_in_different_orders_stay_as_they_are() -> None:
    builder = ProgramBuilder(["all"])
    calls = [[builder.call(Call("all_reduce", ring, 10**6, "data")) for _ in "ab"] for ring in ((0, 2), (1, 3))]
    for rank in range(4):
        durations = (10**6, 10**8) if rank < 2 else (10**8, 10**6)
        first = builder.compute(rank, 10**7, "all")
        for call, duration in zip(calls[rank % 2][:: 1 if rank < 2 else -1], durations, strict=True):
            builder.join(call, rank, "all", stream=OVERLAPPED_STREAM, after=[first])
            first = builder.compute(rank, duration, "all")

    assert folded_to(ideal_scenario(4), WholeProgram(builder.build())) == 4


# ---- any job ------------------------------------------------------------------------------------


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    unit = 12 * draw(st.sampled_from([1000, 4096]))
    sizes = st.builds(lambda times, odd: times * unit + odd, st.sampled_from([1, 7, 64]), st.sampled_from([0, 0, 0, 1]))
    return {
        "tensor": draw(st.sampled_from([1, 2, 4])),
        "pipeline": draw(st.sampled_from([1, 2, 3])),
        "data": draw(st.sampled_from([1, 2, 3, 4])),
        "order": "".join(draw(st.permutations("PDT"))),
        "tensor_bytes": draw(sizes),
        "pipeline_bytes": draw(sizes),
        "data_bytes": draw(sizes),
        "tensor_collective": draw(st.sampled_from(["all_reduce", "all_gather", "broadcast"])),
        "micro_batches": draw(st.integers(1, 3)),
        "durations": tuple(draw(st.lists(st.sampled_from([0, 10**7, 123_456_789]), min_size=1, max_size=3))),
        "overlap": draw(st.booleans()),
    }


@st.composite
def places(draw: st.DrawFn) -> dict[str, Any]:
    network: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"topology": "single-switch"},
                {"topology": "leaf-spine", "hosts_per_leaf": 2, "spines": 1},
                {"topology": "leaf-spine", "hosts_per_leaf": 2, "spines": 2, "routing": "d-mod-k"},
                {"topology": "leaf-spine", "hosts_per_leaf": 4, "spines": 2, "routing": "ecmp"},
                {"topology": "fat-tree", "routing": "d-mod-k"},
            ]
        )
    )
    cluster = {
        "gpus_per_host": draw(st.sampled_from([1, 2, 4])),
        "join": draw(st.sampled_from(["ideal", "pcie"])),
        "intra_host": draw(st.sampled_from(["nvlink", "shared-memory"])),
        "nvlinks_between": draw(st.sampled_from(["switch", 4, SQUARE])),
    }
    return {
        **network,
        "cluster": cluster,
        "transport": draw(st.sampled_from([{}, ROCE])),
        "channels": draw(st.integers(1, 3)),
        "chunk": draw(st.sampled_from(["1TiB", "16KiB"])),
    }


@pytest.mark.slow
@settings(max_examples=30)
@given(job=jobs(), place=places())
def test_any_folded_run_is_the_unfolded_one(job: dict[str, Any], place: dict[str, Any]) -> None:
    plan = training.Training(**job)
    assume(plan.ranks > 1)
    hosts = -(-plan.ranks // place["cluster"]["gpus_per_host"])

    folded_to(ideal_scenario(hosts, **place), plan)


@pytest.mark.slow
@settings(max_examples=10)
@given(job=jobs())
def test_ranks_that_are_written_out_fold_as_the_plan_does(job: dict[str, Any]) -> None:
    plan = training.Training(**job)
    assume(plan.ranks > 1)
    made = ideal_scenario(plan.ranks)

    assert folded_to(made, WholeProgram(plan.program(None))) <= folded_to(made, plan)


# ---- what cannot be folded ----------------------------------------------------------------------


def test_programs_of_some_ranks_need_their_folding() -> None:
    fabric = Fabric(simpy.Environment(), ideal_scenario(4))

    with pytest.raises(SimulationError, match="operations of some ranks only: give the fabric its folding first"):
        fabric.replay(training.Training(data=4).program([0]))


def test_used_fabrics_cannot_be_folded() -> None:
    fabric = Fabric(simpy.Environment(), ideal_scenario(4))
    _, folding = fold(fabric, training.Training(data=4)) or (None, None)
    assert folding is not None
    fabric.send(0, 1, 10)

    with pytest.raises(SimulationError, match="nothing was sent on yet can be folded"):
        fold_onto(fabric, folding)


def test_folded_fabrics_carry_their_program_only() -> None:
    fabric = Fabric(simpy.Environment(), ideal_scenario(4))
    _, folding = fold(fabric, training.Training(data=4)) or (None, None)
    assert folding is not None
    fold_onto(fabric, folding)

    with pytest.raises(SimulationError, match="no call of the folded program sends from rank 0 to 2"):
        fabric.send(0, 2, 10)
    with pytest.raises(SimulationError, match="the folded program has no broadcast over"):
        fabric.broadcast([0, 1], 10)


def test_calls_over_groups_that_the_plan_lacks_are_refused() -> None:
    class Forgetful(training.Training):  # type: ignore[name-defined, misc]
        @property
        def groups(self) -> tuple[GroupSet, ...]:
            return tuple(groups for groups in super().groups if groups.dimension != "data")

    with pytest.raises(SimulationError, match=r"the plan has no data group \(0, 1, 2, 3\) for reduce_scatter"):
        fold(Fabric(simpy.Environment(), ideal_scenario(4)), Forgetful(data=4))


def test_plans_larger_than_the_cluster_are_refused() -> None:
    with pytest.raises(SimulationError, match="runs on 8 ranks, the cluster has 4: add hosts"):
        fold(Fabric(simpy.Environment(), ideal_scenario(4)), training.Training(data=8))
