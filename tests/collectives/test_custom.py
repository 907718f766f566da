"""Algorithms of users: Python functions and XML files of MSCCL, checked before they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import simpy

from fabricsim.collectives import custom, recv_copy, recv_reduce, register, send, template, unregister
from fabricsim.collectives.custom import AlgorithmStep, Steps
from fabricsim.collectives.semantics import WrongAlgorithmError, check
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import InputError, ScenarioError
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from tests.reference import closed_forms
from tests.reference.scenarios import ideal_scenario

B = 12.5e9
A = 1e-6


def ring(rank: int, ranks: int) -> Iterator[AlgorithmStep]:
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        yield send(after, (rank - step) % ranks)
        yield recv_reduce(before, (rank - step - 1) % ranks)
    for step in range(ranks - 1):
        yield send(after, (rank - step + 1) % ranks)
        yield recv_copy(before, (rank - step) % ranks)


def lost(rank: int, ranks: int) -> Iterator[AlgorithmStep]:
    """The ring without its last step."""
    steps = list(ring(rank, ranks))
    yield from steps[:-2]


def twice(rank: int, ranks: int) -> Iterator[AlgorithmStep]:
    """The ring that reduces once more where it should copy."""
    for step in ring(rank, ranks):
        yield recv_reduce(step.peer, step.shard) if step.kind == "recv_copy" else step


def waiting(rank: int, ranks: int) -> Iterator[AlgorithmStep]:
    """All wait before they send."""
    yield recv_reduce((rank - 1) % ranks, 0)
    yield send((rank + 1) % ranks, 0)


def unread(rank: int, ranks: int) -> Iterator[AlgorithmStep]:
    yield from ring(rank, ranks)
    yield send((rank + 1) % ranks, 0)


def endless(rank: int, ranks: int) -> Iterator[AlgorithmStep]:
    while True:
        yield send((rank + 1) % ranks, 0)


@pytest.fixture
def mine() -> Iterator[Callable[[Steps], None]]:
    names: list[str] = []

    def add(algorithm: Steps) -> None:
        register("all_reduce", "mine", algorithm)
        names.append("mine")

    yield add
    for name in names:
        unregister("all_reduce", name)


def _took(made: Scenario, n: int, size: int, algorithm: str) -> float:
    keys = {"algorithm": {"all_reduce": algorithm}}
    made = made.model_copy(update={"collectives": made.collectives.model_copy(update=keys)})
    env = simpy.Environment()
    took: Any = env.run(Fabric(env, made).all_reduce(range(n), size))
    return float(took)


def test_an_algorithm_of_ones_own_runs_as_that_of_the_project(mine: Callable[[Steps], None]) -> None:
    mine(ring)
    assert _took(ideal_scenario(7), 7, 7 * 10**6, "mine") == pytest.approx(
        closed_forms.ring_all_reduce(7, 7e6, B, A), rel=1e-9
    )
    assert load("ideal-16", ["collectives.algorithm.all_reduce=mine"]).scenario.collectives.algorithm == {
        "all_reduce": "mine"
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "problem"),
    [
        (lost, "ends with the contributions of"),
        (twice, "counted twice"),
        (waiting, r"ranks \[0, 1, 2, 3\] wait for messages that never come"),
        (unread, "rank 0 sends 7 messages to rank 1, which waits for 6"),
        (endless, "more than 1000 steps"),
        (lambda rank, _: [send(rank, 0)], "peer must be another rank from 0 to 3"),
        (lambda rank, ranks: [send((rank + 1) % ranks, 3, 2)], "there are shards 0 to 3"),
        (lambda rank, ranks: [send((rank + 1) % ranks, "a")], r"send\(1, 'a', 1\): peer and shards are whole numbers"),
        (lambda rank, ranks: [send(float((rank + 1) % ranks), 0)], r"send\(1\.0, 0, 1\): peer and shards are whole"),
        (lambda _rank, _ranks: ["send"], r"test_custom\.py:\d+: algorithm 'mine' .* yield send"),
    ],
)
def test_a_wrong_algorithm_is_refused(
    mine: Callable[[Steps], None], algorithm: Steps, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom, "MOST_STEPS", 1000)
    mine(algorithm)
    with pytest.raises(WrongAlgorithmError, match=problem):
        template("all_reduce", 4, "mine")


def test_names_are_taken_once() -> None:
    with pytest.raises(InputError, match="has an algorithm 'tree' already"):
        register("all_reduce", "tree", ring)
    with pytest.raises(InputError, match="no collective"):
        register("reduce_all", "mine", ring)


@pytest.mark.parametrize(
    ("name", "algorithm", "shards", "said"),
    [
        ("", ring, None, "all_reduce: an algorithm is called ''; give it a name without blanks"),
        ("a b", ring, None, "an algorithm is called 'a b'; give it a name"),
        (5, ring, None, "an algorithm is called 5; give it a name"),
        ("mine", 5, None, "by_rank: steps is 5; give a function"),
        ("mine", ring, "x", "by_rank: shards is 'x'; give a function"),
        ("mine", ring, 1.5, r"by_rank: shards is 1\.5; give a function"),
    ],
)
def test_what_no_algorithm_can_be_is_refused_when_it_is_registered(
    name: Any,  # noqa: ANN401  what is wrong
    algorithm: Any,  # noqa: ANN401  as above
    shards: Any,  # noqa: ANN401  as above
    said: str,
) -> None:
    with pytest.raises(InputError, match=said):
        register("all_reduce", name, algorithm, shards=shards)


def test_a_buffer_is_cut_into_so_many_shards_at_most() -> None:
    for shards in (0, 10**9):
        with pytest.raises(
            WrongAlgorithmError, match=f"cuts the buffer into {shards} shards; at least 1, at most 1000000"
        ):
            custom.by_rank(ring, shards=shards).template("all_reduce", "mine", 2)


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast"])
def test_what_does_one_thing_does_not_pass_for_another(collective: str) -> None:
    others = {"all_reduce": "all_gather", "reduce_scatter": "all_gather", "all_gather": "reduce_scatter"}
    made = template(others.get(collective, "ring_exchange"), 6)
    with pytest.raises(WrongAlgorithmError):
        check(collective, made, "other")


# ---- MSCCL ---------------------------------------------------------------------------------------


def _ring_xml(ranks: int, **keys: str) -> str:
    """Ring all-reduce with one thread block per GPU, as msccl-tools writes it."""
    head = {"name": "ring", "proto": "Simple", "nchannels": "1", "nchunksperloop": str(ranks), "ngpus": str(ranks)}
    head |= {"coll": "allreduce", "inplace": "1", **keys}
    lines = ["<algo " + " ".join(f'{key}="{value}"' for key, value in head.items()) + ">"]
    for gpu in range(ranks):
        lines.append(f'<gpu id="{gpu}" i_chunks="{ranks}" o_chunks="0" s_chunks="0">')
        lines.append(f'<tb id="0" send="{(gpu + 1) % ranks}" recv="{(gpu - 1) % ranks}" chan="0">')
        kinds = ["s", *["rrcs"] * (ranks - 1), *["rcs"] * (ranks - 2), "r"]
        for step, kind in enumerate(kinds):
            at = (gpu - step) % ranks
            ends = f'srcbuf="i" srcoff="{at}" dstbuf="i" dstoff="{at}" cnt="1" depid="-1" deps="-1" hasdep="0"'
            lines.append(f'<step s="{step}" type="{kind}" {ends}/>')
        lines += ["</tb>", "</gpu>"]
    return "\n".join([*lines, "</algo>"])


TWO_BLOCKS = """<algo proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1">
{gpus}</algo>"""
GPU = """<gpu id="{me}" i_chunks="1" o_chunks="1" s_chunks="1">
<tb id="0" send="{other}" recv="-1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/></tb>
<tb id="1" send="-1" recv="{other}" chan="0">
<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="0" deps="0" hasdep="0"/></tb>
</gpu>
"""


def test_an_xml_file_runs_as_the_ring_that_it_describes(tmp_path: Path) -> None:
    file = tmp_path / "ring.xml"
    file.write_text(_ring_xml(5))
    took = _took(ideal_scenario(5), 5, 5 * 10**6, str(file))
    assert took == pytest.approx(closed_forms.ring_all_reduce(5, 5e6, B, A), rel=1e-9)
    file = tmp_path / "ll.xml"
    file.write_text(_ring_xml(5, proto="LL"))
    assert _took(ideal_scenario(5), 5, 5 * 10**6, str(file)) == pytest.approx(
        closed_forms.ring_all_reduce(5, 10e6, B, A), rel=1e-9
    )


def test_thread_blocks_wait_for_one_another(tmp_path: Path) -> None:
    file = tmp_path / "pair.xml"
    file.write_text(TWO_BLOCKS.format(gpus="".join(GPU.format(me=me, other=1 - me) for me in (0, 1))))
    made = template("all_reduce", 2, str(file))
    assert (made.strands, made.scratch, made.shards) == (2, 1, 1)
    assert _took(ideal_scenario(2), 2, 10**6, str(file)) == pytest.approx(A + 1e6 / B, rel=1e-9)


ENTITY = '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<algo", "is no XML"),
        (ENTITY + _ring_xml(4), "document type"),
        (_ring_xml(4, coll="allgather"), "is for all_gather, not for all_reduce"),
        (_ring_xml(4, coll="transpose"), "coll='transpose' is not known"),
        (_ring_xml(4, inplace="0"), "out of place"),
        (_ring_xml(5), "is for 5 ranks, not for 4"),
        (_ring_xml(4, nchunksperloop="many"), "'many' is no whole number"),
        (_ring_xml(4, nchunksperloop="3"), "are not there"),
        (_ring_xml(4).replace('"rcs"', '"rrc"', 1), "rank 0 sends 5 messages to rank 1, which waits for 6"),
        (_ring_xml(4).replace('"rcs"', '"fly"', 1), "step type 'fly' is not known"),
        (_ring_xml(4).replace('recv="3"', 'recv="2"'), "thread blocks of GPU"),
        (_ring_xml(4).replace('depid="-1"', 'depid="7"', 1), "depid=7 of GPU 0"),
        ("<gpu/>", "no whole number"),
        ("<algo2/>", "is not known, or not where it belongs"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "mine.xml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem):
        template("all_reduce", 4, str(file))


def test_a_file_lies_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(_ring_xml(16))
    scenario = tmp_path / "mine.toml"
    scenario.write_text('extends = "ideal-16"\n[collectives]\nalgorithm = { all_reduce = "ring.xml" }\n')
    loaded = load(scenario).scenario.collectives.algorithm
    assert loaded == {"all_reduce": str(tmp_path / "ring.xml")}
    scenario.write_text('extends = "ideal-16"\n[collectives]\nalgorithm = { all_reduce = "none.xml" }\n')
    with pytest.raises(ScenarioError, match=r"collectives\.algorithm\.all_reduce"):
        load(scenario)
