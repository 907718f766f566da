"""All tables of the packet engine, handed through the kernels as one pointer.

A kernel that is given thirty arrays hands 210 words on to each helper that the compiler does not
inline, which took ten times as long as the simulation itself. `Net` is therefore a type of its own
to numba: the address of a list of tables. ``net.links`` reads its entry and is an array from then
on. Uncompiled kernels find plain attributes under the same names.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, intrinsic, models, overload, register_model, typeof_impl, unbox
from numba.np.arrayobj import load_item, make_array, populate_array, store_item
from numba.np.numpy_support import from_dtype

from fabricsim import packet_tables as t

if TYPE_CHECKING:
    from numpy.typing import NDArray

TABLES: dict[str, np.dtype[Any]] = {
    "world": t.NETWORK,  # one row
    "nodes": t.NODE,
    "next_times": np.dtype(np.int64),  # when each node has something to do next, ps
    "tree": np.dtype(np.int64),  # tournament over next_times
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
    "flows": t.FLOW,
    "receivers": t.RECEIVER,
    "laws": t.LAW,
    "stages": t.STAGE,
    "servers": t.SERVER,
    "endpoints": t.ENDPOINT,
    "transfers": t.TRANSFER,
    "scoreboard": np.dtype(np.uint8),
    "telemetry": t.TELEMETRY,
    "pool": t.PACKET,  # in chunks
    "chunk_next": np.dtype(np.int32),
    "agenda": t.AGENDA,
    "answers": t.ANSWER,
    "arrivals": np.dtype(np.int64),  # first arrival on each incoming link, ps, in the order of ins
    "frames": np.dtype(np.int64),  # first control frame on each incoming link, ps, in the order of ins
    "came": t.ARRIVAL,  # what arrives at one switch in one window
    "keys": np.dtype(np.int64),  # to be sorted, and as many scratch ones
    "deliveries": t.DELIVERY,
    "order": np.dtype(np.int32),  # to sort deliveries, and as many scratch ones
    "log": t.LOG,
    "samples": t.SAMPLE,
}
"""Name and element type of each table."""
_INDEX = {name: index for index, name in enumerate(TABLES)}


class Net:
    """One simulated network.

    Parameters
    ----------
    **tables
        An array for each of `TABLES`, one-dimensional and contiguous. They must outlive this object's
        use by kernels; a table that has been replaced needs a new `Net`.
    """

    def __init__(self, **tables: NDArray[Any]) -> None:
        self._addresses = np.array([(tables[name].ctypes.data, len(tables[name])) for name in TABLES], np.int64)
        self.handle = self._addresses.ctypes.data
        self.__dict__.update(tables)


class NetType(types.Type):
    """numba's view of `Net`."""

    def __init__(self) -> None:
        super().__init__(name="Net")


_NET = NetType()
register_model(NetType)(models.OpaqueModel)


@typeof_impl.register(Net)
def _typeof(_value: Net, _context: object) -> NetType:
    return _NET


@unbox(NetType)
def _unbox(_type: NetType, value: Any, context: Any) -> NativeValue:  # noqa: ANN401  LLVM values and builders
    handle = context.pyapi.object_getattr_string(value, "handle")
    address = context.pyapi.long_as_voidptr(handle)
    context.pyapi.decref(handle)
    return NativeValue(address, is_error=cgutils.is_not_null(context.builder, context.pyapi.err_occurred()))


class Table(types.Array):
    """An array that is never indexed from its end, so that no index needs to be tested for being negative."""


register_model(Table)(models.ArrayModel)


def _place(context: Any, builder: Any, table: Table, where: tuple[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Address of an element; with bounds checks where numba is told to make them."""
    value, index, index_type = where
    array = make_array(table)(context, builder, value)
    index = context.cast(builder, index, index_type, types.intp)
    if context.enable_boundscheck:
        shape = cgutils.unpack_tuple(builder, array.shape, count=1)
        cgutils.do_boundscheck(context, builder, index, shape[0])
    return cgutils.gep_inbounds(builder, array.data, index)


@lower_builtin(operator.getitem, Table, types.Integer)
def _getitem(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
    table, index_type = signature.args
    return load_item(context, builder, table, _place(context, builder, table, (*arguments, index_type)))


@lower_builtin(operator.setitem, Table, types.Integer, types.Any)
def _setitem(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
    table, index_type, value_type = signature.args
    value = context.cast(builder, arguments[2], value_type, table.dtype)
    store_item(context, builder, table, value, _place(context, builder, table, (*arguments[:2], index_type)))
    return context.get_dummy_value()


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
        for line in range(_PREFETCHED_OF_FLOW if table == _array_type("flows") else _PREFETCHED):
            at = cgutils.pointer_add(builder, address, line * _LINE)
            builder.call(function, [at, *[ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]])
        return context.get_dummy_value()

    return types.void(table, index), generate


def _array_type(name: str) -> Table:
    return Table(from_dtype(TABLES[name]), 1, "C")


@infer_getattr
class _Attributes(AttributeTemplate):
    key = NetType

    def generic_resolve(self, _type: NetType, name: str) -> Table | None:  # type: ignore[override]  # as numba's do
        return _array_type(name) if name in TABLES else None


@lower_getattr_generic(NetType)
def _lower(context: Any, builder: Any, _type: NetType, value: Any, name: str) -> Any:  # noqa: ANN401  as above
    """Make an array of an entry of the list of tables."""
    array_type = _array_type(name)
    element = context.get_data_type(array_type.dtype)
    entries = builder.bitcast(value, context.get_value_type(types.intp).as_pointer())
    first = 2 * _INDEX[name]
    address, length = (builder.load(cgutils.gep_inbounds(builder, entries, at)) for at in (first, first + 1))
    for loaded in (address, length):  # tables stay where they are while a kernel runs: read once
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    item = context.get_constant(types.intp, context.get_abi_sizeof(element))
    array = make_array(array_type)(context, builder)
    data = builder.inttoptr(address, element.as_pointer())
    populate_array(array, data=data, shape=[length], strides=[item], itemsize=item, meminfo=None)
    return array._getvalue()  # noqa: SLF001  how numba's own array functions end
