"""Reads Chakra execution traces: ``.et`` files, their JSON variant, and the lists of groups that go with them.

Format: github.com/mlcommons/chakra; what attributes mean as ASTRA-sim's feeder reads them
(github.com/astra-sim/astra-sim, astra-sim/workload). One file per rank, ``<prefix>.<rank>.et``.
"""

import re
from collections.abc import Iterator
from io import BytesIO

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.chakra import json_form as chakra_json
from fabricsim.traces.chakra.nodes import READ, NodeCollector
from fabricsim.traces.chakra.schema import METADATA, WireError, decode_metadata, decode_node, is_metadata, messages
from fabricsim.traces.form import Form
from fabricsim.traces.trace import GroupList, Recording

_NAME = re.compile(r"\.(\d{1,7})\.(?:et|json)(?:\.gz|\.xz)?$")
_ET = re.compile(r"\.et(?:\.gz|\.xz)?$")


def recognises(name: str, head: bytes) -> bool:
    """Whether this is an ``.et`` file, its JSON variant, or a list of groups.

    The JSON of PyTorch's execution traces, whose ``"schema"`` may name Chakra too, is not: it has ``"nodes"`` with
    times of no kind and is another form.
    """
    if _is_json(head):
        return chakra_json.is_graph(head) or chakra_json.is_groups(head)
    return bool(_ET.search(name)) or _begins_with_metadata(head)


def _is_json(head: bytes) -> bool:
    # a brace is also the length of a message of 123 bytes
    return head.lstrip()[:1] == b"{" and not _begins_with_metadata(head)


def _begins_with_metadata(head: bytes) -> bool:
    """Whether the first message is one of metadata, whole and with something in it."""
    try:
        return is_metadata(next(messages(BytesIO(head)), b""))
    except WireError:
        return False


def read(source: Source) -> Iterator[Recording | GroupList]:
    """Read a file; see `fabricsim.traces.readers.Reader`."""
    if not _is_json(source.head):
        yield _read_et(source)
    elif chakra_json.is_graph(source.head):
        yield _read_graph(source)
    else:
        yield chakra_json.read_groups(source)


def _rank(source: Source) -> int:
    found = _NAME.search(source.name)
    return int(found[1]) if found else NONE


def _read_et(source: Source) -> Recording:
    recorder = NodeCollector(source.label)
    number, last = 0, NONE
    try:
        for number, message in enumerate(messages(source.stream)):
            if number == 0:
                recorder.note(decode_metadata(message))
                continue
            node = decode_node(message, wanted=READ)
            if node.id == last:  # all ids are compared in the end; that would be late for a bomb of one message
                msg = f"message {number + 1} has the id {last} of the one before; ids must differ"
                raise TraceError(source.label, msg)
            last = node.id
            recorder.add(decode_node(message) if node.type == METADATA else node)
    except WireError as error:
        what = f"message {number + 1}" if number else "the file"
        msg = f"{what} is no part of a Chakra trace ({error}); copy the file again, or say its form (--form)"
        raise TraceError(source.label, msg) from error
    return recorder.recording(_rank(source))


def _read_graph(source: Source) -> Recording:
    recorder = NodeCollector(source.label)
    graph = chakra_json.read_graph(source)
    for node in graph.nodes:
        recorder.add(node)
    return recorder.recording(_rank(source), graph.ranks)


FORM = Form(
    "chakra",
    "Chakra execution traces: .et or JSON, one file per rank, and their lists of groups",
    recognises,
    read,
    whole=True,
)
