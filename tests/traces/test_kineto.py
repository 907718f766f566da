from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records import program as records
from fabricsim.records.program import NONE
from fabricsim.results.breakdown import iteration_parts
from fabricsim.run.pipeline import replay
from fabricsim.scenario.load import machine
from fabricsim.traces.kineto import file as kineto_file
from fabricsim.traces.kineto import reader as kineto
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, HOST, LAUNCH, WAIT, Communication, Recording, Trace
from tests.reference import kineto_traces, mutations

US = 10**6  # ps
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def event(category: str, name: str, ts: float, dur: float, tid: int = 7, **arguments: object) -> dict[str, Any]:
    device = category in {"kernel", "gpu_memcpy", "cuda_sync"}
    pid = 0 if device else 77
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": arguments}


def kernel(
    ts: float, dur: float, correlation: int = 0, tid: int = 7, name: str = "gemm", **more: object
) -> dict[str, Any]:
    return event("kernel", name, ts, dur, tid, device=0, stream=tid, correlation=correlation, **more)


def call(name: str, ts: float, dur: float, correlation: int, tid: int = 78) -> dict[str, Any]:
    return event("cuda_runtime", name, ts, dur, tid, correlation=correlation)


def noted(ts: float, **note: object) -> list[dict[str, Any]]:
    """A kernel of NCCL whose launch is within the given record_param_comms."""
    return [
        event("cpu_op", "record_param_comms", ts, 10, 78, **note),
        call("cudaLaunchKernel", ts + 2, 1, int(ts)),
        kernel(ts + 4, 20, int(ts), 20, SEND_RECV),
    ]


def recording(folder: Path, events: object, *, name: str = "rank3.json", **head: object) -> Recording:
    file = folder / name
    document = events if isinstance(events, (bytes, str)) else json.dumps({**head, "traceEvents": events})
    file.write_bytes(document if isinstance(document, bytes) else document.encode())
    (only,) = (one for source in sources([file]) for one in kineto.read(source))
    return only


def message(folder: Path, *events: dict[str, Any], **head: object) -> Communication:
    read = recording(folder, list(events), **head)
    (node,) = read.nodes[read.nodes["kind"] == COMMUNICATION]
    return read.communications[node["communication"]]


def described(read: Recording) -> list[tuple[int, str, str, int, int]]:
    """Kind, lane, name, start and duration in us of each node."""
    return [
        (
            int(node["kind"]),
            read.lanes[node["lane"]].name,
            read.names[node["name"]],
            *(node[["start", "duration"]].item()),
        )
        for node in read.nodes
    ]


@pytest.mark.slow
def test_dlrm_of_eight_ranks(traces: Path) -> None:
    read_ = read([traces / "kineto" / "dlrm_kineto.tar.gz"])

    assert (read_.form, read_.world) == ("kineto", 8)
    assert [one.rank for one in read_.recordings] == [*range(8)]
    for one in read_.recordings:
        messages = one.nodes[one.nodes["kind"] == COMMUNICATION]
        what = [one.communications[number] for number in messages["communication"]]
        assert Counter(each.operation for each in what) == {"all_to_all": 5, "all_reduce": 3}
        assert all(each.size > 0 and each.datatype for each in what)
        assert {one.lanes[lane].name for lane in messages["lane"]} == {"stream 84"}
        assert one.device == "Tesla V100-SXM2-32GB"
        assert one.steps["number"].tolist() == [10]
        assert any("ranks that take part in 8 of 8" in sentence for sentence in one.missing)
    first = read_.recordings[0]
    sizes = [first.communications[i].size for i in first.nodes["communication"][first.nodes["kind"] == COMMUNICATION]]
    assert sizes == [4 * 6144, 8 * 24, 4 * 384, 4 * 3392, 4 * 394241, 4 * 6144, 4 * 112, 4 * 226960]
    # the first all-to-all: captured at 1694128201429795 us for 2146 us
    start = int(first.nodes["start"][first.nodes["kind"] == COMMUNICATION][0])
    assert first.origin * 1000 + start == 1694128201429795 * US


@pytest.mark.slow
def test_resnet_of_two_ranks(traces: Path) -> None:
    (one,) = read([traces / "kineto" / "nccl_parser_config_nccl_data.json.gz"]).recordings

    messages = one.nodes[one.nodes["kind"] == COMMUNICATION]
    what = [one.communications[number] for number in messages["communication"]]
    assert Counter(each.operation for each in what) == {"all_reduce": 15, "broadcast": 6}
    assert all(each.size > 0 for each in what)
    assert [group[:] for group in one.groups] == [("0", "default_pg", (0, 1), 2)]
    assert (one.rank, one.world, one.device) == (0, 2, "NVIDIA A100-PG509-200")
    assert one.steps["number"].tolist() == [4, 5, 6]
    # a kernel of 6,637,568 floats that began at 4458677009853.422 us after baseTimeNanoseconds
    wanted = 1711964646000000000 * 1000 + 4458677009853422000
    (at,) = np.flatnonzero(messages["start"] == wanted - one.origin * 1000)
    assert (what[at].size, messages["duration"][at]) == (4 * 6637568, 2636669000)


def test_nodes_of_streams_and_threads(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "aten::mm", 9, 20, 78),
        call("cudaGetDevice", 9, 1, 1),
        call("cudaLaunchKernel", 10, 2, 2),
        kernel(13, 5, 2),
        call("cudaMemsetAsync", 12, 2, 3),
        event("gpu_memset", "Memset (Device)", 14.5, 1, 20, device=0, stream=20, correlation=3, bytes=4096),
        call("cudaEventRecord", 15, 1, 4),
        call("cudaStreamWaitEvent", 16, 1, 5),
        call("cudaStreamSynchronize", 17, 4, 6),
        event("user_annotation", "ProfilerStep#4", 10, 90, 78),
    ]
    read_ = recording(tmp_path, events, baseTimeNanoseconds=10**18)

    assert described(read_) == [
        (LAUNCH, "thread 78", "cudaLaunchKernel", 0, 2 * US),
        (COMPUTE, "stream 7", "gemm", 3 * US, 5 * US),
        (LAUNCH, "thread 78", "cudaMemsetAsync", 2 * US, 2 * US),
        (COPY, "stream 20", "Memset (Device)", 4.5 * US, US),
        (HOST, "thread 78", "cudaEventRecord", 5 * US, US),
        (HOST, "thread 78", "cudaStreamWaitEvent", 6 * US, US),
        (WAIT, "thread 78", "cudaStreamSynchronize", 7 * US, 4 * US),
    ]
    assert read_.edges[["before", "after", "on_start"]].tolist() == [(0, 1, False), (2, 3, False)]
    assert read_.nodes["bytes"].tolist() == [NONE, NONE, NONE, 4096, NONE, NONE, NONE]
    assert read_.steps.tolist() == [(4, 0, 90 * US)]
    assert read_.origin == 10**18 + 10_000
    assert read_.missing == ("what 1 waits of the host were for (capture with enable_cuda_sync_events)",)


def test_kernels_that_all_stand_twice_are_refused_and_some_that_are_alike_are_not(tmp_path: Path) -> None:
    once = [kernel(10 * number, 5, number) for number in range(1, 9)]
    alike = [kernel(200, 1, 77), kernel(200, 1, 77)]  # of one graph, in whole microseconds

    assert (recording(tmp_path, [*once, *alike]).nodes["kind"] == COMPUTE).sum() == 10
    with pytest.raises(TraceError, match=r"has 8 kernels and copies twice, such as 'gemm' at 10\.000 us; give each"):
        recording(tmp_path, once * 2)


def test_lanes_name_device_and_process_where_there_are_several(tmp_path: Path) -> None:
    other = {**kernel(5, 1, 2), "pid": 1}
    other["args"]["device"] = 1
    events = [kernel(1, 1, 1), other, call("cudaLaunchKernel", 0, 1, 1), {**call("hipLaunchKernel", 4, 1, 2), "pid": 5}]

    names = [lane.name for lane in recording(tmp_path, events).lanes]

    assert names == ["device 0 stream 7", "device 1 stream 7", "process 5 thread 78", "process 77 thread 78"]


def test_a_kernel_that_begins_within_its_launch(tmp_path: Path) -> None:
    read_ = recording(tmp_path, [call("cudaGraphLaunch", 10, 9, 2), kernel(13, 1, 2), kernel(20, 1, 2)])

    assert read_.edges[["before", "after", "on_start"]].tolist() == [(0, 1, True), (0, 2, False)]


@pytest.mark.parametrize(
    ("name", "copy", "waits"),
    [
        ("cudaMemcpy", "Memcpy HtoD (Pinned -> Device)", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
    ],
)
def test_a_copy_that_blocks(tmp_path: Path, *, name: str, copy: str, waits: bool) -> None:
    moved = event("gpu_memcpy", copy, 14, 3, device=0, stream=7, correlation=2, bytes=64)

    read_ = recording(tmp_path, [call(name, 10, 8, 2), moved])

    if waits:
        wanted = [(LAUNCH, 0, 4 * US), (WAIT, 4 * US, 4 * US), (COPY, 4 * US, 3 * US)]
        edges = [(0, 2), (2, 1)]
    else:
        wanted, edges = [(LAUNCH, 0, 8 * US), (COPY, 4 * US, 3 * US)], [(0, 1)]
    assert [(kind, start, duration) for kind, _, _, start, duration in described(read_)] == wanted
    assert read_.edges[["before", "after"]].tolist() == edges


def test_a_device_is_waited_for_as_a_whole(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 1, 1, 1),
        kernel(3, 9, 1),
        call("cudaLaunchKernel", 4, 1, 2),
        kernel(12, 9, 2),
        call("cudaLaunchKernel", 6, 1, 3),
        kernel(8, 9, 3, 20),
        call("cudaDeviceSynchronize", 9, 15, 4),
        call("cudaLaunchKernel", 30, 1, 5),
        kernel(32, 1, 5),
    ]
    read_ = recording(tmp_path, events)

    assert sorted(read_.edges[read_.edges["after"] == 6]["before"].tolist()) == [3, 5]
    assert not any("waits" in sentence for sentence in read_.missing)


def test_a_call_that_waits_launches_nothing(tmp_path: Path) -> None:
    read_ = recording(tmp_path, [call("cudaDeviceSynchronize", 9, 5, 3), kernel(1, 5, 3)])

    assert read_.edges[["before", "after"]].tolist() == [(1, 0)]


def test_events_that_are_waited_for(tmp_path: Path) -> None:
    sync = {"device": 0, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 3}
    events = [
        call("cudaLaunchKernel", 1, 1, 1),
        kernel(3, 9, 1),
        call("cudaEventRecord", 3, 1, 3),
        call("cudaLaunchKernel", 4, 1, 2),
        kernel(12, 9, 2),
        call("cudaStreamWaitEvent", 6, 1, 4),
        event("cuda_sync", "Stream Wait Event", 6, 1, 20, stream=20, correlation=4, **sync),
        call("cudaLaunchKernel", 8, 1, 5),
        kernel(13, 1, 5, 20),
        call("cudaEventSynchronize", 14, 1, 6),
        event("cuda_sync", "Event Sync", 14, 1, -1, stream=-1, correlation=6, **sync),
        call("cudaStreamSynchronize", 16, 6, 7),
        event("cuda_sync", "Stream Sync", 16, 6, 7, device=0, stream=7, correlation=7),
    ]
    read_ = recording(tmp_path, events)

    kernels = {(start, lane): i for i, (_, lane, _, start, _) in enumerate(described(read_))}
    first, second, other = (kernels[at] for at in ((2 * US, "stream 7"), (11 * US, "stream 7"), (12 * US, "stream 20")))
    names = [read_.names[node["name"]] for node in read_.nodes]
    stated = {tuple(edge) for edge in read_.edges[["before", "after"]].tolist()}
    assert stated == {
        *((names.index("cudaLaunchKernel") + offset, to) for offset, to in ((0, first), (3, second), (6, other))),
        (first, other),
        (first, names.index("cudaEventSynchronize")),
        (second, names.index("cudaStreamSynchronize")),
    }


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL128_Sum_half(ncclDevComm*)", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclDevKernel_Broadcast_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs4K)", "all_reduce"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        (SEND_RECV, "send_recv"),
    ],
)
def test_names_of_kernels(tmp_path: Path, name: str, operation: str) -> None:
    assert message(tmp_path, kernel(1, 2, name=name)) == Communication(operation)


def test_other_kernels_compute(tmp_path: Path) -> None:
    for name in ("void at::native::reduce_kernel<512, 1>(int)", "void my_ncclAllReduce()", "AllReduceKernel"):
        assert recording(tmp_path, [kernel(1, 2, name=name)]).nodes["kind"].tolist() == [COMPUTE]


DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*)"


@pytest.mark.parametrize(
    ("name", "library"),
    [
        (DISPATCH, "DeepEP"),
        ("void deep_ep::internode_ll::combine<3, 10, 7168>(void*, void*)", "DeepEP"),
        ("deep_ep::intranode::cached_notify_combine(void**, int*)", "DeepEP"),
        (
            "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "custom all-reduce of vLLM or SGLang",
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 8>()",
            "FlashInfer or TensorRT-LLM",
        ),
        ("void moeA2ADispatchKernel<8>(int const*)", "FlashInfer or TensorRT-LLM"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>()", "symmetric memory of PyTorch"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float>()", "symmetric memory of PyTorch"),
        ("void mscclpp::collective::allreduceFullmesh<float>()", "MSCCL++"),
        ("nvshmemi_proxy_rma_entrypoint(int)", "NVSHMEM"),
        ("oneccl_allreduce_pcie", "oneCCL"),
        ("hcom_allReduce__428_0_1", "HCCL"),
    ],
)
def test_kernels_that_communicate_without_nccl_are_said(tmp_path: Path, name: str, library: str) -> None:
    one = recording(tmp_path, [kernel(1, 30, name=name), kernel(50, 10)])
    assert one.nodes["kind"].tolist() == [COMPUTE, COMPUTE]
    what = (
        f"what 1 kernels of {library} send, and to whom: as captured on any fabric, 75.0 % of the time of all kernels"
    )
    assert what in one.missing


@pytest.mark.parametrize("name", ["void deep_ep::layout::get_dispatch_layout<256, 8>()", "dispatch", "gemm"])
def test_kernels_that_do_not_communicate_are_not(tmp_path: Path, name: str) -> None:
    assert not any("send, and to whom" in line for line in recording(tmp_path, [kernel(1, 2, name=name)]).missing)


def test_kernels_of_other_libraries_with_the_notes_of_a_collective_are_modelled(tmp_path: Path) -> None:
    note = {"Collective name": "allreduce", "In msg nelems": 6, "Out msg nelems": 6, "Group size": 4}
    events = noted(100, dtype="BFloat16", **note)
    events[-1]["name"] = "void mscclpp::collective::allreduceFullmesh<__nv_bfloat16>()"
    one = recording(tmp_path, events)
    (node,) = one.nodes[one.nodes["kind"] == COMMUNICATION]
    what = one.communications[node["communication"]]
    assert (what.operation, what.size) == ("all_reduce", 12)
    assert not any("send, and to whom" in line for line in one.missing)


@pytest.mark.parametrize(
    ("runtime", "annotation", "name"),
    [
        ("xpu_runtime", "xccl:all_reduce", "oneccl_allreduce_pcie"),
        ("privateuse1_runtime", "hccl:all_reduce", "hcom_allReduce__428_0_1"),
    ],
)
def test_collectives_of_other_devices_are_known_by_their_notes(
    tmp_path: Path, runtime: str, annotation: str, name: str
) -> None:
    note = {"Collective name": "allreduce", "In msg nelems": 6, "Out msg nelems": 6, "Group size": 4, "dtype": "Float"}
    before = event("user_annotation", annotation, 99, 12, 78)
    parameters = event("cpu_op", "record_param_comms", 100, 10, 78, **note)
    launch = event(runtime, "launch", 102, 1, 78, correlation=100)
    what = message(tmp_path, before, parameters, launch, kernel(104, 20, 100, 20, name))
    assert (what.operation, what.size) == ("all_reduce", 24)
    alone = message(
        tmp_path, event("user_annotation", annotation, 99, 12, 78, **note), launch, kernel(104, 20, 100, 20, name)
    )
    assert (alone.operation, alone.size) == ("all_reduce", 24)


def test_their_time_is_booked_apart_and_a_faster_gpu_does_not_shorten_it(tmp_path: Path) -> None:
    one = recording(tmp_path, [kernel(1, 30, name=DISPATCH), kernel(50, 10)])
    job = rebuild(Trace("kineto", (replace(one, rank=0),), 1), gpu_speed=2.0).program
    taken = {job.timers[op["timer"]]: op["duration"] for op in job.ops if op["kind"] == records.COMPUTE}
    assert taken == {"unmodelled communication": 30 * US, "kernels": 5 * US}


def test_their_time_is_communication_in_the_breakdown(tmp_path: Path) -> None:
    one = recording(tmp_path, [kernel(0, 30, name=DISPATCH), kernel(30, 10)])
    rebuilt = rebuild(Trace("kineto", (replace(one, rank=0),), 1))
    parts = iteration_parts(replay(machine("dgx-h100", "rdma-400g", 1), rebuilt, "kineto"))
    assert (parts.compute, parts.exposed) == (10 * US, {"unmodelled communication": 30 * US})


def test_a_job_of_several_ranks_that_sends_nothing_is_warned_of(tmp_path: Path) -> None:
    one = replace(recording(tmp_path, [kernel(1, 30, name=DISPATCH)]), rank=0)
    notes = rebuild(Trace("kineto", (one,), 64)).assumptions
    assert notes[0].startswith("its 64 ranks send nothing, as no communication of known size was recognised. Warning: ")
    assert not any("Warning" in note for note in rebuild(Trace("kineto", (one,), 1)).assumptions)


@pytest.mark.parametrize(
    ("name", "handed_in", "handed_out", "operation", "size"),
    [
        ("allreduce", 6, 6, "all_reduce", 12),
        ("_allgather_base", 6, 24, "all_gather", 48),
        ("allgather", 6, 24, "all_gather", 48),
        ("reduce_scatter_tensor_coalesced", 24, 6, "reduce_scatter", 48),
        ("all_to_allv", 24, 20, "all_to_all", 48),
        ("broadcast", 6, 6, "broadcast", 12),
        ("_reduce_oop", 6, 6, "reduce", 12),
        ("gather", 6, 0, "gather", 48),
        ("gather", 6, 24, "gather", 48),
        ("scatter", 0, 6, "scatter", 48),
        ("send", 6, 6, "send", 12),
        ("recv", 6, 6, "recv", 12),
    ],
)
def test_sizes(  # noqa: PLR0913, PLR0917  a table
    tmp_path: Path, name: str, handed_in: int, handed_out: int, operation: str, size: int
) -> None:
    note = {"Collective name": name, "In msg nelems": handed_in, "Out msg nelems": handed_out, "Group size": 4}

    what = message(tmp_path, *noted(100, dtype="BFloat16", **note))

    assert (what.operation, what.size, what.datatype) == (operation, size, "bfloat16")


def test_what_kernels_say_is_completed_by_what_is_around_their_launch(tmp_path: Path) -> None:
    note = {"Collective name": "broadcast", "In msg nelems": 4, "dtype": "Long", "Process Group Name": "1"}
    around = {**note, "Rank": 1, "Seq": 12, "Process Group Ranks": [2, 5]}
    events = noted(100, **around)
    events[-1]["args"].update(note)

    read_ = recording(tmp_path, events)

    assert [group[:] for group in read_.groups] == [("1", "", (2, 5), 2)]
    assert read_.communications == (Communication("broadcast", 0, 32, "int64", 5),)
    assert read_.nodes["sequence"].tolist() == [NONE, 12]


def test_shapes_where_there_are_no_counts(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[3, 4], [], []], "Input type": ["long int", "Scalar", ""]}
    assert message(tmp_path, *noted(100, **shapes)) == Communication("send_recv", datatype="int64")

    listed = {"Input Dims": [[], []], "Input type": ["TensorList", ""]}
    shapes = {"Input Dims": [[3, 4]], "Input type": ["c10::Half"]}
    annotation = event("user_annotation", "nccl:all_to_all", 101, 8, 78, **shapes)
    what = message(tmp_path, annotation, *noted(100, **listed))
    assert what == Communication("all_to_all", size=24, datatype="float16")


def test_the_innermost_note_is_of_the_kernel(tmp_path: Path) -> None:
    outer = event("cpu_op", "record_param_comms", 99, 50, 78, **{"Collective name": "allgather"})
    wait = event("cpu_op", "record_param_comms", 101, 8, 78, **{"Collective name": "wait"})
    before = event("cpu_op", "record_param_comms", 90, 5, 78, **{"Collective name": "broadcast"})
    elsewhere = event("cpu_op", "record_param_comms", 101, 5, 79, **{"Collective name": "reduce"})

    what = message(tmp_path, outer, wait, before, elsewhere, *noted(100, **{"Collective name": "all_to_all"}))

    assert what.operation == "all_to_all"


def test_kernels_whose_launch_is_not_captured_are_found_by_their_id(tmp_path: Path) -> None:
    note = {"Collective name": "reduce_scatter", "In msg nelems": 8, "dtype": "Float", "External id": 5}
    events = [
        event("cpu_op", "record_param_comms", 1, 2, 78, **note),
        kernel(9, 9, name=SEND_RECV, **{"External id": 5}),
    ]

    assert message(tmp_path, *events) == Communication("reduce_scatter", size=32, datatype="float32")


def test_a_gather_in_a_group_of_unknown_size(tmp_path: Path) -> None:
    note = {"Collective name": "allgather", "Input Dims": [[6]], "Input type": ["float"]}

    assert message(tmp_path, *noted(100, **note)) == Communication("all_gather", datatype="float32", share=24)


def test_splits(tmp_path: Path) -> None:
    note = {"Collective name": "all_to_allv", "In msg nelems": 12, "Out msg nelems": 20, "dtype": "Byte"}

    what = message(tmp_path, *noted(100, **note, **{"In split size": "[1, 0, 2]", "Out split size": "[2,2,1]"}))
    assert (what.sent, what.received) == ((4, 0, 8), (8, 8, 4))

    what = message(tmp_path, *noted(100, **note, **{"In split size": "[1, 0, 2, ...]", "Out split size": "[]"}))
    assert (what.sent, what.received) == ((), ())


def test_kernels_that_share_a_collective_count_its_bytes_once(tmp_path: Path) -> None:
    note = {"Collective name": "allreduce", "In msg nelems": 6, "dtype": "Float"}
    events = [*noted(100, **note), call("cudaLaunchKernel", 104, 1, 7), kernel(130, 5, 7, 20, ALL_REDUCE)]

    read_ = recording(tmp_path, events)

    sizes = [read_.communications[i].size for i in read_.nodes["communication"] if i != NONE]
    assert sizes == [24, 0]
    assert any("of 1 kernels" in sentence for sentence in read_.missing)


@pytest.mark.parametrize(
    ("config", "note", "group"),
    [
        ([{"pg_name": "0", "pg_desc": "dp", "pg_size": 4, "ranks": []}], {}, ("0", "dp", (0, 1, 2, 3), 4)),
        ([{"pg_name": "0", "pg_size": 2, "ranks": [1, 3]}], {"Process Group Ranks": "[7]"}, ("0", "", (1, 3), 2)),
        ([], {"Process Group Ranks": "[0, 2]", "Group size": 2}, ("0", "", (0, 2), 2)),
        (
            [],
            {"Process Group Ranks": "[0, 2, ...]", "Group size": 3, "Global rank start": 1, "Global rank stride": 2},
            ("0", "", (1, 3, 5), 3),
        ),
        ([], {"Process Group Ranks": "[0, ...]", "Group size": 3}, ("0", "", (), 3)),
        (["x", {"pg_name": 5}, {"pg_name": "0", "ranks": [-1], "pg_size": -2}], {}, ("0", "", (), NONE)),
    ],
)
def test_groups(tmp_path: Path, config: object, note: dict[str, object], group: tuple[object, ...]) -> None:
    about = {"rank": 0, "world_size": 4, "pg_config": config}

    read_ = recording(tmp_path, noted(9, **{"Process Group Name": "0"}, **note), distributedInfo=about)

    assert read_.groups == (group,)


def test_the_other_end_of_a_message(tmp_path: Path) -> None:
    pair = {"Process Group Name": "pp", "Process Group Ranks": "[3, 9]"}
    assert message(tmp_path, *noted(9, **{"Collective name": "send", "Dst Rank": 9}, **pair)).peer == 9
    assert message(tmp_path, *noted(9, **{"Collective name": "recv", "Src Rank": 3}, **pair)).peer == 3
    assert message(tmp_path, *noted(9, **{"Collective name": "send", "Rank": 1}, **pair)).peer == 9


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-5.json", 5),
        ("trace_rank_12.json", 12),
        ("worker7_step_3.99.pt.trace.json", 7),
        ("kineto_3.json", 3),
        ("rank0", 0),
        ("trace.json", NONE),
    ],
)
def test_ranks_of_names(tmp_path: Path, name: str, rank: int) -> None:
    read_ = recording(tmp_path, [kernel(1, 1)], name=name)

    assert read_.rank == rank
    assert any("its rank" in sentence for sentence in read_.missing) == (rank == NONE)


def test_what_stands_around_the_events(tmp_path: Path) -> None:
    events = json.dumps([kernel(1, 1)])
    about = '"distributedInfo": {"rank": 1, "world_size": 2}, "deviceProperties": [{"id": 0, "name": "GPU"}]'
    for content in (
        f'{{{about}, "traceEvents": {events}, "x": [{{}}]}}',
        f'\ufeff {{"traceEvents": {events}, {about}, "baseTimeNanoseconds": 0}}\n',
    ):
        read_ = recording(tmp_path, content, name="a.json")
        assert (read_.rank, read_.world, read_.device) == (1, 2, "GPU")
    assert len(recording(tmp_path, events).nodes) == 1


def test_strange_names_are_kept(tmp_path: Path) -> None:
    content = json.dumps([kernel(1, 1, name='a "quoted" \u2192 one'), kernel(3, 1, name="odd")]).encode()

    names = recording(tmp_path, content.replace(b"odd", b"odd \x01\xff\t")).names

    assert names == ('a "quoted" \u2192 one', "odd \x01\ufffd\t")


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        (r"a\ud800b", "a\ufffdb"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\ude00\ud83d\ud83d\ude00", "\ufffd\ufffd\U0001f600"),
        (r"\\ud800", r"\ud800"),
        (r"\\\ud800\n", "\\\ufffd\n"),
    ],
)
def test_half_a_pair_of_surrogates_is_no_character(written: str, read_as: str) -> None:
    assert kineto_file.decoded(f'"{written}"'.encode()) == read_as


GOOD = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(1, 1), kernel(3, 1)]})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (GOOD[:-40], "ends in or after event 2; the job was killed"),
        (GOOD[:-1], "the file ends before its JSON does"),
        (GOOD[:10], "the file ends before its JSON does"),
        ("{}", "has no traceEvents"),
        ('{"a": 1, "traceEvents": []}', "holds no kernels"),
        ('{"traceEvents": {}}', "no list"),
        ('{"traceEvents": [5]}', "at byte 17: this is no JSON"),
        ("[[" + "[" * 100, "this is no JSON"),
        ('{"a": ' + "[" * 100, "brackets within brackets"),
        ('{"distributedInfo": [1e]}', "distributedInfo is no JSON"),
        (GOOD + GOOD, "more text after the end"),
        (GOOD.replace('"ts": 3', '"ts": "3"'), "the ts of the event 'gemm' is missing, no number"),
        (GOOD.replace('"dur": 1', '"dur": 1e300'), "the dur of the event 'gemm'"),
        (GOOD.replace('"ts": 3', '"ts": 9e13'), "the ts of the event"),
        (GOOD.replace("gemm", ALL_REDUCE).replace('"device": 0', '"device": 0e'), "this event is no JSON"),
        (
            json.dumps({"distributedInfo": {"rank": 2, "world_size": 2}, "traceEvents": [kernel(1, 1)]}),
            "rank 2 of 2",
        ),
    ],
)
def test_bad_files(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(TraceError) as raised:
        recording(tmp_path, content)

    assert problem in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "rank3.json"))


@pytest.mark.slow
def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_file, "MOST_VALUE", 2**23)
    monkeypatch.setattr("fabricsim.traces.kineto.events.MOST_EVENTS", 1)
    with pytest.raises(TraceError, match="more than 1 events"):
        recording(tmp_path, [kernel(1, 1), kernel(3, 1)])
    with pytest.raises(TraceError, match="of more than 8 MiB"):
        recording(tmp_path, [{"a": "x" * (16 * 2**20)}])
    monkeypatch.setattr("fabricsim.traces.kineto.events.MOST_NAMES", 3)
    with pytest.raises(TraceError, match="of names"):
        recording(tmp_path, [kernel(1, 1)])


SPACES = st.sampled_from([None, 0, 2])
KERNELS = st.lists(
    st.tuples(
        st.integers(0, 10**12),  # ns
        st.integers(0, 10**9),
        st.integers(0, 3),
        st.text(min_size=1, max_size=8),
        st.sampled_from(["kernel", "cpu_op", "python_function"]),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@given(rows=KERNELS, indent=SPACES, chunk=st.integers(1, 300), ascii_=st.booleans())
@FIXTURES
def test_any_events_in_any_pieces(
    tmp_path: Path, rows: list[tuple[int, int, int, str, str]], indent: int | None, chunk: int, *, ascii_: bool
) -> None:
    """Against a JSON decoder, however the file is written and cut into pieces."""
    rows = [*rows, (0, 1, 0, "last", "kernel")]
    events = [
        {
            **event(category, name, 0, 0, lane, device=0, stream=lane),
            "ts": f"{ns // 1000}.{ns % 1000:03}",
            "dur": f"{dur}e-3",
        }
        for ns, dur, lane, name, category in rows
    ]
    content = json.dumps({"traceEvents": events}, indent=indent, ensure_ascii=ascii_)
    for one in events:
        for key in ("ts", "dur"):
            content = content.replace(f'"{key}": "{one[key]}"', f'"{key}": {one[key]}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_file, "_CHUNK", chunk)
        read_ = recording(tmp_path, content)

    wanted = [(ns * 1000, dur * 1000, lane, name) for ns, dur, lane, name, category in rows if category == "kernel"]
    assert [
        (
            node["start"] + read_.origin * 1000,
            node["duration"],
            int(read_.lanes[node["lane"]].name[7:]),
            read_.names[node["name"]],
        )
        for node in read_.nodes
    ] == wanted


def sample(**head: object) -> bytes:
    events = [
        *noted(100, **{"Collective name": "allreduce", "In msg nelems": 6, "dtype": "Float", "In split size": "[1]"}),
        call("cudaMemcpy", 120, 9, 5),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 122, 3, device=0, stream=7, correlation=5, bytes=64),
        call("cudaEventRecord", 130, 1, 6),
        call("cudaStreamWaitEvent", 131, 1, 8),
        event("cuda_sync", "Stream Wait Event", 6, 1, 7, stream=7, correlation=8, wait_on_stream=20, device=0)
        | {"args": {"wait_on_cuda_event_record_corr_id": 6, "correlation": 8, "wait_on_stream": 20, "stream": 7}},
        *noted(140.5, **{"Input Dims": [[3, 4], []], "Input type": ["float", ""], "Process Group Name": "0"}),
        event("user_annotation", "nccl:all_to_all", 140.5, 9, 78),
        event("user_annotation", "ProfilerStep#1", 90, 100, 78),
        call("cudaDeviceSynchronize", 170, 9, 99),
        {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 4, "cat": "ac2g", "name": "ac2g"},
    ]
    return json.dumps({**head, "traceEvents": events}).encode()


HEAD = {
    "deviceProperties": [{"id": 0, "name": "GPU"}],
    "distributedInfo": {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}]},
    "baseTimeNanoseconds": 10**18,
}


@pytest.mark.slow
@given(data=st.data())
@settings(FIXTURES, max_examples=150)
def test_damaged_files_end_in_a_recording_or_a_trace_error(tmp_path: Path, data: st.DataObject) -> None:
    content = data.draw(mutations.damaged([sample(**HEAD), sample(), json.dumps([kernel(1, 1)]).encode()]))
    try:
        read_ = recording(tmp_path, content, name="rank1.json")
    except TraceError:
        return
    assert (read_.nodes["start"] >= 0).all()
    assert (read_.nodes["duration"] >= 0).all()
    assert len(read_.edges) == 0 or max(read_.edges["before"].max(), read_.edges["after"].max()) < len(read_.nodes)
    assert (read_.nodes["communication"] < len(read_.communications)).all()
    assert (read_.nodes["lane"] < len(read_.lanes)).all()
    assert (read_.edges["before"] != read_.edges["after"]).all()


def test_recognised(tmp_path: Path) -> None:
    (tmp_path / "any.name").write_bytes(gzip.compress(sample(**HEAD)))

    assert read([tmp_path / "any.name"]).form == "kineto"
    assert kineto.recognises("", b'[\n {"ph": "X", "cat": "kernel"')
    assert not kineto.recognises("", b'[{"name": "process_name", "ph": "M"}')
    assert not kineto.recognises("", b'{"schema": "1.0.1", "nodes": [')


@pytest.mark.slow
def test_a_made_up_trace(tmp_path: Path) -> None:
    file = tmp_path / "made.json"
    operations = kineto_traces.write(file, 2**20)

    (read_,) = read([file]).recordings

    assert (read_.rank, read_.world, len(read_.steps)) == (3, 16, operations / 1000)
    assert Counter(read_.nodes["kind"].tolist()) == {
        LAUNCH: operations,
        COMPUTE: operations * 9 // 10,
        COMMUNICATION: operations // 10,
        WAIT: operations // 1000,
    }
    assert {one.size for one in read_.communications} == {2 * (1000 + i) for i in range(7)}
