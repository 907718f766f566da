"""Parts of a result as groups of an HDF5 file; see `fabricsim.results.hdf5`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim import provenance
from fabricsim.records.program import NONE
from fabricsim.results import columns
from fabricsim.results.slowdown import edges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import h5py
    from numpy.typing import NDArray

    from fabricsim.results.capture import Capture
    from fabricsim.results.packets import PacketLog, Packets
    from fabricsim.results.pairs import Pairs
    from fabricsim.results.result import CallRecords, LinkRecord, RunRecord, Series
    from fabricsim.results.traffic import TrafficRecord


def write_result(file: h5py.File, result: RunRecord) -> None:
    """Write all parts of a result."""
    _write_root(file, result)
    _write_ops(file, result)
    _write_calls(file, result.calls)
    write_links(file, result.links, folded=result.ranks is not None)
    write_series(file, result.series)
    messages = {"messages": result.slowdowns}
    write_table(file.create_group(columns.FLOWS.group), columns.FLOWS, edges(), messages)
    if result.packets is not None:
        write_packets(file, result.packets)
    if result.capture is not None:
        _write_capture(file, result.capture)
    write_failures(file, result.failures)
    if result.pairs is not None:
        _write_pairs(file.create_group(columns.PAIRS.group), result.pairs)


def write_about(file: h5py.File, form: str, result: RunRecord | TrafficRecord) -> None:
    """Write what a run of either form says of itself."""
    file.attrs["format"] = form
    file.attrs["format_version"] = columns.FORMAT_VERSION
    for name in columns.TEXT_ATTRIBUTES:
        file.attrs[name] = getattr(result, name)
    file.attrs["resolved"] = json.dumps(result.resolved)
    file.attrs["counters"] = json.dumps(result.counters)
    file.attrs["versions"] = json.dumps(provenance.versions())
    file.attrs["seed"] = np.int64(result.seed)
    file.attrs["notes"] = "\n".join(result.notes)
    if result.asked:
        file.attrs["asked"] = "\n".join(result.asked)


def _write_root(file: h5py.File, result: RunRecord) -> None:
    write_about(file, columns.FORMAT, result)
    file.attrs["iteration_ps"] = np.int64(result.iteration)
    if result.jobs:
        file.attrs["jobs"] = json.dumps({"parts": [job._asdict() for job in result.jobs]})
    if result.work is not None:
        file.attrs["work"] = json.dumps(result.work._asdict())
    if result.ranks is not None:
        file.attrs["folded_from_ranks"] = np.int64(result.ranks)


def _write_ops(file: h5py.File, result: RunRecord) -> None:
    group = file.create_group(columns.OPS.group)
    data = {column.name: result.ops[column.name] for column in columns.OPS.columns}
    scale = write_table(group, columns.OPS, np.arange(len(result.ops)), data)
    for column in columns.SPANS:
        write_column(group, column, result.spans[column.name], scale)
    _write_scale(group, columns.TIMER_NAME, result.timers)


def _write_calls(file: h5py.File, calls: CallRecords) -> None:
    group = file.create_group(columns.CALLS.group)
    table = columns.CALLS_OF_FAILURES if (calls.limits.failed != NONE).any() else columns.CALLS
    data = {column.name: calls.column(column.name) for column in table.columns}
    scale = write_table(group, table, np.arange(len(calls)), data)
    if calls.limits.beside.any():
        write_column(group, columns.BESIDE, calls.limits.beside, scale)
    if calls.copies is not None:
        write_column(group, columns.CALL_COPIES, calls.copies, scale)


def write_links(file: h5py.File, links: Sequence[LinkRecord], *, folded: bool) -> h5py.Dataset:
    """Write resources; gives the scale that further columns of them hang on."""
    group = file.create_group(columns.LINKS.group)
    data = {name: [getattr(link, name) for link in links] for name in ("kind", "capacity", "load", "payload")}
    data["crossing_calls"] = [len(link.calls) for link in links]
    scale = write_table(group, columns.LINKS, [link.name for link in links], data)
    if folded:
        write_column(group, columns.COPIES, [link.copies for link in links], scale)
    crossing = [call for link in links for call in link.calls]
    write_table(group, columns.CROSSING, np.arange(len(crossing)), {"crossing_call": crossing})
    return scale


def write_series(file: h5py.File, series: Series) -> None:
    """Write the rates of links over time."""
    group = file.create_group("series")
    group.attrs["interval_ps"] = np.int64(series.interval)
    bins = np.arange(series.rate.shape[1], dtype=np.int64) * series.interval
    link = _write_scale(group, columns.SERIES_LINK, series.names)
    time = _write_scale(group, columns.SERIES_TIME, bins)
    write_column(group, columns.SERIES_CAPACITY, series.capacity, link)
    write_column(group, columns.SERIES_RATE, series.rate, link, time)


def write_failures(file: h5py.File, failures: NDArray[np.void]) -> None:
    """Write what failures did to links, if there were any."""
    if len(failures):
        write_table(
            file.create_group(columns.FAILURES.group), columns.FAILURES, np.arange(len(failures)), _fields(failures)
        )


def _write_capture(file: h5py.File, capture: Capture) -> None:
    told = {"form": capture.form, "span_ps": capture.span, "assumptions": list(capture.assumptions)}
    file.attrs["capture"] = json.dumps(told)
    for table, rows in ((columns.STEPS, capture.steps), (columns.TRANSFERS, capture.transfers)):
        data = {column.name: [getattr(row, column.name) for row in rows] for column in table.columns}
        write_table(file.create_group(table.group), table, np.arange(len(rows)), data)


def _write_pairs(group: h5py.Group, pairs: Pairs) -> None:
    for name in columns.PAIRS_NUMBERS:
        group.attrs[name] = np.int64(getattr(pairs, name))
    data = {column.name: getattr(pairs, column.name) for column in columns.PAIRS.columns}
    write_table(group, columns.PAIRS, np.arange(len(pairs.bytes)), data)
    _write_scale(group, columns.DIMENSION_NAME, pairs.dimensions)


def write_packets(file: h5py.File, packets: Packets) -> None:
    """Write what a packet run counted and recorded."""
    group = file.create_group(columns.WIRES.group)
    write_table(group, columns.WIRES, packets.names, _fields(packets.wires))
    series = file["series"]
    series.attrs["taps"] = np.int64(len(packets.taps))
    for index, tap in enumerate(packets.taps):
        member = series.create_group(f"tap{index}")
        member.attrs["kind"], member.attrs["of"] = tap.kind, tap.of
        scale = _write_scale(member, columns.TAP_TIME, tap.time)
        write_column(member, columns.TAP_VALUES[tap.kind], tap.value, scale)
    if packets.log is not None:
        _write_log(file.create_group(columns.LOG.group), packets.log)


def _write_log(group: h5py.Group, log: PacketLog) -> None:
    _write_scale(group, columns.LOG_WIRE, log.wires)
    write_table(group, columns.LOG_FLOWS, np.arange(len(log.source)), {"source": log.source, "target": log.target})
    write_table(group, columns.LOG, np.arange(len(log.entries)), _fields(log.entries))
    group.attrs["protocol"] = log.protocol
    for name in columns.LOG_NUMBERS:
        group.attrs[name] = np.int64(getattr(log, name))


def _fields(records: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    return {name: records[name] for name in records.dtype.names or ()}


def write_table(
    group: h5py.Group, table: columns.ColumnGroup, index: Iterable[Any], data: dict[str, Any]
) -> h5py.Dataset:
    """Write the index and columns of a table; gives the scale that its columns hang on."""
    scale = _write_scale(group, table.index, index)
    for column in table.columns:
        write_column(group, column, data[column.name], scale)
    return scale


def _write_scale(group: h5py.Group, column: columns.Column, values: Iterable[Any]) -> h5py.Dataset:
    scale = write_column(group, column, values)
    scale.make_scale(column.name)
    return scale


def write_column(
    group: h5py.Group, column: columns.Column, values: Iterable[Any], *scales: h5py.Dataset
) -> h5py.Dataset:
    """Write a column, with the scale of each of its axes."""
    import h5py  # noqa: PLC0415  loaded by the caller already

    kind = h5py.string_dtype() if column.kind == "text" else np.dtype(f"<{column.kind}")
    if not isinstance(values, np.ndarray):
        values = np.array(list(values), dtype=object if column.kind == "text" else kind)
    # contiguous and unpacked: a reader can then hold what it is promised against the file's size
    dataset = group.create_dataset(column.name, data=values, dtype=kind, track_times=False)
    dataset.attrs["units"] = column.units
    dataset.attrs["long_name"] = column.meaning
    if column.flags:
        dataset.attrs["flag_values"] = np.arange(len(column.flags), dtype=kind)
        dataset.attrs["flag_meanings"] = " ".join(column.flags)
    for axis, scale in enumerate(scales):
        dataset.dims[axis].attach_scale(scale)
    return dataset
