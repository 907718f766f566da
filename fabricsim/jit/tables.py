"""Many tables, handed through the kernels as one pointer.

A kernel that is given thirty arrays hands 210 words on to each helper that the compiler does not
inline: in the packet engine that took ten times as long as the simulation itself. `Tables` are
therefore a type of their own to numba: the address of a list of tables. ``net.links`` reads its
entry and is an array from then on. Uncompiled kernels find plain attributes under the same names.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, unbox
from numba.np.arrayobj import load_item, make_array, populate_array, store_item
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from fabricsim.jit.digest import digest_of_kernels


class Tables:
    """Tables that a kernel takes as one argument; a subclass names them in `TABLES`.

    A table is one-dimensional and contiguous. Another that is assigned in its place is what the next
    call of a kernel finds. One that has not been assigned has no rows.

    `**tables`: some or all of `TABLES`.
    """

    TABLES: ClassVar[dict[str, np.dtype[Any]]]
    """Name and element type of each table."""
    KERNELS: ClassVar[dict[str, Callable[..., Any]]] = {}
    """Kernels that a kind of tables brings along: ``net.start(flow, law)`` calls that of the kind of `net`."""
    _PLACES: ClassVar[dict[str, int]]
    _numba_type_: ClassVar[TablesType]  # numba asks for it by this name

    def __init_subclass__(cls) -> None:
        """Give a kind of tables its numba type."""
        super().__init_subclass__()
        if "TABLES" in vars(cls):
            cls._PLACES = {name: place for place, name in enumerate(cls.TABLES)}
            cls._numba_type_ = TablesType(cls)
            for name, kernel in cls.KERNELS.items():
                setattr(cls, name, staticmethod(kernel))

    def __init__(self, **tables: NDArray[Any]) -> None:
        self._entries = np.zeros((len(self.TABLES), 2), np.int64)  # address and length of each
        self.handle = self._entries.ctypes.data
        for name, table in tables.items():
            setattr(self, name, table)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401  any attribute
        """Hold a table; nothing else guards the memory, for a kernel is told no more than address and length.

        Raises TypeError if it is not one-dimensional, not contiguous, or of other elements than `TABLES` says.
        """
        if name in self._PLACES:
            if value.dtype != self.TABLES[name] or value.ndim != 1 or not value.flags.c_contiguous:
                msg = f"{name} is a contiguous row of {self.TABLES[name]}, not {value.ndim}-dimensional {value.dtype}"
                raise TypeError(msg)
            self._entries[self._PLACES[name]] = value.ctypes.data, len(value)
        super().__setattr__(name, value)


class TablesType(types.Type):
    """numba's view of a kind of `Tables`."""

    made: ClassVar[dict[str, TablesType]] = {}
    """By name; a program that is kept names them so."""

    def __init__(self, kind: type[Tables]) -> None:
        self.kind = kind
        # a program knows the tables by their name only: by that, one for other records or kernels is another program
        parts = (list(kind.TABLES.items()), digest_of_kernels(kind.KERNELS.values()) if kind.KERNELS else "")
        super().__init__(name=f"{kind.__name__}_{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}")
        self.made[self.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """Write the name: who reads a program has called its kernel with tables of this kind."""
        return _made, (self.name,)


def _made(name: str) -> TablesType:
    return TablesType.made[name]


register_model(TablesType)(models.OpaqueModel)


@unbox(TablesType)
def _unbox(_type: TablesType, value: Any, context: Any) -> NativeValue:  # noqa: ANN401  LLVM values and builders
    handle = context.pyapi.object_getattr_string(value, "handle")
    address = context.pyapi.long_as_voidptr(handle)
    context.pyapi.decref(handle)
    return NativeValue(address, is_error=cgutils.is_not_null(context.builder, context.pyapi.err_occurred()))


class Table(types.Array):
    """An array that is never indexed from its end, so that no index needs to be tested for being negative."""


register_model(Table)(models.ArrayModel)


@functools.cache
def table_type(dtype: np.dtype[Any]) -> Table:
    """Give numba's view of a table of such elements."""
    return Table(from_dtype(dtype), 1, "C")


def _place(context: Any, builder: Any, table: Table, where: tuple[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Address of an element; with bounds checks if numba is told to make them."""
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


@infer_getattr
class _Attributes(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, type_: TablesType, name: str) -> types.Type | None:  # type: ignore[override]  # as numba's do
        kernel: Any = type_.kind.KERNELS.get(name)
        if kernel is not None:
            return kernel._numba_type_  # type: ignore[no-any-return]
        return table_type(type_.kind.TABLES[name]) if name in type_.kind.TABLES else None


@lower_getattr_generic(TablesType)
def _lower(context: Any, builder: Any, type_: TablesType, value: Any, name: str) -> Any:  # noqa: ANN401  as above
    """Make an array of an entry of the list of tables; of a kernel its type says all."""
    if name in type_.kind.KERNELS:
        return context.get_dummy_value()
    array_type = table_type(type_.kind.TABLES[name])
    element = context.get_data_type(array_type.dtype)
    entries = builder.bitcast(value, context.get_value_type(types.intp).as_pointer())
    first = 2 * type_.kind._PLACES[name]  # noqa: SLF001  its own kind
    address, length = (builder.load(cgutils.gep_inbounds(builder, entries, at)) for at in (first, first + 1))
    for loaded in (address, length):  # tables stay where they are while a kernel runs: read once
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    item = context.get_constant(types.intp, context.get_abi_sizeof(element))
    array = make_array(array_type)(context, builder)
    data = builder.inttoptr(address, element.as_pointer())
    populate_array(array, data=data, shape=[length], strides=[item], itemsize=item, meminfo=None)
    return array._getvalue()  # noqa: SLF001  how numba's own array functions end
