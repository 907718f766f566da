"""Algorithms of users as Chakra files, one per rank."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.collectives import chakra, recv_copy, recv_reduce, register, send, template, unregister
from fabricsim.collectives.choice import from_settings
from fabricsim.collectives.custom import AlgorithmStep
from fabricsim.collectives.lowering import Lowering
from fabricsim.collectives.nccl.plan import chooser
from fabricsim.errors import InputError, ScenarioError, TraceError
from fabricsim.results.summary import summarise
from fabricsim.run.pipeline import simulate
from fabricsim.scenario.collectives import ALGORITHMS
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from fabricsim.traces.astrasim import scenario as astrasim_scenario
from fabricsim.traces.chakra.schema import (
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    Attribute,
    ChakraNode,
    Metadata,
    decode_metadata,
    encode_file_message,
    encode_metadata,
    encode_node,
    messages,
)
from fabricsim.traces.chakra.writer import write
from fabricsim.traces.export import exported
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, CollectiveName
from tests.reference import mutations
from tests.reference.scenarios import ideal_scenario, measure

Ranks = list[list[ChakraNode]]

SIZE = 840_000  # whole shards for 2 to 8 ranks
EXAMPLE = "examples/system/custom_collectives"


def written(folder: Path, collective: CollectiveName, algorithm: str, ranks: int) -> str:
    """Write one call of an algorithm by the writer of traces; returns the name by which scenarios know it."""
    builder = ProgramBuilder(["all"])
    call = builder.call(Call(collective, tuple(range(ranks)), SIZE, "data"))
    for rank in range(ranks):
        builder.join(call, rank, "all")
    program = builder.build()
    write(exported(program, "job", Lowering(program, {collective: algorithm})), folder / "own")
    return f"{folder / 'own'}.*.et@{SIZE}B"


def _with(made: Scenario, collective: str, algorithm: str, rate: float | None = None) -> Scenario:
    keys = {"algorithm": {collective: algorithm}, "reduction_rate": rate}
    return made.model_copy(update={"collectives": made.collectives.model_copy(update=keys)})


def _shares(collective: str, algorithm: str, ranks: int) -> np.ndarray[Any, Any]:
    """Share of the buffer that goes from each rank to each other."""
    made = template(collective, ranks, algorithm)
    shares, of = np.zeros((ranks, ranks)), made.shares()
    for lane, out in np.argwhere(made.connections[:, :, 0] >= 0).tolist():
        shares[made.owner(lane), made.owner(made.connections[lane, out, 0])] += of[lane, out]
    return shares


_POWERS_ONLY = {("reduce_scatter", "recursive_halving"), ("all_gather", "recursive_doubling")}
FLAT = [(one, name) for name, each in ALGORITHMS.own.items() for one in each.of if not each.by_host]
_KNOWN = [
    (key, ranks)
    for key in FLAT
    for ranks in (2, 5, 8)
    if key[0] in chakra.COLLECTIVES and (ranks != 5 or key not in _POWERS_ONLY)
]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "ranks"), _KNOWN)
def test_what_the_writer_writes_runs_as_the_algorithm_itself(
    tmp_path: Path, key: tuple[CollectiveName, str], ranks: int
) -> None:
    (collective, algorithm), made = key, ideal_scenario(ranks)
    name = written(tmp_path, collective, algorithm, ranks)

    for size in (SIZE, 3 * SIZE):
        took, itself = (
            measure(_with(made, collective, one), collective, range(ranks), size) for one in (name, algorithm)
        )
        assert took == pytest.approx(itself, rel=1e-9)
    np.testing.assert_allclose(_shares(collective, name, ranks), _shares(collective, algorithm, ranks), atol=1e-12)


def test_packets_take_the_same_time(tmp_path: Path) -> None:
    made = ideal_scenario(4).model_copy(update={"engine": "packet"})
    name = written(tmp_path, "all_reduce", "ring", 4)

    took, itself = (measure(_with(made, "all_reduce", one), "all_reduce", range(4), SIZE) for one in (name, "ring"))
    assert took == itself


@pytest.mark.slow
@settings(max_examples=25)
@given(data=st.data())
def test_a_python_function_and_its_chakra_files_take_the_same_time(data: st.DataObject) -> None:
    """Any tree of ranks reduces up and copies down, in one part or two."""
    above = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    above = [parent % (child + 1) for child, parent in enumerate(above)]  # of ranks 1, 2, ...
    parts, ranks = data.draw(st.integers(1, 2)), len(above) + 1

    def tree(rank: int, _ranks: int) -> Iterator[AlgorithmStep]:
        children = [child + 1 for child, parent in enumerate(above) if parent == rank]
        for part in range(parts):
            for child in children:
                yield recv_reduce(child, part)
            if rank:
                yield send(above[rank - 1], part)
        for part in range(parts):
            if rank:
                yield recv_copy(above[rank - 1], part)
            for child in children:
                yield send(child, part)

    register("all_reduce", "any-tree", tree, shards=parts)
    try:
        with TemporaryDirectory() as folder:
            name = written(Path(folder), "all_reduce", "any-tree", ranks)
            made = ideal_scenario(ranks)
            took, itself = (
                measure(_with(made, "all_reduce", one), "all_reduce", range(ranks), SIZE) for one in (name, "any-tree")
            )
            assert took == pytest.approx(itself, rel=1e-9)
    finally:
        unregister("all_reduce", "any-tree")


# ---- files as ASTRA-sim's converter writes them ---------------------------------------------------


def ring(ranks: int = 3, duration: int = 0) -> Ranks:
    """Ring all-reduce of chunks of 1000 bytes: a reduction follows each receive of the first turn."""
    made: Ranks = []
    for rank in range(ranks):
        nodes: list[ChakraNode] = []
        for step in range(2 * (ranks - 1)):
            for kind in (COMM_SEND, COMM_RECV, *([COMP] if step < ranks - 1 else [])):
                before = (len(nodes) - 1,) if nodes else ()
                nodes.append(
                    ChakraNode(len(nodes), f"step {step}", kind, (), before, duration=duration * (kind == COMP))
                )
                end, peer = ("dst", rank + 1) if kind == COMM_SEND else ("src", rank - 1)
                if kind != COMP:
                    nodes[-1] = _saying(nodes[-1], **{f"comm_{end}": peer % ranks, "comm_size": 1000, "comm_tag": 0})
        made.append(nodes)
    return made


def _saying(node: ChakraNode, **values: int) -> ChakraNode:
    kept = tuple(one for one in node.attributes if one.name not in values)
    return node._replace(attributes=(*kept, *(Attribute(key, "int64", value) for key, value in values.items())))


def files(folder: Path, made: Ranks, about: tuple[Attribute, ...] = ()) -> str:
    for rank, nodes in enumerate(made):
        said = [one._replace(value=str(one.value).format(rank=rank)) for one in about]
        parts = [encode_metadata(Metadata("0.0.4", tuple(said))), *(encode_node(node) for node in nodes)]
        (folder / f"mine.{rank}.et").write_bytes(b"".join(encode_file_message(part) for part in parts))
    return str(folder / "mine.*.et")


def test_computations_take_the_time_that_the_files_say(tmp_path: Path) -> None:
    name = files(tmp_path, ring(duration=7)) + "@3000B"
    made = _with(ideal_scenario(3), "all_reduce", name)

    took, plain = (measure(one, "all_reduce", range(3), 3000) for one in (made, _with(made, "all_reduce", "ring")))
    assert took == pytest.approx(plain + 2 * 7e-6, rel=1e-9)
    assert measure(made, "all_reduce", range(3), 6000) > 2 * 2 * 7e-6  # in proportion to the bytes
    faster = _with(made, "all_reduce", name, rate=1e9)  # of the scenario goes before
    assert measure(faster, "all_reduce", range(3), 3000) == pytest.approx(plain + 2 * 1e-6, rel=1e-9)


def test_ranks_of_a_group_of_its_own_are_places_in_it(tmp_path: Path) -> None:
    made = _with(ideal_scenario(6), "all_reduce", files(tmp_path, ring()) + "@3000B")
    plain = measure(_with(made, "all_reduce", "ring"), "all_reduce", (1, 5, 2), 9000)
    assert measure(made, "all_reduce", (1, 5, 2), 9000) == pytest.approx(plain, rel=1e-9)


def test_a_chunk_bounds_the_largest_message(tmp_path: Path) -> None:
    name = written(tmp_path, "all_reduce", "halving_doubling", 8)  # of which half the buffer goes at once
    made = _with(ideal_scenario(8, chunk="1MiB"), "all_reduce", name)
    assert chakra.read(name, "all_reduce", 8).most == 4
    assert from_settings(made.collectives, made.cluster)("all_reduce", tuple(range(8)), SIZE).chunk == 2**18


def test_a_group_of_one_has_nothing_to_do(tmp_path: Path) -> None:
    assert chakra.read(str(tmp_path / "none.*.et"), "all_reduce", 1).template.members == 1


XML = """<algo nchunksperloop="3" ngpus="3" coll="allreduce"><gpu id="{rank}"><tb id="0">
<step s="0" type="s" cnt="4"/><step s="1" type="rrc" cnt="4"/></tb></gpu></algo>"""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (XML, 3000),
        (XML.replace('"4"', '"3"'), None),  # 4000 bytes are not 3 whole chunks
        (XML.replace("<algo", '<!DOCTYPE algo [<!ENTITY a "aaaaaaaa">]><algo', 1), None),
        (XML[:-9], None),
        ("tacos.xml", None),
    ],
)
def test_the_size_is_that_of_the_xml_in_the_metadata(tmp_path: Path, text: str, size: int | None) -> None:
    name = files(tmp_path, ring(), (Attribute("input_file", "string", text),))
    if size is None:
        with pytest.raises(TraceError, match=r"do not say the size .* add it, as in .*mine\.\*\.et@1MiB"):
            template("all_reduce", 3, name)
    else:
        assert template("all_reduce", 3, name).shards == size // 1000
        assert template("all_reduce", 3, f"{name}@{size + 1}B").shards == size // 1000  # a byte more than whole parts
        with pytest.raises(TraceError, match=r"mine\.0\.et: says that it is for .* 3000 bytes, and @2000B"):
            template("all_reduce", 3, f"{name}@2000B")


# ---- what is refused ------------------------------------------------------------------------------


def _change(rank: int, place: int, **values: int) -> Callable[[Ranks], None]:
    def change(made: Ranks) -> None:
        made[rank][place] = _saying(made[rank][place], **values)

    return change


def _put(rank: int, place: int, **fields: object) -> Callable[[Ranks], None]:
    def change(made: Ranks) -> None:
        made[rank][place] = made[rank][place]._replace(**fields)  # type: ignore[arg-type]  # of any field

    return change


def _drop(rank: int, place: int) -> Callable[[Ranks], None]:
    def change(made: Ranks) -> None:
        gone = made[rank].pop(place)
        for number, node in enumerate(made[rank]):
            made[rank][number] = node._replace(data=tuple(gone.data[0] if one == gone.id else one for one in node.data))

    return change


def _all_receive_first(made: Ranks) -> None:
    for nodes in made:
        nodes[0], nodes[1] = nodes[0]._replace(data=(1,)), nodes[1]._replace(data=())


def _alone(made: Ranks) -> None:
    """Sends wait for nothing, so that nothing is passed on."""
    for nodes in made:
        nodes[:] = [node._replace(data=()) if node.type == COMM_SEND else node for node in nodes]


def _once(made: Ranks) -> None:
    """The first turn alone, which is a reduce-scatter."""
    for nodes in made:
        del nodes[6:]


@pytest.mark.parametrize(
    ("change", "file", "problem"),
    [
        (_change(1, 3, comm_size=999), 2, r"node 4 receives 1000 bytes of what node 3 of .*mine\.1\.et sends as 999"),
        (_change(1, 3, comm_dst=1), 1, "node 3 has comm_dst 1; the others are 0 to 2, but 1"),
        (_change(1, 3, comm_dst=3), 1, "node 3 has comm_dst 3"),
        (_change(1, 3, comm_dst=0), 2, "node 9 receives message 4 from rank 1 to 2 with tag 0, which .* never sends"),
        (_change(1, 3, comm_size=0), 1, "node 3 has comm_size 0; write a number from 1"),
        (_change(1, 3, comm_size=2**60), 1, "node 3 has comm_size 1152921504606846976"),
        (
            _change(2, 9, comm_tag=5),
            1,
            r"node 8 sends message 4 from rank 1 to 2 with tag 0, which .*mine\.2\.et never receives",
        ),
        (_put(0, 3, attributes=()), 0, "node 3 has no comm_dst, which every send and receive needs"),
        (_put(0, 3, attributes=(Attribute("comm_dst", "string", "one"),)), 0, "node 3 has comm_dst 'one'"),
        (_put(0, 3, type=COMM_COLL), 0, "node 3 has the type 7; an algorithm consists of sends"),
        (_put(0, 3, id=4), 0, "two nodes have the id 4"),
        (_put(0, 3, data=(77,)), 0, "node 3 waits for node 77, which the file does not hold"),
        (_put(0, 3, data=(8,)), 0, "waits for itself, by way of others"),
        (_put(0, 3, control=(3,)), 0, "node 3 waits for itself"),
        (_put(0, 2, duration=10**9 * 10**6), 0, "node 2 takes 1000000000000000 µs"),
        (_drop(2, 9), 1, "node 8 sends message 4 from rank 1 to 2 with tag 0, which .* never receives"),
        (_drop(2, 3), 0, "node 9 receives message 4 from rank 2 to 0 with tag 0, which .* never sends"),
        (_all_receive_first, 0, "waits for itself, by way of other ranks"),
        (_alone, 0, "rank 0 ends without anything of rank 1, which all_reduce needs"),
        (_once, 0, "rank 0 sends 2/3 of the buffer; no all_reduce can do with less than 3/3"),
        (lambda made: made[1].clear(), 1, "holds no nodes"),
        (lambda made: made.append(made[0]), 3, "the group has 3 ranks, 0 to 2, and this file is for one more"),
        (lambda made: made.pop(), 2, "no such file; an algorithm for 3 ranks has files 0 to 2"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, change: Callable[[Ranks], None], file: int, problem: str
) -> None:
    made = ring()
    change(made)
    with pytest.raises(TraceError, match=problem) as error:
        template("all_reduce", 3, files(tmp_path, made) + "@3000B")
    assert str(error.value).startswith(str(tmp_path / f"mine.{file}.et: "))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        ("5KB", "sends 4/5 of the buffer"),
        ("900B", "has 1000 bytes, more than the 900"),
        ("1KB", "receives 4/1 of the buffer; no all_reduce can have a use for more than 3 times all of it"),
        ("9999999B", "no multiples of 1/2 to"),
    ],
)
def test_a_size_that_the_messages_cannot_be_of_is_refused(tmp_path: Path, size: str, problem: str) -> None:
    name = files(tmp_path, ring()) + f"@{size}"
    with pytest.raises(TraceError, match=problem):
        template("all_reduce", 3, name)


def test_more_bytes_than_any_rank_can_use_are_refused(tmp_path: Path) -> None:
    name = written(tmp_path, "all_gather", "ring", 4)
    assert template("all_gather", 4, name).members == 4
    with pytest.raises(TraceError, match=r"own\.0\.et: rank 0 receives 3/2 .* the size .* is larger than was said"):
        template("all_gather", 4, f"{name.partition('@')[0]}@{SIZE // 2}B")


def test_computations_of_something_else_take_no_time_here(tmp_path: Path) -> None:
    made = ring()
    made[1].append(ChakraNode(99, "work", COMP, (), (), duration=5))
    with pytest.raises(TraceError, match=r"mine\.1\.et: node 99 computes without waiting for a receive"):
        template("all_reduce", 3, files(tmp_path, made) + "@3000B")


def test_what_the_files_are_for_counts(tmp_path: Path) -> None:
    name = files(tmp_path, ring(), (Attribute("collective", "string", "allgather"),)) + "@3000B"
    with pytest.raises(TraceError, match="is for all_gather, not for all_reduce"):
        template("all_reduce", 3, name)
    files(tmp_path, ring(), (Attribute("collective", "string", "transpose"),))
    with pytest.raises(TraceError, match="is for the collective 'transpose'; there are allreduce"):
        template("all_reduce", 3, name)
    with pytest.raises(InputError, match=r"Chakra files may describe all_reduce, .* and not ring_exchange"):
        template("ring_exchange", 3, name)


def test_a_fifo_holds_two_messages(tmp_path: Path) -> None:
    """Two ranks that send three messages before they receive wait for ever, as with NCCL."""
    made = []
    for rank in range(2):
        kinds = [COMM_SEND] * 3 + [COMM_RECV] * 3
        nodes = [ChakraNode(at, "", kind, (), (at - 1,) if at else ()) for at, kind in enumerate(kinds)]
        ends = {COMM_SEND: "comm_dst", COMM_RECV: "comm_src"}
        made.append([_saying(node, **{ends[node.type]: 1 - rank, "comm_size": 1000}) for node in nodes])
    with pytest.raises(
        InputError, match=r"ranks \[0, 1\] wait for messages that never come, or send what nobody takes"
    ):
        template("all_reduce", 2, files(tmp_path, made) + "@3000B")


def test_more_nodes_than_any_algorithm_needs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = files(tmp_path, ring()) + "@3000B"
    for limit, what in (("MOST_NODES", "nodes"), ("MOST_WAITS", "dependencies")):
        with monkeypatch.context() as patch:
            patch.setattr(f"fabricsim.collectives.chakra_files.{limit}", 12)
            with pytest.raises(TraceError, match=rf"mine\.1\.et: with the files before it has more than 12 {what}"):
                template("all_reduce", 3, name)
    for limit in ("MOST_STRANDS", "MOST_LANES"):
        with monkeypatch.context() as patch:
            patch.setattr(f"fabricsim.collectives.chakra.{limit}", 0)
            with pytest.raises(TraceError, match=r"mine\.0\.et: node 0 needs one more strand"):
                template("all_reduce", 3, name)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_end_in_an_algorithm_or_an_error(tmp_path: Path, data: st.DataObject) -> None:
    name = files(tmp_path, ring()) + "@3000B"
    samples = [(tmp_path / f"mine.{rank}.et").read_bytes() for rank in range(3)]
    (tmp_path / "mine.1.et").write_bytes(data.draw(mutations.damaged(samples)))
    chakra.read.cache_clear()
    try:
        made = chakra.read(name, "all_reduce", 3).template
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017  either end is right
        return
    assert made.members == 3


# ---- in scenarios ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_files_lie_beside_the_scenario(tmp_path: Path) -> None:
    files(tmp_path, ring(8))
    scenario = tmp_path / "mine.toml"
    line = 'extends = "gpt2-medium-dp"\n[collectives]\nalgorithm = { all_reduce = "%s" }\n'
    scenario.write_text(line % "mine.*.et@8KB")
    found = load(scenario)
    assert found.scenario.collectives.algorithm == {"all_reduce": str(tmp_path / "mine.*.et@8KB")}

    result = simulate(found)
    told = summarise(result).get("assumptions", [])
    assert len(told) == 1
    assert str(tmp_path / "mine.*.et") in told[0]
    assert "assumptions" not in summarise(simulate(load("gpt2-medium-dp")))

    for name, problem in (
        ("none.*.et", "there is no such file"),
        ("mine.*.et@16", "has no unit"),
        ("mine.*.et@0B", "is no size of a collective"),
        ("mine.0.et", r"for Chakra files of all ranks write name\.\*\.et"),
    ):
        scenario.write_text(line % name)
        with pytest.raises(ScenarioError, match=rf"collectives\.algorithm\.all_reduce: .*{problem}"):
            load(scenario)
    with pytest.raises(InputError, match="the name is that of a file"):
        register("all_reduce", "mine.*.et", lambda _rank, _ranks: ())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["et", "xml"])
def test_nccl_leaves_the_choice_to_a_file(tmp_path: Path, kind: str) -> None:
    name = files(tmp_path, ring(16)) + "@16KB"
    if kind == "xml":
        name = str(tmp_path / "mine.xml")
        head = '<algo proto="LL" nchannels="1" nchunksperloop="1" ngpus="16" coll="allreduce" inplace="1"></algo>'
        Path(name).write_text(head)
    settings = ["collectives=nccl", f'collectives.algorithm.all_reduce="{name}"']
    found = chooser(load("ideal-16", settings).scenario)("all_reduce", tuple(range(16)), 2**20)
    assert (found.algorithm, found.channels) == (name, 1)
    assert found.line == ((8, 16) if kind == "xml" else (1, 1))


def test_a_custom_collective_of_astrasim(traces: Path, tmp_path: Path) -> None:
    with tarfile.open(traces / "astrasim" / "examples.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / EXAMPLE / "custom_ring_allreduce_8npus_1MB"
    name = str(folder / "custom_allreduce.*.et")
    with (folder / "custom_allreduce.0.et").open("rb") as stream:
        about = {one.name: one.value for one in decode_metadata(next(messages(stream))).attributes}
    xml = tmp_path / "ring.xml"
    xml.write_text(str(about["input_file"]).replace('proto="LL128"', 'proto="Simple"'))
    made = ideal_scenario(8)

    for size in (2**20, 2**23):
        took = measure(_with(made, "all_reduce", name, 20e9), "all_reduce", range(8), size)
        assert took == measure(_with(made, "all_reduce", str(xml), 20e9), "all_reduce", range(8), size)
    took, plain = (measure(_with(made, "all_reduce", one), "all_reduce", range(8), 2**20) for one in (name, "ring"))
    assert took - plain == pytest.approx(7 * 7e-6, rel=1e-9)  # seven reductions of 7 us

    network = tmp_path / "inputs" / "network" / "hgx_h100_8gpu.yml"
    system = tmp_path / EXAMPLE / "custom_collective.json"
    losses = astrasim_scenario.convert(network, system, tmp_path / "made.toml")
    assert load(tmp_path / "made.toml").scenario.collectives.algorithm == {"all_reduce": name}
    assert not any("all_reduce" in loss for loss in losses)
