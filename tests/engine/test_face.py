"""What a user of the SimPy face gives and reads: scenarios by name, programs on any ranks, use of links."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

import fabricsim as fs

Process = Generator[simpy.Event, Any, None]

SECOND = 12_500_000_000  # bytes that a link of the ideal fabric carries in a second


def _fabric(*settings: str) -> tuple[simpy.Environment, fs.Fabric]:
    env = simpy.Environment()
    return env, fs.Fabric(env, fs.load("ideal-16", settings))


# ---- what a fabric and a simulation are made of --------------------------------------------------


def test_a_fabric_is_made_of_a_name_of_what_load_gives_and_of_a_scenario() -> None:
    loaded = fs.load("ideal-16")
    took = set()
    for given in ("ideal-16", loaded, loaded.scenario):
        env = simpy.Environment()
        took.add(env.run(fs.Fabric(env, given).send(0, 1, SECOND)))
    assert len(took) == 1


def test_a_simulation_takes_a_name() -> None:
    assert fs.simulate("gpt2-medium-dp").iteration == fs.simulate(fs.load("gpt2-medium-dp")).iteration


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fs.Fabric(simpy.Environment(), None), r"not of type NoneType: write Fabric\(env, load\("),  # type: ignore[arg-type]  # the mistake
        (lambda: fs.simulate(7), r"not of type int: write load\("),  # type: ignore[arg-type]  # the mistake
        (lambda: fs.simulate(fs.load("ideal-16").scenario), r"not of type Scenario: write load\("),  # type: ignore[arg-type]  # the mistake
        (lambda: fs.simulate("ideal-16"), r"there is no \[job\] to run"),
        (lambda: fs.program("ideal-16"), r"there is no \[job\] to run"),
        (lambda: fs.Fabric(simpy.Environment(), "ideal-61"), "ideal-16"),
    ],
)
def test_what_is_no_scenario_is_refused_with_the_way_out(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(fs.FabricsimError, match=message):
        call()


# ---- programs -----------------------------------------------------------------------------------


def test_a_program_takes_as_long_on_any_ranks_of_a_switch() -> None:
    env = simpy.Environment()
    fabric = fs.Fabric(env, fs.load("gpt2-medium-dp", ["cluster.hosts=24"]))
    job = fs.program("gpt2-medium-dp")
    places = [range(8), range(16, 24), [15, 9, 11, 13, 8, 10, 12, 14]]
    jobs = [fabric.replay(job, ranks=place) for place in places]
    env.run(env.all_of(jobs))

    alone = fs.simulate("gpt2-medium-dp").iteration
    assert [each.value.end for each in jobs] == [alone] * 3


def test_two_jobs_share_what_both_cross() -> None:
    shape = 'fabric={topology="leaf-spine", hosts_per_leaf=2, spines=1}'
    env, fabric = _fabric("cluster.hosts=4", shape)
    size = SECOND // 10
    # each ring crosses each uplink in full: 3/2 of the buffer, at half of the rate
    rings = [fabric.all_reduce([0, 2], size), fabric.all_reduce([1, 3], size)]
    env.run(env.all_of(rings))
    assert [ring.value for ring in rings] == pytest.approx([0.2, 0.2], rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (range(4), "a program of 8 ranks cannot be placed on 4: give as many as it has"),
        (range(10, 18), "rank 16 cannot be reached: the cluster has ranks 0 to 15"),
        ([0] * 8, "each rank once"),
    ],
)
def test_ranks_that_a_program_cannot_be_placed_on_are_refused(ranks: list[int], message: str) -> None:
    fabric = fs.Fabric(simpy.Environment(), fs.load("gpt2-medium-dp", ["cluster.hosts=16"]))
    with pytest.raises(fs.SimulationError, match=message):
        fabric.replay(fs.program("gpt2-medium-dp"), ranks=ranks)


# ---- what links have carried ---------------------------------------------------------------------


def test_links_tell_what_they_carried_and_for_how_long() -> None:
    env, fabric = _fabric()
    env.run(fabric.send(0, 1, SECOND // 10))
    used = fabric.links()

    assert used["host0->switch0"] == used["switch0->host1"]
    assert used["host0->switch0"].payload == SECOND // 10
    assert used["host0->switch0"].busy == pytest.approx(env.now, rel=1e-4)
    assert used["host1->switch0"].payload == used["host1->switch0"].busy == 0


def test_links_tell_of_what_is_on_its_way() -> None:
    env, fabric = _fabric()
    whole = fabric.send(0, 1, SECOND)
    env.run(until=0.25)
    quarter = fabric.links()["host0->switch0"]
    env.run(whole)

    assert quarter.payload / SECOND == pytest.approx(0.25 / env.now, rel=1e-3)
    assert fabric.links()["host0->switch0"].payload == SECOND


def test_links_of_packets_count_headers_as_time_and_not_as_payload() -> None:
    env, fabric = _fabric("engine=packet")
    env.run(fabric.send(0, 1, SECOND // 1000))
    used = fabric.links()["host0->switch0"]

    assert used.payload == SECOND // 1000
    assert used.busy == pytest.approx(env.now, rel=0.01)


def test_time_in_use_is_in_units_of_the_environment() -> None:
    env = simpy.Environment()
    fabric = fs.Fabric(env, "ideal-16", time_unit=1_000_000)  # a microsecond
    env.run(fabric.send(0, 1, SECOND // 1000))
    assert fabric.links()["host0->switch0"].busy == pytest.approx(env.now, rel=0.01)


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_process_can_catch_that_there_is_no_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    cables = "a,b,gbps,delay_ns\nhost0,s0,100,25\nhost1,s0,100,25\nhost2,s1,100,25\nhost3,s1,100,25\n"
    (tmp_path / "islands.csv").write_text(cables, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    env, fabric = _fabric(f"engine={engine}", "cluster.hosts=4", 'fabric={topology="file", links="islands.csv"}')
    said = []

    def user() -> Process:
        for post in (lambda: fabric.send(0, 2, 1000), lambda: fabric.all_reduce(range(4), 1000)):
            try:
                yield post()
            except fs.SimulationError as error:
                said.append(str(error))
        yield fabric.send(0, 1, 1000)

    env.run(env.process(user()))
    assert ["no cable leads from host" in each for each in said] == [True, True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda fabric: fabric.set_loss("host0-switch0", 2), "a bit error rate of 2"),
        (lambda fabric: fabric.set_loss("host0-switch0", -1), "a bit error rate of -1"),
        (lambda fabric: fabric.set_rate("host0-switch0", "0bps"), "a rate of '0bps'"),
    ],
)
def test_rates_and_losses_that_no_cable_has_are_refused(change: Callable[[fs.Fabric], None], said: str) -> None:
    with pytest.raises(fs.FabricsimError, match=said):
        change(_fabric()[1])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fs.load("ideal-16", "cluster.hosts=4"), "is one text, not several values; write"),
        (lambda: fs.compare("gpt2-medium-dp", {"transport": "tcp-10g"}), "is one text, not several values"),
        (lambda: fs.compare("gpt2-medium-dp", {"transport": ["tcp-10g"]}, jobs=0), "jobs 0"),
        (lambda: fs.traffic("incast", "ideal-16", flows=2.5), "flows 2.5"),  # type: ignore[arg-type]
        (lambda: fs.traffic("incast", "ideal-16", size=10), "size 10"),  # type: ignore[arg-type]
        (lambda: fs.Watch.parse("queue:*"), r"taps: 'queue:\*' is one text, not several values; write \['queue:\*'\]"),
        (lambda: fs.replay([], "dgx-a100"), "trace: there are none"),
        (
            lambda: fs.replay("dlrm-v100", "gpt2-medium-dp", overrides={"job.micro_batch": 2}),
            "^job: the job is that of the trace; say what is to be otherwise by gpu_speed or scale_to",
        ),
        (lambda: fs.bench("all_reduce", "ideal-16", sizes=[]), "sizes: there are none"),
        (lambda: fs.bench("all_reduce", "ideal-16", sizes=[1024, 1.5]), "sizes 1.5: give a whole number"),
        (lambda: fs.compare("gpt2-medium-dp", {"transport": []}), r"over\['transport'\]: there are none"),
    ],
)
def test_what_a_verb_cannot_take_is_said(call: Callable[[], object], said: str) -> None:
    with pytest.raises(fs.FabricsimError, match=said):
        call()


@pytest.mark.parametrize(
    "sizes", [(1024, 4096), iter([1024, 4096]), np.array([1024, 4096]), [1024.0, 4096.0]], ids=type
)
def test_sizes_are_what_gives_whole_numbers(sizes: Iterable[int]) -> None:
    times = fs.bench("all_reduce", "ideal-16", sizes=sizes)

    assert [(size, type(size)) for size in times] == [(1024, int), (4096, int)]


def test_compared_values_are_what_gives_some() -> None:
    transports = (name for name in ("tcp-10g", "rdma-100g"))

    results = fs.compare("gpt2-medium-dp", {"transport": transports, "seed": np.array([3])})

    assert [result.transport for result in results] == ["tcp-10g", "rdma-100g"]
    assert [result.seed for result in results] == [3, 3]


UNTYPED: Any = fs  # for what a type checker would refuse
REPLAYED = "dlrm-v100", "dgx-a100"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: UNTYPED.load(5), "scenario: this is of type int; give a file"),
        (lambda: UNTYPED.load(fs.load("ideal-16")), "scenario: this is of type LoadedScenario"),
        (lambda: UNTYPED.load("ideal-16", 5), "overrides: 5 is of type int"),
        (lambda: UNTYPED.load("ideal-16", [5]), "overrides 5: give a text"),
        (lambda: UNTYPED.simulate("gpt2-medium-dp", overrides=None), "overrides: None is of type NoneType"),
        (lambda: UNTYPED.read(None), "path: this is of type NoneType"),
        (lambda: UNTYPED.write(None, "x.csv"), "graph: this is of type NoneType; give a networkx graph"),
        (lambda: UNTYPED.replay("dlrm-v100", fs.load("ideal-16")), "fabric: this is of type LoadedScenario"),
        (lambda: UNTYPED.replay("dlrm-v100", "dgx-a100", transport=5), "transport: this is of type int"),
        (lambda: UNTYPED.replay(5, "dgx-a100"), "trace: 5 is of type int"),
        (lambda: UNTYPED.replay([5], "dgx-a100"), "trace: this is of type int"),
        *(
            (lambda name=name, value=value: UNTYPED.replay(*REPLAYED, **{name: value}), f"{name} {value!r}: give")
            for name, value in {"gpu_speed": "2", "message_size": True, "scale_to": "16", "form": 3, "only": 3}.items()
        ),
        (lambda: UNTYPED.traffic(None, "ideal-16"), "demand: this is of type NoneType"),
        (lambda: UNTYPED.traffic([(0, 1, 100)], "ideal-16"), "demand: this is of type list"),
        (lambda: UNTYPED.traffic("poisson", "ideal-16", load="0.5"), "load '0.5': give a number"),
        (lambda: UNTYPED.traffic("incast", "ideal-16", flows=True), "flows True: give a whole number"),
        (lambda: UNTYPED.bench([], "ideal-16"), "test: this is of type list"),
        (lambda: UNTYPED.bench("all_reduce", "ideal-16", sizes=1024), r"not several values; write \[1024\]"),
        (lambda: UNTYPED.bench("all_reduce", "ideal-16", sizes=[True]), "sizes True: give a whole number"),
        (lambda: UNTYPED.bench("all_reduce", "ideal-16", sizes=[10**400]), "sizes 1000"),
        (lambda: UNTYPED.traffic("poisson", "ideal-16", load=float("nan")), "load nan: give a number"),
        (lambda: UNTYPED.compare("gpt2-medium-dp", {"seed": 2}), r"over\['seed'\]: 2 is of type int"),
        (lambda: UNTYPED.compare("gpt2-medium-dp", [1]), "over: this is of type list; give a dict"),
        (lambda: UNTYPED.compare("gpt2-medium-dp", {"seed": [1]}, jobs="2"), "jobs '2': give a whole number"),
        (lambda: UNTYPED.compare("gpt2-medium-dp", {"seed": [1]}, jobs=1.5), "jobs 1.5: give a whole number"),
        (lambda: UNTYPED.simulate("gpt2-medium-dp", watch=["queue:*"]), "watch: this is of type list; give what"),
        (lambda: UNTYPED.Watch.parse([5]), "taps 5: give a text"),
    ],
)
def test_what_is_of_a_wrong_type_is_an_input_error(call: Callable[[], object], said: str) -> None:
    with pytest.raises(fs.InputError, match=said):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    loaded = fs.load("ideal-16", {"seed": np.int64(2), "cluster.gpu_speed": np.float64(0.5)})

    assert (loaded.scenario.seed, loaded.resolved["cluster"]["gpu_speed"]) == (2, 0.5)
    assert len(fs.traffic("incast", "ideal-16", size="1kB", flows=np.int64(2)).completion) == 2


def test_a_replay_takes_no_argument_that_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'gpuspeed'"):
        fs.replay("dlrm-v100", "dgx1-v100", gpuspeed=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_wire_that_was_slow_for_a_while_is_used_for_what_it_carried(engine: str) -> None:
    """Its use is that of the wire as built, in both engines."""
    slow = {"link": "host0-switch0", "from": "0ms", "until": "3ms", "rate": "10Gbps"}
    changes = {"engine": engine, "fabric.failures": [slow], "transport": "roce-100g"}
    env = simpy.Environment()
    fabric = fs.Fabric(env, fs.load("ideal-16", changes))

    env.run(fabric.send(0, 1, 5_000_000))
    links = fabric.links()

    assert links["host0->switch0"].busy < env.now
    assert links["host0->switch0"].busy == pytest.approx(links["switch0->host1"].busy, rel=0.03)
