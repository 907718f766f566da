"""One HDF5 file per run: `write` and `read`, inverse to each other.

The file explains itself: root attributes say what was run by which software, each group is one
table with one dataset per column (`fabricsim.results.columns`), and index datasets are attached as
dimension scales, so that ``xarray.open_dataset(path, group="ops", engine="h5netcdf")`` opens it.
Nothing in it depends on the wall clock: the same run gives the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fabricsim import provenance
from fabricsim.errors import ResultError
from fabricsim.results import columns
from fabricsim.results.capture import Capture, StepTime, Transfer
from fabricsim.results.hdf5_reader import open_result
from fabricsim.results.packets import ENTRY, PROTOCOLS, WIRE, PacketLog, Packets, Tap
from fabricsim.results.result import CallRecord, CallRecords, LinkRecord, Result, Series
from fabricsim.results.slowdown import edges
from fabricsim.tables import OP, SLOWDOWN_BINS, SPAN
from fabricsim.whole import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import h5py
    from numpy.typing import NDArray

    from fabricsim.results.hdf5_reader import Reader

_LOG_NUMBERS = ("payload", "overhead", "ecn")
_TEXT_ATTRIBUTES = ("name", "source", "transport", "engine", "version")


_TRAFFIC = "fabricsim traffic"
"""Root attribute ``format`` of a file that holds no run of a job."""


def write(result: Result, path: Path | str) -> None:
    """Write a result to an HDF5 file.

    The file is written beside its place under the name ``<path>.part`` and renamed when it is whole; whatever
    goes wrong, no part of it is left. ``wall_seconds`` is not stored.

    Parameters
    ----------
    result
        The run.
    path
        File to write; one of that name is replaced.

    Raises
    ------
    ResultError
        Where the file cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        msg = f"{target}: is a directory; name the file to write"
        raise ResultError(msg)
    _replace(target, _image(lambda file: _write_result(file, result)))


def write_series(packets: Packets, series: Series, path: Path) -> None:
    """Write what a traffic run recorded: the groups ``/series``, ``/packets`` and ``/packet_log`` of a result.

    Raises
    ------
    ResultError
        Where the file cannot be written.
    """

    def content(file: h5py.File) -> None:
        file.attrs["format"] = _TRAFFIC
        file.attrs["format_version"] = columns.FORMAT_VERSION
        _write_series(file, series)
        _write_packets(file, packets)

    _replace(path, _image(content))


def _replace(target: Path, image: bytes) -> None:
    with whole(target, "name a file in a folder that exists and has room", ResultError) as part:
        part.write_bytes(image)


def _image(content: Callable[[h5py.File], None]) -> bytes:
    """Lay the file out in memory: the HDF5 library crashes where a disk is full in the middle of a file."""
    import h5py  # noqa: PLC0415  a command that writes no result need not load HDF5

    # a fixed format version: newer HDF5 libraries would write other bytes
    with h5py.File("result", "w", driver="core", backing_store=False, libver=("earliest", "v110")) as file:
        content(file)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def _write_result(file: h5py.File, result: Result) -> None:
    _write_root(file, result)
    _write_ops(file, result)
    _write_calls(file, result.calls)
    _write_links(file, result.links, folded=result.ranks is not None)
    _write_series(file, result.series)
    messages = {"messages": result.slowdowns}
    _write_table(file.create_group(columns.FLOWS.group), columns.FLOWS, edges(), messages)
    if result.packets is not None:
        _write_packets(file, result.packets)
    if result.capture is not None:
        _write_capture(file, result.capture)


def read(path: Path | str) -> Result:
    """Read a result file.

    Parameters
    ----------
    path
        A file that `write` made.

    Returns
    -------
    Result
        Equal to the one written, but for ``wall_seconds``, which is 0.

    Raises
    ------
    ResultError
        Where the file is missing, truncated, of another kind, of a later format or inconsistent. The memory
        taken is bounded by the size of the file.
    """
    with open_result(Path(path)) as reader:
        return _read(reader)


def _write_root(file: h5py.File, result: Result) -> None:
    file.attrs["format"] = columns.FORMAT
    file.attrs["format_version"] = columns.FORMAT_VERSION
    for name in _TEXT_ATTRIBUTES:
        file.attrs[name] = getattr(result, name)
    file.attrs["resolved"] = json.dumps(result.resolved)
    file.attrs["counters"] = json.dumps(result.counters)
    file.attrs["versions"] = json.dumps(provenance.versions())
    file.attrs["seed"] = np.int64(result.seed)
    file.attrs["iteration_ps"] = np.int64(result.iteration)
    if result.ranks is not None:
        file.attrs["folded_from_ranks"] = np.int64(result.ranks)


def _write_ops(file: h5py.File, result: Result) -> None:
    group = file.create_group(columns.OPS.group)
    data = {column.name: result.ops[column.name] for column in columns.OPS.columns}
    scale = _write_table(group, columns.OPS, np.arange(len(result.ops)), data)
    for column in columns.SPANS:
        _write_column(group, column, result.spans[column.name], scale)
    _write_scale(group, columns.TIMER_NAME, result.timers)


def _write_calls(file: h5py.File, calls: CallRecords) -> None:
    group = file.create_group(columns.CALLS.group)
    data = {column.name: calls.column(column.name) for column in columns.CALLS.columns}
    _write_table(group, columns.CALLS, np.arange(len(calls)), data)


def _write_links(file: h5py.File, links: Sequence[LinkRecord], *, folded: bool) -> None:
    group = file.create_group(columns.LINKS.group)
    data = {name: [getattr(link, name) for link in links] for name in ("kind", "capacity", "load", "payload")}
    data["crossing_calls"] = [len(link.calls) for link in links]
    scale = _write_table(group, columns.LINKS, [link.name for link in links], data)
    if folded:
        _write_column(group, columns.COPIES, [link.copies for link in links], scale)
    crossing = [call for link in links for call in link.calls]
    _write_table(group, columns.CROSSING, np.arange(len(crossing)), {"crossing_call": crossing})


def _write_series(file: h5py.File, series: Series) -> None:
    group = file.create_group("series")
    group.attrs["interval_ps"] = np.int64(series.interval)
    bins = np.arange(series.rate.shape[1], dtype=np.int64) * series.interval
    link = _write_scale(group, columns.SERIES_LINK, series.names)
    time = _write_scale(group, columns.SERIES_TIME, bins)
    _write_column(group, columns.SERIES_CAPACITY, series.capacity, link)
    _write_column(group, columns.SERIES_RATE, series.rate, link, time)


def _write_capture(file: h5py.File, capture: Capture) -> None:
    told = {"form": capture.form, "span_ps": capture.span, "assumptions": list(capture.assumptions)}
    file.attrs["capture"] = json.dumps(told)
    for table, rows in ((columns.STEPS, capture.steps), (columns.TRANSFERS, capture.transfers)):
        data = {column.name: [getattr(row, column.name) for row in rows] for column in table.columns}
        _write_table(file.create_group(table.group), table, np.arange(len(rows)), data)


def _write_packets(file: h5py.File, packets: Packets) -> None:
    group = file.create_group(columns.WIRES.group)
    _write_table(group, columns.WIRES, packets.names, _fields(packets.wires))
    series = file["series"]
    series.attrs["taps"] = np.int64(len(packets.taps))
    for index, tap in enumerate(packets.taps):
        member = series.create_group(f"tap{index}")
        member.attrs["kind"], member.attrs["of"] = tap.kind, tap.of
        scale = _write_scale(member, columns.TAP_TIME, tap.time)
        _write_column(member, columns.TAP_VALUES[tap.kind], tap.value, scale)
    if packets.log is not None:
        _write_log(file.create_group(columns.LOG.group), packets.log)


def _write_log(group: h5py.Group, log: PacketLog) -> None:
    _write_scale(group, columns.LOG_WIRE, log.wires)
    _write_table(group, columns.LOG_FLOWS, np.arange(len(log.source)), {"source": log.source, "target": log.target})
    _write_table(group, columns.LOG, np.arange(len(log.entries)), _fields(log.entries))
    group.attrs["protocol"] = log.protocol
    for name in _LOG_NUMBERS:
        group.attrs[name] = np.int64(getattr(log, name))


def _fields(records: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    return {name: records[name] for name in records.dtype.names or ()}


def _write_table(group: h5py.Group, table: columns.Table, index: Iterable[Any], data: dict[str, Any]) -> h5py.Dataset:
    scale = _write_scale(group, table.index, index)
    for column in table.columns:
        _write_column(group, column, data[column.name], scale)
    return scale


def _write_scale(group: h5py.Group, column: columns.Column, values: Iterable[Any]) -> h5py.Dataset:
    scale = _write_column(group, column, values)
    scale.make_scale(column.name)
    return scale


def _write_column(
    group: h5py.Group, column: columns.Column, values: Iterable[Any], *scales: h5py.Dataset
) -> h5py.Dataset:
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


def _read(reader: Reader) -> Result:
    ops, spans, timers = _read_ops(reader)
    calls = _read_calls(reader)
    reader.require(bool(np.all(ops["call"] < len(calls))), "group ops names calls that group calls does not have")
    folded = reader.has_attribute("folded_from_ranks")
    text = {name: reader.text_attribute(name) for name in _TEXT_ATTRIBUTES}
    return Result(
        **text,
        resolved=reader.json_attribute("resolved"),
        seed=reader.integer_attribute("seed"),
        ops=ops,
        spans=spans,
        timers=timers,
        calls=calls,
        links=_read_links(reader, folded=folded),
        series=_read_series(reader),
        slowdowns=reader.numbers(columns.FLOWS.group, columns.FLOWS.columns[0], (SLOWDOWN_BINS,)),
        counters=reader.json_attribute("counters"),
        iteration=reader.integer_attribute("iteration_ps"),
        wall_seconds=0.0,
        packets=_read_packets(reader) if reader.has_group(columns.WIRES.group) else None,
        ranks=reader.integer_attribute("folded_from_ranks") if folded else None,
        capture=_read_capture(reader) if reader.has_attribute("capture") else None,
    )


def _read_ops(reader: Reader) -> tuple[NDArray[np.void], NDArray[np.void], tuple[str, ...]]:
    group = columns.OPS.group
    count = len(reader.numbers(group, columns.OPS.index))
    ops, spans = np.zeros(count, OP), np.zeros(count, SPAN)
    for column in columns.OPS.columns:
        ops[column.name] = reader.numbers(group, column, (count,))
    for column in columns.SPANS:
        spans[column.name] = reader.numbers(group, column, (count,))
    timers = reader.text(group, columns.TIMER_NAME)
    reader.require(
        not count or 0 <= int(ops["timer"].min()) <= int(ops["timer"].max()) < len(timers),
        "group ops books time under timers that timer_name does not have",
    )
    return ops, spans, timers


def _read_calls(reader: Reader) -> CallRecords:
    table = columns.CALLS
    count = len(reader.numbers(table.group, table.index))
    data = [reader.values(table.group, column, count) for column in table.columns]
    return CallRecords.of(CallRecord(*row) for row in zip(*data, strict=True))


def _read_links(reader: Reader, *, folded: bool) -> tuple[LinkRecord, ...]:
    table = columns.LINKS
    names = reader.text(table.group, table.index)
    data = [reader.values(table.group, column, len(names)) for column in table.columns]
    crossing = reader.text(table.group, columns.CROSSING.columns[0])
    counts = np.array(data.pop(), np.int64)
    reader.require(
        bool(np.all(counts >= 0)) and int(counts.sum()) == len(crossing),
        "crossing_calls do not add up to crossing_call",
    )
    ends = np.cumsum(counts)
    calls = [crossing[end - count : end] for end, count in zip(ends, counts, strict=True)]
    copies = reader.values(table.group, columns.COPIES, len(names)) if folded else [1] * len(names)
    return tuple(LinkRecord(*row) for row in zip(names, *data, calls, copies, strict=True))


def _read_series(reader: Reader) -> Series:
    group = "series"
    names = reader.text(group, columns.SERIES_LINK)
    bins = len(reader.numbers(group, columns.SERIES_TIME))
    return Series(
        interval=reader.integer_attribute("interval_ps", group),
        names=names,
        rate=reader.numbers(group, columns.SERIES_RATE, (len(names), bins)),
        capacity=reader.numbers(group, columns.SERIES_CAPACITY, (len(names),)),
    )


def _read_capture(reader: Reader) -> Capture:
    told = reader.json_attribute("capture")
    form, span, assumptions = told.get("form"), told.get("span_ps"), told.get("assumptions")
    whole = isinstance(form, str) and isinstance(span, int) and isinstance(assumptions, list)
    reader.require(whole, "capture does not say form, span_ps and assumptions")
    steps, transfers = (
        zip(
            *(
                reader.values(table.group, column, len(reader.numbers(table.group, table.index)))
                for column in table.columns
            ),
            strict=True,
        )
        for table in (columns.STEPS, columns.TRANSFERS)
    )
    return Capture(
        cast("str", form),
        cast("int", span),
        tuple(StepTime(*row) for row in steps),
        tuple(Transfer(*row) for row in transfers),
        tuple(map(str, cast("list[object]", assumptions))),
    )


def _read_packets(reader: Reader) -> Packets:
    table = columns.WIRES
    names = reader.text(table.group, table.index)
    wires = np.zeros(len(names), WIRE)
    for column in table.columns:
        wires[column.name] = reader.numbers(table.group, column, (len(names),))
    count = reader.integer_attribute("taps", "series")
    taps = []
    for index in range(count):
        group = f"series/tap{index}"
        reader.require(reader.has_group(group), f"group {group} is missing")
        taps.append(_read_tap(reader, group))
    log = _read_log(reader) if reader.has_group(columns.LOG.group) else None
    return Packets(names, wires, tuple(taps), log)


def _read_tap(reader: Reader, group: str) -> Tap:
    kind = reader.text_attribute("kind", group)
    reader.require(kind in columns.TAP_VALUES, f"{group} is a tap of the unknown kind {kind!r}")
    time = reader.numbers(group, columns.TAP_TIME)
    value = reader.numbers(group, columns.TAP_VALUES[kind], (len(time),))
    return Tap(cast("Any", kind), reader.text_attribute("of", group), time, value)


def _read_log(reader: Reader) -> PacketLog:
    group = columns.LOG.group
    wires = reader.text(group, columns.LOG_WIRE)
    flows = len(reader.numbers(group, columns.LOG_FLOWS.index))
    source, target = (reader.numbers(group, column, (flows,)) for column in columns.LOG_FLOWS.columns)
    entries = np.zeros(len(reader.numbers(group, columns.LOG.index)), ENTRY)
    for column in columns.LOG.columns:
        entries[column.name] = reader.numbers(group, column, (len(entries),))
    for name, count in (("wire", len(wires)), ("flow", flows)):
        inside = bool(np.all((entries[name] >= 0) & (entries[name] < count)))
        reader.require(inside, f"group {group} names a {name} that is not there")
    reader.require(bool(np.all(entries["number"] >= 0)), f"group {group} holds a packet without number")
    protocol = reader.text_attribute("protocol", group)
    reader.require(protocol in PROTOCOLS, f"group {group} is of the unknown protocol {protocol!r}")
    payload, overhead, ecn = (reader.integer_attribute(name, group) for name in _LOG_NUMBERS)
    return PacketLog(entries, wires, source, target, payload, overhead, cast("Any", protocol), bool(ecn))
