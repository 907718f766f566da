from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces import readers
from fabricsim.traces.astrasim import reader as astrasim_text
from fabricsim.traces.rank_groups import Sizes, groups_of_rank_0
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, Recording
from tests.reference import mutations

SIMAI = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 1 ga: 1 all_gpus: 16 \
checkpoints: 0 checkpoint_initiates: 0 pp_comm 512
2
first\t-1\t1000\tALLGATHER\t64\t2000\tREDUCESCATTER\t0\t3000\tALLREDUCE\t4096\t100
second\t-1\t4000\tALLTOALL_EP\t128\t5000\tALLREDUCE\t256\t6000\tREDUCESCATTER_DP_EP\t8192\t0\tremark
"""
PLAIN = """\
{policy}
3
a -1 10 ALLTOALL 64 11 ALLTOALL 64 12 ALLREDUCE 16 0
b -1 20 ALLGATHER 8 21 ALLREDUCE 64 22 ALLREDUCE 32 0
c -1 30 NONE 0 31 ALLREDUCE 64 32 ALLREDUCE 48 0
"""


def workload(folder: Path, text: str | bytes) -> Recording:
    file = folder / "workload.txt"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    (recording,) = readers.read([file], "astrasim").recordings
    return recording


def names(recording: Recording, kind: int) -> list[str]:
    return [recording.names[node["name"]] for node in recording.nodes if node["kind"] == kind]


def waits(recording: Recording) -> dict[str, list[str]]:
    """What each computation waits for besides the one before it."""
    named = [recording.names[number] for number in recording.nodes["name"]]
    found: dict[str, list[str]] = {}
    for before, after, _ in recording.edges.tolist():
        if recording.nodes["lane"][after] == 0:
            found.setdefault(named[after], []).append(named[before])
    return found


def test_a_workload_of_simai(tmp_path: Path) -> None:
    recording = workload(tmp_path, SIMAI)

    assert (recording.rank, recording.world) == (0, 16)
    assert [recording.names[node["name"]] for node in recording.nodes] == [
        "first forward",
        "first forward",
        "first forward update",
        "second forward",
        "second forward",
        "second input gradient",
        "second input gradient",
        "second weight gradient",
        "second weight gradient",
        "first input gradient",
        "first weight gradient",
        "first weight gradient",
        "first weight gradient update",
    ]
    compute = recording.nodes[recording.nodes["lane"] == 0]
    assert compute["duration"].tolist() == [1_000_000, 4_000_000, 5_000_000, 6_000_000, 2_000_000, 3_000_000]
    assert [lane.name for lane in recording.lanes] == ["compute", "TP", "update", "EP", "DP_EP", "DP"]
    assert [(group.name, group.ranks) for group in recording.groups] == [
        ("TP", (0, 1)),
        ("EP", (0, 2)),
        ("DP_EP", (0, 4)),
        ("DP", (0, 2, 4, 6)),
    ]
    assert [(what.operation, what.group, what.size) for what in recording.communications] == [
        ("all_gather", 0, 64),
        ("all_to_all", 1, 128),
        ("all_reduce", 0, 256),
        ("reduce_scatter", 2, 8192),
        ("all_reduce", 3, 4096),
    ]
    assert waits(recording) == {
        "second forward": ["first forward update"],
        "second input gradient": ["second forward"],
        "second weight gradient": ["second input gradient"],
    }
    assert "when a stage hands 512 bytes to the next" in recording.missing[-1]


@pytest.mark.parametrize(
    ("policy", "computed", "communicated", "waited"),
    [
        ("DATA", "af bf cf cw ci bw bi aw", "cw bw aw", {}),
        (
            "MODEL",
            "af bf cf ci cw bi bw ai aw",
            "af bf ci bi",
            {"bf": ["af"], "cf": ["bf"], "bi": ["ci"], "ai": ["bi"]},
        ),
        (
            "HYBRID_DATA_MODEL",
            "af bf cf ci cw bi bw ai aw",
            "af bf ci cw bi bw aw",
            {"bf": ["af"], "cf": ["bf"], "bi": ["ci"], "ai": ["bi"]},
        ),
        (
            "HYBRID_TRANSFORMER",
            "af bf cf ci cw bi bw ai aw",
            "af bf ci cw bi bw ai aw",
            {"bf": ["af"], "cf": ["bf"], "cw": ["ci"], "bw": ["bi"], "aw": ["ai"]},
        ),
        (
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoints: 1 0 checkpoint_initiates: 1 2",
            "af bf cf af bf ci cw bi bw ai aw",
            "af bf af bf ci cw bi bw ai aw",
            {"bf": ["af", "af"], "cf": ["bf"], "ci": ["bf"], "cw": ["ci"], "bw": ["bi"], "aw": ["ai"]},
        ),
        (
            "HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1",
            "af bf cf cw ci bw bi aw",
            "af cw ai bw aw",
            {"cf": ["af"]},
        ),
        ("DISTRIBUTED_INFERENCE", "af bf cf", "af bf", {"bf": ["af"], "cf": ["bf"]}),
        ("MICRO", "", "aw", {}),
    ],
)
def test_order_of_each_parallelism(
    tmp_path: Path, policy: str, computed: str, communicated: str, waited: dict[str, list[str]]
) -> None:
    recording = workload(tmp_path, PLAIN.format(policy=policy))

    def short(name: str) -> str:
        layer, phase = name.split(maxsplit=1)
        return layer + phase[0]

    assert [short(name) for name in names(recording, COMPUTE)] == computed.split()
    assert [short(name) for name in names(recording, COMMUNICATION)] == communicated.split()
    found = {short(name): [short(before) for before in befores] for name, befores in waits(recording).items()}
    assert found == waited


def test_each_layer_may_have_a_parallelism_of_its_own(tmp_path: Path) -> None:
    lines = PLAIN.format(policy="HYBRID_CUSTOMIZED").splitlines()
    text = "\n".join([*lines[:2], lines[2] + " DATA", lines[3] + "\tMODEL", lines[4] + " HYBRID_DATA_MODEL"])
    recording = workload(tmp_path, text)

    assert names(recording, COMMUNICATION) == [
        "b forward",
        "c input gradient",
        "c weight gradient",
        "b input gradient",
        "a weight gradient",
    ]
    assert [group.name for group in recording.groups] == ["all", "TP", "DP"]


def test_all_gathers_of_astrasim_count_a_part(tmp_path: Path) -> None:
    unknown = workload(tmp_path, PLAIN.format(policy="MODEL"))
    known = workload(tmp_path, PLAIN.format(policy="MODEL all_gpus: 4"))

    assert [what.size for what in unknown.communications if what.operation == "all_gather"] == [NONE]
    assert any("sizes of all-gathers" in sentence for sentence in unknown.missing)
    assert [what.size for what in known.communications if what.operation == "all_gather"] == [32]


@given(sizes=st.builds(Sizes, *[st.sampled_from([1, 2, 3])] * 4))
def test_groups_divide_the_ranks(sizes: Sizes) -> None:
    sizes = sizes._replace(data=sizes.data * sizes.expert)
    groups = groups_of_rank_0(sizes)

    assert groups["all"] == tuple(range(sizes.tensor * sizes.data * sizes.pipeline))
    together = {t + d + p for t in groups["TP"] for d in groups["DP"] for p in groups["PP"]}
    assert together == set(groups["all"])
    assert {e + d for e in groups["EP"] for d in groups["DP_EP"]} == set(groups["DP"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID", ":1: 'HYBRID' is no parallelism of ASTRA-sim"),
        ("\n2\n", "\ntwo\n", ":2: the number of layers is 'two'"),
        ("\n2\n", "\n0\n", ":2: '0' is not a number of layers"),
        ("\n2\n", "\n3\n", "3 layers are announced, 2 are there: the file is cut"),
        ("\n2\n", "\n1\n", ":4: a line more than the 1 layers"),
        ("\n2\n", "\n9999999\n", ":2: the number of layers is '9999999'; it is a whole number from 0 to 500000"),
        ("ep: 2", "ep: 3", ":1: ep 3 does not divide the 4 data parallel ranks"),
        ("all_gpus: 16", "all_gpus: 15", ":1: all_gpus 15 is no multiple of 4"),
        ("all_gpus: 16", "all_gpus: 9999999999", ":1: all_gpus is '9999999999'"),
        ("pp_comm 512", "pp_comm", ":1: pp_comm is ''"),
        ("checkpoints: 0", "checkpoints: 400", ":1: checkpoints announces 400 layers, and"),
        ("checkpoint_initiates: 0", "checkpoint_initiates: 1 7", ":1: checkpoints name layer 7, and there are 2"),
        ("checkpoint_initiates: 0", "checkpoint_initiates: 1 1", ":1: layer 1 repeats the forward pass, and no"),
        ("\t1000\t", "\t-5\t", ":3: a compute time is '-5'"),
        ("\t1000\t", "\tnan\t", ":3: a compute time is 'nan'"),
        ("\t1000\t", "\t9999999999999999999\t", ":3: a compute time is '9999999999999999999'"),
        ("ALLGATHER", "GATHER", ":3: 'GATHER' is no collective; it is one of NONE, ALLREDUCE"),
        ("ALLGATHER", "ALLGATHER_TP", ":3: 'ALLGATHER_TP' is no collective"),
        ("\t64\t", "\t9999999999999999999\t", ":3: a size is '9999999999999999999'"),
        ("\t100\n", "\n", ":3: 11 fields, a layer has 12"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SIMAI
    with pytest.raises(TraceError) as error:
        workload(tmp_path, SIMAI.replace(old, new, 1))

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_form_is_known_by_its_first_lines(tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(lzma.compress(SIMAI.encode()))

    assert readers.read([file]).form == "astrasim"
    assert not astrasim_text.recognises("w", b"DATA\nnothing")
    assert not astrasim_text.recognises("w", b"\xff\xfe\x00")


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_workloads_end_in_a_recording_or_a_trace_error(tmp_path: Path, data: st.DataObject) -> None:
    repeated = "HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoints: 1 0 checkpoint_initiates: 1 2"
    samples = [SIMAI, PLAIN.format(policy=repeated), PLAIN.format(policy="HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1")]
    try:
        recording = workload(tmp_path, data.draw(mutations.damaged([text.encode() for text in samples])))
    except TraceError:
        return
    assert (recording.edges["before"] < recording.edges["after"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "world", "collectives"),
    [
        ("simai/microAllReduce.txt", 8, 2),
        ("simai/workload_analytical.txt.xz", 9216, 3324),
        ("aicb/simai_G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp_A100.txt", NONE, 334),
        ("aicb/simai_L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt", NONE, 142),
    ],
)
def test_workloads_of_simai_and_aicb(traces: Path, file: str, world: int, collectives: int) -> None:
    trace = readers.read([traces / file])

    assert (trace.form, trace.world) == ("astrasim", world)
    assert (trace.recordings[0].nodes["kind"] == COMMUNICATION).sum() == collectives
