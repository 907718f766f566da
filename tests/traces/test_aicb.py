from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces import aicb, readers
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, HOST, WAIT, Communication, Recording
from tests.reference import mutations

WORKLOAD = f"""\
[rank0 ~ rank7]
{aicb.COLUMNS}
CommType.barrier,CommGroup.all,8,262144000,init,None,None,,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,None,None,None,1
CommType.broadcast,CommGroup.tp_group,2,40,forward_step,None,0,,None,None,None,1
CommType.computation,CommGroup.all,1,((16, 32), (32, 8)),forward.MegatronMlp,None,None,,2500,None,None,1
CommType.all_gather,CommGroup.dp_group,4,4096,step,None,None,,None,None,None,1
CommType.isend,CommGroup.pp_group,1,512,forward_step,None,None,send_next,None,None,None,1
"""
LOG = f"""\
{aicb.COLUMNS}
CommType.all_reduce,CommGroup.dp_group,4,8,init.model_setup,None,None,,3.5,0.0,0.0,1
CommType.epoch_end,None,None,0,,None,None,,10.0,None,None,1
CommType.computation,CommGroup.all,1,1,forward.MegatronMlp,None,None,,0.25,0.0,0.0,1
CommType.all_to_all,CommGroup.ep_group,None,1024,forward.MoE,None,None,,0.125,67.7,67.7,1
CommType.epoch_end,None,None,0,,None,None,,2.0,None,None,1
CommType.all_to_all,CommGroup.ep_group,2,1024,forward.MoE,None,None,,0.0625,67.7,67.7,1
CommType.epoch_end,None,None,0,,None,None,,1.5,None,None,1
"""


def recording(folder: Path, text: str | bytes) -> Recording:
    file = folder / "operations.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    (read,) = readers.read([file], "aicb").recordings
    return read


def test_a_generated_workload(tmp_path: Path) -> None:
    read = recording(tmp_path, WORKLOAD)

    assert (read.rank, read.world, len(read.steps)) == (0, 8, 0)
    kinds = [COMMUNICATION, WAIT, COMMUNICATION, COMPUTE, COMMUNICATION, COMMUNICATION]
    assert read.nodes["kind"].tolist() == kinds
    assert read.nodes["duration"].tolist() == [NONE, NONE, NONE, 2_500_000, NONE, NONE]
    assert read.communications == (
        Communication("barrier", 0, 0),
        Communication("broadcast", 1, 40, peer=0),
        Communication("all_gather", 2, 4096),
        Communication("send", 3, 512),
    )
    assert [(group.name, group.ranks, group.size) for group in read.groups] == [
        ("all", tuple(range(8)), 8),
        ("tp_group", (0, 1), 2),
        ("dp_group", (0, 2, 4, 6), 4),
        ("pp_group", (), 1),
    ]
    assert read.names[-1] == "forward_step send_next"
    assert len(read.missing) == 4


def test_a_log_has_durations_and_iterations(tmp_path: Path) -> None:
    read = recording(tmp_path, LOG)

    ms = 10**9
    assert read.world == 4
    host = [2 * ms - 375_000_000, 1.5 * ms - 62_500_000]
    durations = [3_500_000_000, NONE, 250_000_000, 125_000_000, host[0], NONE, 62_500_000, host[1], NONE]
    assert read.nodes["duration"].tolist() == durations
    assert (read.nodes["kind"] == HOST).nonzero()[0].tolist() == [4, 7]
    assert read.steps.tolist() == [(2, 12 * ms, 13.5 * ms)]  # connections are opened in the first
    assert any("opening connections: it is none of the steps" in sentence for sentence in read.missing)
    assert [(group.name, group.size) for group in read.groups] == [("dp_group", 4), ("ep_group", 2)]
    assert not any("durations" in sentence for sentence in read.missing)


@pytest.mark.parametrize(
    ("old", "new", "steps", "hosts"),
    [
        ("CommType.epoch_end,None,None,0,,None,None,,1.5,None,None,1\n", "", [1], 1),
        (",2.0,None", ",None,None", [2], 1),
        (",2.0,None", ",0.375,None", [2], 1),
        (",0.125,67.7", ",None,67.7", [2], 1),
        (",1.5,None", ",0.01,None", [2], 1),
    ],
    ids=["only one", "no time of the first", "no time left over", "no time of an operation", "less than operations"],
)
def test_the_host_has_what_operations_leave(tmp_path: Path, old: str, new: str, steps: list[int], hosts: int) -> None:
    assert old in LOG
    read = recording(tmp_path, LOG.replace(old, new, 1))

    assert read.steps["number"].tolist() == steps
    assert (read.nodes["kind"] == HOST).sum() == hosts
    assert ("iterations but the first, whose time includes opening connections" in read.missing) == (steps == [1])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("comm_type,", "type,", ":1: 'type,comm_group,"),
        (LOG[LOG.index("\n") + 1 :], "", "holds no operations"),
        (",None,None,,3.5,0.0,0.0,1", "", ":2: 5 columns, a row has 12"),
        ("all_reduce", "all_sum", ":2: 'all_sum' is no operation of AICB"),
        (",4,8,", ",4,-8,", ":2: msg_size is '-8'"),
        (",4,8,", ",4,99999999999999999,", ":2: msg_size is '99999999999999999'"),
        (",4,8,", ",1e3,8,", ":2: comm_group_size is '1e3'"),
        (",4,8,", ",0,8,", ":2: comm_group_size is '0'; it is a whole number from 1 to 1048576"),
        (",3.5,", ",nan,", ":2: _elapsed_time is 'nan'"),
        (",3.5,", ",-1,", ":2: _elapsed_time is '-1'"),
        (",3.5,", ",1e99,", ":2: _elapsed_time is '1e99'"),
        (",10.0,", ",9e9,", ":3: _elapsed_time is '9e9'; it is a number of ms, less than 92 days"),
        ("ep_group,2", "dp_group,2", ":7: dp_group has 2 ranks here and 4 above"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in LOG
    with pytest.raises(TraceError) as error:
        recording(tmp_path, LOG.replace(old, new, 1))

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_iterations_end_before_the_clock_does(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r":6: iterations of 8\.1e\+06 s in all"):
        recording(tmp_path, LOG.replace(",10.0,", ",4.1e9,").replace(",2.0,", ",4.0e9,"))


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_end_in_a_recording_or_a_trace_error(tmp_path: Path, data: st.DataObject) -> None:
    try:
        read = recording(tmp_path, data.draw(mutations.damaged([WORKLOAD.encode(), LOG.encode()])))
    except TraceError:
        return
    assert all(what.group < len(read.groups) for what in read.communications)
    assert (read.nodes["duration"] >= NONE).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "world", "communications", "steps"),
    [
        ("phys_L7B-D1-C01_Llama7B_zero2_mbs1.csv", 128, 306, 0),
        ("phys_L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv", 128, 147, 0),
        ("A100_example_measured.csv.xz", 8, 8527, 9),
    ],
)
def test_files_of_aicb(traces: Path, file: str, world: int, communications: int, steps: int) -> None:
    trace = readers.read([traces / "aicb" / file])
    read = trace.recordings[0]

    assert (trace.form, trace.world, len(read.steps)) == ("aicb", world, steps)
    assert (read.nodes["kind"] == COMMUNICATION).sum() == communications
    if steps:  # the last line: 473.88 ms
        assert read.steps["end"][-1] - read.steps["start"][-1] == pytest.approx(473.88172e9, rel=1e-6)
