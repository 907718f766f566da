"""Results made by hand, without any engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabricsim.records.packet import ACK, DATA
from fabricsim.records.program import COMPUTE, OVERLAPPED_STREAM, SLOWDOWN_BINS, SPAN
from fabricsim.results.packets import ENTRY, WIRE, PacketLog, Packets, Tap
from fabricsim.results.result import CallRecord, CallRecords, LinkRecord, RunRecord, Series
from fabricsim.results.summary import Summary
from fabricsim.units import PS_PER_S
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, Program

S = PS_PER_S
MS = S // 1000
RATE = 1.25e9
CAPACITY = 1.2e9

TIMERS = (
    "forward-compute",
    "forward-recv",
    "backward-compute",
    "backward-send-forward-recv",
    "params-all-reduce",
    "embedding-all-reduce",
    "optimizer",
)


def replay(program: Program, cost: dict[int, int]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Give spans and (start, end) per call where call `i` takes ``cost[i]`` after its last rank is ready."""
    ops, spans = program.ops, np.zeros(len(program.ops), SPAN)
    missing = ops["predecessors"].copy()
    ready = list(np.flatnonzero(missing == 0))
    joined: dict[int, list[int]] = {}
    times = [(0, 0)] * len(program.calls)
    while ready:
        index = ready.pop(0)
        op = ops[index]
        if op["kind"] == COMPUTE:
            done, end = [index], int(spans["start"][index] + op["duration"])
        else:
            call = int(op["call"])
            done = joined.setdefault(call, [])
            done.append(index)
            if len(done) < len(program.calls[call].ranks):
                continue
            start = int(spans["start"][done].max())
            end = start + cost[call]
            times[call] = (start, end)
        for member in done:
            spans["end"][member] = end
            first, count = ops[member]["first_successor"], ops[member]["successors"]
            for successor in program.successors[first : first + count]:
                spans["start"][successor] = max(spans["start"][successor], end)
                missing[successor] -= 1
                if missing[successor] == 0:
                    ready.append(successor)
    return spans, times


@dataclass
class Draft:
    """A program and how long its calls take, on the way to a result."""

    builder: ProgramBuilder
    cost: dict[int, int]

    def call(self, collective: str, ranks: tuple[int, ...], size: int, dimension: str, cost: int) -> int:
        index = self.builder.call(Call(collective, ranks, size, dimension))
        self.cost[index] = cost
        return index

    def finish(self, transport: str = "tcp-10g", wires: int = 2) -> RunRecord:
        program = self.builder.build()
        spans, times = replay(program, self.cost)
        calls = CallRecords.of(
            CallRecord(call.collective, call.dimension, len(call.ranks), call.size, start, end, CAPACITY)
            for call, (start, end) in zip(program.calls, times, strict=True)
        )
        iteration = int(spans["end"].max())
        return RunRecord(
            name="example",
            source='name = "example" # µ\n',
            resolved={"name": "example", "cluster": {"hosts": 2, "rates": ["10Gbps", 1.5]}},
            transport=transport,
            engine="flow",
            seed=7,
            version="0.1.0",
            ops=program.ops,
            spans=spans,
            timers=program.timers,
            calls=calls,
            links=links(wires, iteration),
            series=series(wires, iteration, calls),
            slowdowns=slowdowns(),
            counters={"messages": 12, "events": 34, "rate_updates": 5, "dag_nodes": len(program.ops)},
            iteration=iteration,
            wall_seconds=0.25,
            notes=("two ranks simulated", "nothing assumed"),
        )


def slowdowns() -> np.ndarray:
    counts = np.zeros(SLOWDOWN_BINS, np.int64)
    counts[0], counts[32] = 9, 3  # nine as fast as alone, three up to twice as slow
    return counts


def links(wires: int, iteration: int) -> tuple[LinkRecord, ...]:
    time = iteration / S
    out = [
        LinkRecord(
            name=f"host{wire} > leaf0",
            kind="wire",
            capacity=RATE,
            load=RATE * time * 0.5 / (1 + wire),
            payload=CAPACITY * time * 0.5 / (1 + wire),
            calls=("data all_reduce", "pipeline send_recv") if wire == 0 else ("data all_reduce",),
        )
        for wire in range(wires)
    ]
    return (
        *out,
        LinkRecord("host0 proxy", "thread", 1.0, 0.8 * time, 3e6, ()),
        LinkRecord("spare", "wire", RATE, 0, 0, ()),
    )


def series(wires: int, iteration: int, calls: CallRecords, bins: int = 200) -> Series:
    interval = -(-iteration // bins)
    middle = (np.arange(bins) + 0.5) * interval
    busy = np.zeros(bins, bool)
    for call in calls:
        busy |= (middle >= call.start) & (middle < call.end)
    rate = np.array([busy * CAPACITY * 0.9 / (1 + wire) for wire in range(wires)]).reshape(wires, bins)
    return Series(interval, tuple(f"host{wire} > leaf0" for wire in range(wires)), rate, np.full(wires, CAPACITY))


def two_ranks(sending: int = 2 * S) -> RunRecord:
    """Rank 0 computes 4 s, rank 1 6 s; all-reduce 4 s; optimizer 1 s; a send of 2 s runs behind it from the start."""
    draft = Draft(ProgramBuilder(("forward-compute", "send", "params-all-reduce", "optimizer")), {})
    send = draft.call("send_recv", (0, 1), 1_000_000, "pipeline", sending)
    reduce = draft.call("all_reduce", (0, 1), 4_000_000_000, "data", 4 * S)
    for rank, duration in ((0, 4 * S), (1, 6 * S)):
        draft.builder.join(send, rank, "send", stream=OVERLAPPED_STREAM)
        draft.builder.compute(rank, duration, "forward-compute")
        draft.builder.join(reduce, rank, "params-all-reduce")
        draft.builder.compute(rank, S, "optimizer")
    return draft.finish()


def bucketed() -> RunRecord:
    """Each of two ranks computes 4 s, an all-reduce of 5 s starts after 2 s, and a 1 s optimizer waits for it."""
    draft = Draft(ProgramBuilder(("backward-compute", "params-all-reduce", "optimizer")), {})
    reduce = draft.call("all_reduce", (0, 1), 1000, "data", 5 * S)
    for rank in (0, 1):
        first = draft.builder.compute(rank, 2 * S, "backward-compute")
        joined = draft.builder.join(reduce, rank, "params-all-reduce", stream=OVERLAPPED_STREAM, after=[first])
        draft.builder.compute(rank, 2 * S, "backward-compute")
        draft.builder.compute(rank, S, "optimizer", after=[joined])
    return draft.finish()


def pipeline(ranks: int = 4, batches: int = 8, transport: str = "tcp-10g", slow: int = 1) -> RunRecord:
    """GPipe over `ranks` stages, then a gradient all-reduce and an embedding all-reduce of the two ends."""
    draft = Draft(ProgramBuilder(TIMERS), {})
    for forward, names in ((True, TIMERS[:2]), (False, (TIMERS[2], TIMERS[3]))):
        order = range(ranks) if forward else range(ranks - 1, -1, -1)
        step = 1 if forward else -1
        between = {
            (stage, batch): draft.call("send_recv", (stage, stage + step), 4 << 20, "pipeline", slow * MS)
            for batch in range(batches)
            for stage in order
            if 0 <= stage + step < ranks
        }
        for batch in range(batches):
            for stage in order:
                if (stage - step, batch) in between:
                    draft.builder.join(between[stage - step, batch], stage, names[1])
                draft.builder.compute(stage, (4 if forward else 8) * MS, names[0])
                if (stage, batch) in between:
                    draft.builder.join(between[stage, batch], stage, names[1])
    data = draft.call("all_reduce", tuple(range(ranks)), 100 << 20, "data", 30 * slow * MS)
    ends = draft.call("all_reduce", (0, ranks - 1), 50 << 20, "embedding", 10 * slow * MS)
    for rank in range(ranks):
        draft.builder.join(data, rank, TIMERS[4])
        if rank in {0, ranks - 1}:
            draft.builder.join(ends, rank, TIMERS[5])
        draft.builder.compute(rank, 5 * MS, TIMERS[6])
    return draft.finish(transport, wires=min(ranks, 12))


def packets(wires: dict[str, dict[str, int]] | None = None) -> Packets:
    """Record two wires, a queue and a window over time, and three packets with their answers."""
    counts = wires or {"host0 > leaf0": {"packets": 6, "bytes": 9228, "deepest": 64000, "marks": 1}, "spare": {}}
    table = np.zeros(len(counts), WIRE)
    for row, values in zip(table, counts.values(), strict=True):
        for name, value in values.items():
            row[name] = value
    entries = np.zeros(6, ENTRY)
    entries["time"] = np.array([0, 1, 2, 10, 11, 12]) * MS // 1000
    entries["number"] = [0, 1, 2, 1, 2, 3]
    entries["echo"] = [0, 0, 0, 0, 1, 2]
    entries["kind"] = [DATA] * 3 + [ACK] * 3
    entries["bytes"] = [1538] * 3 + [90] * 3
    entries["wire"] = [0, 0, 0, 1, 1, 1]
    ends = np.array([0], np.int32), np.array([1], np.int32)
    return Packets(
        tuple(counts),
        table,
        (
            Tap("queue", "host0 > leaf0", np.array([0, MS, 2 * MS]), np.array([0.0, 64000.0, 0.0])),
            Tap("window", "0->1", np.array([0, MS]), np.array([10.0, 11.0])),
        ),
        PacketLog(entries, ("host0 > leaf0", "leaf0 > host0"), *ends, 1448, 90, "tcp", ecn=True),
    )


def by_transport(*summaries: Summary) -> tuple[str, list[str]]:
    return "transport", [summary["transport"] for summary in summaries]
