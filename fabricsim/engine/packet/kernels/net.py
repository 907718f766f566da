"""All tables of the packet engine's network, handed through the kernels as one pointer."""

from typing import Any, ClassVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from fabricsim.jit.tables import Tables
from fabricsim.records import packet as t
from fabricsim.records import transport as tt


class Net(Tables):
    """One simulated network; kinds of it have the columns and kernels of laws and load-balancing rules besides."""

    TABLES: ClassVar[dict[str, np.dtype[Any]]] = {
        "world": t.NETWORK,  # one row
        "nodes": t.NODE,
        "next_times": np.dtype(np.int64),  # when each node has something to do next, ps
        "tree": np.dtype(np.int64),  # tournament over next_times
        "stretches": t.STRETCH,  # of nodes, by side
        "ins": np.dtype(np.int32),  # incoming links, by node
        "links": t.LINK,
        "ports": t.PORT,
        "outs": np.dtype(np.int32),  # ports, by node
        "dues": np.dtype(np.int64),  # when each port is to act next, ps, in the order of outs; NEVER: nothing planned
        "queues": t.QUEUE,
        "departures": np.dtype(np.int64),  # when the last READ_AHEAD packets of a host have left, ps, by port
        "ingress": t.INGRESS,
        "controls": t.CONTROL,
        "paths": np.dtype(np.int32),  # links
        "group_of": np.dtype(np.int32),  # by switch number * hosts + host number
        "groups": np.dtype(np.int64),  # first of each group
        "group_links": np.dtype(np.int32),
        "flows": tt.FLOW,
        "receivers": tt.RECEIVER,
        "laws": tt.LAW,
        "stages": tt.STAGE,
        "servers": tt.SERVER,
        "endpoints": tt.ENDPOINT,
        "transfers": tt.TRANSFER,
        "scoreboard": np.dtype(np.uint8),
        "telemetry": tt.TELEMETRY,
        "pool": t.PACKET,  # in chunks
        "chunk_next": np.dtype(np.int32),
        "agenda": t.AGENDA,
        "answers": tt.ANSWER,
        "arrivals": np.dtype(np.int64),  # first arrival on each incoming link, ps, in the order of ins
        "frames": np.dtype(np.int64),  # first control frame on each incoming link, ps, in the order of ins
        "came": t.ARRIVAL,  # what arrives at one switch in one window
        "keys": np.dtype(np.int64),  # to be sorted, and as many scratch ones
        "short_keys": np.dtype(np.int32),  # of these, and as many as are compared at once
        "buckets": t.BUCKET,  # of keys, by time
        "pulls": t.PULLS_OF_HOST,  # by node
        "deliveries": t.DELIVERY,
        "order": np.dtype(np.int32),  # to sort deliveries, and as many scratch ones
        "log": t.LOG,
        "samples": t.SAMPLE,
    }


_LINE = 64  # bytes of a line of the cache
_PREFETCHED = 2  # lines of a row
_PREFETCHED_OF_FLOW = 5


def prefetch(table: object, index: object) -> None:
    """Have the processor fetch the lines of a row that a packet needs into its cache; uncompiled, do nothing.

    There need be no such row: nothing is fetched then.
    """


@overload(prefetch, inline="always")
def _prefetch_any(table: Any, index: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def fetch(table: Any, index: Any) -> None:  # noqa: ANN401
        _prefetch(table, index)  # type: ignore[call-arg]  # numba passes the context

    return fetch


@intrinsic
def _prefetch(_context: Any, table: Any, index: Any) -> Any:  # noqa: ANN401  numba types
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  LLVM
        data = make_array(table)(context, builder, arguments[0]).data
        place = builder.gep(data, [context.cast(builder, arguments[1], index, types.intp)])
        address = builder.bitcast(place, cgutils.voidptr_t)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        for line in range(_PREFETCHED_OF_FLOW if "in_flight" in getattr(table.dtype, "fields", ()) else _PREFETCHED):
            at = cgutils.pointer_add(builder, address, line * _LINE)
            builder.call(function, [at, *[ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]])
        return context.get_dummy_value()

    return types.void(table, index), generate
