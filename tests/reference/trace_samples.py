"""One small sample or two of each form of traces and logs, for damage to begin with; written from the descriptions."""

from __future__ import annotations

import io
import json
import random
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from fabricsim.files.sources import sources
from fabricsim.traces.chakra.schema import (
    METADATA,
    Attribute,
    ChakraNode,
    Metadata,
    Tensors,
    encode_file_message,
    encode_metadata,
    encode_node,
    messages,
)

_GOAL = """\
num_ranks 2
rank 0 { // the first
  work: calc 1500 cpu 1
  out: send 4096b to 1 tag 7
  out requires work /* sent when done */
  in: recv 8b from 1 tag 9
  in irequires out
}
rank 1 {
  l1: recv 4096b from 0 tag 7
  l2: send 8b to 0 tag 9
  l2 requires l1
}
"""
_AICB = """\
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count
CommType.all_reduce,CommGroup.dp_group,4,4096,init,None,None,,3.5,0.0,0.0,1
CommType.epoch_end,None,None,0,,None,None,,10.0,None,None,1
CommType.computation,CommGroup.all,1,1,forward.MegatronMlp,None,None,,0.25,0.0,0.0,1
CommType.all_gather,CommGroup.tp_group,2,1024,forward,None,None,,0.125,67.7,67.7,1
CommType.epoch_end,None,None,0,,None,None,,2.0,None,None,1
"""
_ASTRASIM = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 \
checkpoints: 0 checkpoint_initiates: 0
2
first\t-1\t1000\tALLGATHER\t64\t2000\tREDUCESCATTER\t0\t3000\tALLREDUCE\t4096\t100
second\t-1\t4000\tALLTOALL_EP\t128\t5000\tALLREDUCE\t256\t6000\tREDUCESCATTER_DP_EP\t8192\t0
"""
_MEGATRON = """\
------------------------ arguments ------------------------
  micro_batch_size ................................ 4
  seq_length ...................................... 1024
  tensor_model_parallel_size ...................... 2
  world_size ...................................... 16
-------------------- end of arguments ---------------------
time (ms) | load-checkpoint: 140.84
 iteration        1/     100 | consumed samples:           32 | elapsed time per iteration (ms): 7436.8 | \
learning rate: 0.000E+00 | global batch size:    32 | number of skipped iterations:   1 |
time (ms) | forward-compute: 750.50 | optimizer: 25.15
0:  iteration        2/     100 | consumed samples:           64 | elapsed time per iteration (ms): 400.0 | \
global batch size:    32 | loss scale: 1.0 | number of skipped iterations:   0 |
0: time (ms) | forward-compute: 50.00 | optimizer: 20.00
 iteration        3/     100 | consumed samples:           96 | elapsed time per iteration (ms): 200.0 | \
global batch size:    32 | loss scale: 1.0 | number of skipped iterations:   0 |
time (ms) | forward-compute: 30.00 | optimizer: 20.00 | save-checkpoint: 900.00
"""
_MEGATRON_CORE = """\
 [2024-05-01 10:00:00] iteration       10/     100 | consumed samples:          320 | elapsed time per iteration \
(ms): 9000.0 | throughput per GPU (TFLOP/s/GPU): 10.0 | learning rate: 1.5E-06 | global batch size:    32 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (300.00, 320.00)
 [2024-05-01 10:00:04] iteration       20/     100 | consumed samples:          640 | elapsed time per iteration \
(ms): 400.0 | throughput per GPU (TFLOP/s/GPU): 180.5 | learning rate: 1.5E-06 | global batch size:    32 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (310.00, 350.00)
    optimizer ......................................: (20.00, 24.00)
saving checkpoint at iteration 20: done
"""
_NCCL_TESTS = """\
# nThread 1 nGpus 2 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid  15610 on      node1 device  0 [0x3d] GeForce RTX 2080 Ti
#   Rank  1 Pid  15611 on      node1 device  1 [0x3e] GeForce RTX 2080 Ti
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        1024           256   float     sum    20.46    0.05    0.05  1e-07    20.12    0.05    0.05  1e-07
        2048           512   float     sum    21.11    0.10    0.10  1e-07    20.95    0.10    0.10  1e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.075
"""
_OSU = """\
# OSU MPI Latency Test v5.7
# Size          Latency (us)
0                       1.67
8                       1.74
1024                    2.53
"""


def _nccl_log() -> str:
    lines = ["NCCL version 2.21.5+cuda12.4"]
    for rank in range(2):
        said = f"node{rank}:{100 + rank}:{200 + rank} [0] NCCL INFO "
        comm = f"comm 0x7f{rank}0 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xabc"
        lines += [
            f"{said}Using network IB",
            f"{said}NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
            f"{said}ncclCommInitRank {comm} - Init START",
            f"{said}Channel 00/02 :    0   1",
            f"{said}Trees [0] {('1/-1/-1->0->-1', '-1/-1/-1->1->0|0->1->-1/-1/-1')[rank]}",
            f"{said}Channel 00/0 : {1 - rank}[0] -> {rank}[0] [receive] via NET/IB/0/GDRDMA",
            f"{said}2 coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
            f"{said}ncclCommInitRank {comm} - Init COMPLETE",
            f"{said}AllReduce: 4096 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}",
        ]
        for number, name in enumerate(("AllReduce", "AllGather", "Send", "Recv", "Broadcast")):
            lines.append(
                f"{said}{name}: opCount {min(number, 2):x} sendbuff 0x7f00 recvbuff 0x7f00 count 1024 datatype 7 op 0 "
                f"root {1 - rank if name in {'Send', 'Recv'} else 0} comm 0x7f{rank}0 [nranks=2] stream 0x55aa"
            )
    return "\n".join(lines) + "\n"


def _kineto() -> dict[str, Any]:
    def event(category: str, name: str, tid: int, start: float, duration: float, **notes: object) -> dict[str, Any]:
        pid = 0 if category in {"kernel", "gpu_memcpy"} else 77
        return {
            "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration,
            "args": notes,
        }  # fmt: skip

    kernel = {"device": 0, "context": 1, "stream": 7}
    collective = {
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 2,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
    }
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": 1711964646000000000,
        "traceEvents": [
            event("user_annotation", "ProfilerStep#3", 77, 100, 900),
            event("cuda_runtime", "cudaLaunchKernel", 77, 110.5, 5, correlation=1),
            event("kernel", "gemm", 7, 120, 100, correlation=1, **kernel),
            {"ph": "s", "id": 1, "pid": 77, "tid": 77, "ts": 110.5, "cat": "ac2g", "name": "ac2g"},
            {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 120, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            event("cuda_runtime", "cudaLaunchKernel", 77, 130, 5, correlation=2),
            event("kernel", name, 7, 230, 50, correlation=2, **kernel, **collective),
            event("cuda_runtime", "cudaDeviceSynchronize", 77, 140, 150, correlation=3),
            event("gpu_memcpy", "Memcpy HtoD", 7, 300, 10, bytes=4096, correlation=4, **kernel),
        ],
    }


def _pytorch_et() -> dict[str, Any]:
    def node(number: int, name: str, above: int, inputs: list[Any], kinds: list[str]) -> dict[str, Any]:
        return {
            "id": number,
            "name": name,
            "ctrl_deps": above,
            "inputs": {"values": inputs, "shapes": [[8]] * len(inputs), "types": kinds},
            "outputs": {"values": [], "shapes": [], "types": []},
            "attrs": [
                {"name": "rf_id", "type": "uint64", "value": number},
                {"name": "tid", "type": "uint64", "value": 1},
                {"name": "op_schema", "type": "string", "value": ""},
            ],
        }

    tensor = [3, 1003, 0, 8, 4, "cuda:0"]
    listed = json.dumps([{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "group_size": 2}])
    record = [[tensor], 1, ["0", "default_pg"], 0, "allreduce", [], [], 0, 1, 2]
    nodes = [
        node(1, "[pytorch|profiler|execution_trace|process]", 1, [], []),
        node(2, "[pytorch|profiler|execution_trace|thread]", 1, [], []),
        node(3, "## process_group:init ##", 2, [listed], ["String"]),
        node(4, "aten::add_", 2, [tensor, tensor, 1], ["Tensor(float)", "Tensor(float)", "Int"]),
        node(5, "record_param_comms", 2, record, ["GenericList[Tensor(float)]"] + ["Int"] * 9),
    ]
    return {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "now", "start_ts": 5, "nodes": nodes, "finish_ts": 9}


def _chakra() -> bytes:
    compute = ChakraNode(
        1,
        "step",
        4,
        (),
        (),
        0,
        4,
        None,
        None,
        (Attribute("is_cpu_op", "bool", value=False), Attribute("num_ops", "int64", 9)),
    )
    attributes = (
        Attribute("comm_type", "int64", 0),
        Attribute("comm_size", "int64", 4096),
        Attribute("pg_name", "string", "0"),
    )
    collective = ChakraNode(2, "all_reduce", 7, (), (1,), 0, 0, None, None, attributes)
    listed = ChakraNode(3, "init process_group:init", METADATA, inputs=Tensors('[\'[{"pg_name": "0"}]\']'))
    written = [encode_metadata(Metadata("0.0.4")), *(encode_node(node) for node in (compute, collective, listed))]
    return b"".join(map(encode_file_message, written))


def _horovod() -> list[dict[str, Any]]:
    named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.1"}}
    return [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1000}},
        named,
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},
        {"ph": "X", "name": "0", "ts": 11, "pid": 1, "dur": 0},
        {"ph": "X", "name": "1", "ts": 12, "pid": 1, "dur": 0},
        {"ph": "E", "ts": 20, "pid": 1},
        {"ph": "B", "name": "ALLREDUCE", "ts": 21, "pid": 1},
        {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 25, "pid": 1},
        {"ph": "E", "ts": 75, "pid": 1},
        {"ph": "E", "ts": 76, "pid": 1, "args": {"dtype": "float16", "shape": "[10, 20]"}},
    ]


def _hierarchical() -> list[dict[str, Any]]:
    events = [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1}]
    events += [{"ph": "X", "name": str(rank), "ts": 11, "pid": 1, "dur": 0} for rank in range(4)]
    events += [{"ph": "E", "ts": 20, "pid": 1}, {"ph": "B", "name": "ALLREDUCE", "ts": 21, "pid": 1}]
    parts = ("NCCL_REDUCESCATTER", "NCCL_REDUCE", "MEMCPY_IN_HOST_BUFFER", "MPI_ALLREDUCE", "MEMCPY_OUT_HOST_BUFFER")
    for number, name in enumerate((*parts, "NCCL_ALLGATHER", "NCCL_BCAST"), 3):
        events.append({"ph": "B", "name": name, "ts": 10 * number, "pid": 1})
        events.append({"ph": "E", "ts": 10 * number + 9, "pid": 1})
    return [*events, {"ph": "E", "ts": 110, "pid": 1, "args": {"dtype": "float32", "shape": "[1025]"}}]


def _inspector() -> bytes:
    head = {
        "header": {"id": "0x11", "rank": 0, "n_ranks": 2, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "dump_timestamp_us": 1749490229087081,
            "hostname": "node7",
            "pid": 468528,
        },
    }
    measured = {
        "coll": "AllReduce",
        "coll_sn": 129,
        "coll_msg_size_bytes": 4096,
        "coll_exec_time_us": 61,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 19.1,
        "coll_busbw_gbs": 18.5,
    }
    rows = [{**head, "coll_perf": {**measured, "coll_sn": number}} for number in (129, 130)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _flight_recorder() -> dict[str, Any]:
    entry = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_750_000_000_000_000_000,
        "duration_ms": 0.25,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 5,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
    }
    sent = {**entry, "record_id": 1, "op_id": 2, "p2p_seq_id": 1, "profiling_name": "nccl:send 0->1", "is_p2p": True}
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": [entry, sent]}


def _without_messages(dump: dict[str, Any]) -> dict[str, Any]:
    """Leave out sends and receives, of which one rank does not tell what another does."""
    return dump | {"entries": [entry for entry in dump["entries"] if not entry["is_p2p"]]}


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


SAMPLES: dict[str, list[bytes]] = {
    "kineto": [_json(_kineto())],
    "pytorch_et": [_json(_pytorch_et())],
    "chakra": [
        _chakra(),
        b'{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": 2, "comm_size": 5, "data_deps": []}], "ngpus": 2}',
    ],
    "goal": [_GOAL.encode()],
    "aicb": [_AICB.encode()],
    "astrasim": [_ASTRASIM.encode()],
    "horovod": [_json(_horovod()), _json(_hierarchical())],
    "inspector": [_inspector()],
    "flight_recorder": [_json(_flight_recorder()), _json(_without_messages(_flight_recorder()))],
    "nccl_log": [_nccl_log().encode()],
    "nccl_tests": [_NCCL_TESTS.encode()],
    "osu": [_OSU.encode()],
    "megatron": [_MEGATRON.encode(), _MEGATRON_CORE.encode()],
}
"""By form, as of `fabricsim.traces.form.FORMS` and `fabricsim.traces.log_views.VIEWS`."""

REAL: dict[str, tuple[str, ...]] = {
    "kineto": ("kineto/dlrm_kineto.tar.gz", "kineto/nccl_parser_config_nccl_data.json.gz"),
    "pytorch_et": ("pytorch_et/dlrm_pytorch_et.tar.gz", "pytorch_et/resnet_2gpu_et.json.gz"),
    "chakra": ("chakra/feeder_tests_trace.tar.gz", "chakra_llama/stage_llama_dp2tp2pp2.tar.xz"),
    "goal": ("goal/binary_tree_32.goal",),
    "aicb": ("aicb/A100_example_measured.csv.xz", "aicb/phys_L7B-D1-C01_Llama7B_zero2_mbs1.csv"),
    "astrasim": ("simai/microAllReduce.txt", "aicb/simai_L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt"),
    "horovod": ("nccl_logs/hkbu_100g/horovod-nccl-only.json",),
    "inspector": (),
    "flight_recorder": (),
    "nccl_log": ("megatron_logs/all_reduce_bench-32gb-n4.txt.xz", "nccl_logs/hkbu_100g/100g-stepexp2.txt"),
    "nccl_tests": ("nccl_logs/hkbu_100g/100g-stepexp2.txt",),
    "osu": ("osu/hkbu/100g-latency.txt",),
    "megatron": ("dai_author_logs/frontera-megatron-bert-worldsize8-mbs1-noderank1-gbs8-DP8-TP1-PP1.out.gz",),
}
"""Real files of each form, in the folder of captured traces."""

_MOST = 16 * 2**10
_LESS = {"aicb": 4 * 2**10, "nccl_log": 8 * 2**10}
"""Bytes of forms of which each line takes long: a row of AICB is one of each rank of a large job."""


def real_samples(form: str, folder: Path) -> list[bytes]:
    """Take a piece of each real file: a few entries of each list of JSON, the first lines of text, some messages."""
    names = [folder / name for name in REAL[form] if (folder / name).exists()]
    taken = [source.stream.read(32 * 2**20) for name in names for source in sources([name])]
    return [_piece(form, whole) for whole in taken[:6]]


def _piece(form: str, whole: bytes) -> bytes:
    if form == "nccl_tests":
        whole = b"".join(line for line in whole.splitlines(keepends=True) if b"NCCL INFO" not in line)
    most = _LESS.get(form, _MOST)
    if len(whole) <= most:
        return whole
    if form == "chakra":
        written = [encode_file_message(message) for message in islice(messages(io.BytesIO(whole)), 50)]
        sizes = accumulate(map(len, written))
        return b"".join(message for message, size in zip(written, sizes, strict=True) if size <= most)
    try:
        return _json(_thinned(json.loads(whole), random.Random(1)))  # noqa: S311  no secret
    except ValueError:
        end = whole.rfind(b"\n", 0, most) + 1
        return whole[: end or most]


def _thinned(value: Any, chance: random.Random, most: int = 40) -> Any:  # noqa: ANN401  any JSON
    """Keep the beginning of each list and a run from its middle."""
    if isinstance(value, dict):
        return {key: _thinned(below, chance) for key, below in value.items()}
    if isinstance(value, list):
        begin = chance.randrange(max(len(value) - most, 1))
        kept = value if len(value) <= most else [*value[: most // 4], *value[begin : begin + most]]
        return [_thinned(below, chance) for below in kept]
    return value
