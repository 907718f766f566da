"""Logs of NCCL and RCCL (``NCCL_DEBUG=INFO``), versions 2.4 to 2.30.

Set-up (rings, trees, channels, networks) is in every such log; what a job has called is in it if the subsystem COLL
was logged. `read_log` gives all of it, `read` the calls as recordings. A log says when a collective was called, not
when it ran, and nothing of computation: recordings have no times.
"""

import re
from collections.abc import Iterator

from fabricsim.errors import TraceError
from fabricsim.files.lines import lines
from fabricsim.files.sources import Source
from fabricsim.traces.form import Form
from fabricsim.traces.nccl_log.calls import Caller
from fabricsim.traces.nccl_log.collect import Collector
from fabricsim.traces.nccl_log.ranks import CAPTURE, Ranks
from fabricsim.traces.nccl_log.records import NcclLog
from fabricsim.traces.trace import GroupList, Recording

_SAID = re.compile(rb":\d{1,10}:\d{1,10} \[-?\d{1,4}\] [^\n]{0,80}?NCCL INFO ")
_JSON = re.compile(rb"\s*[\[{]\s*[\[{\"]")


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  as `Reader` says
    """Whether a file is a log of NCCL."""
    return _SAID.search(head) is not None and not _JSON.match(head)


def read_log(source: Source) -> NcclLog:
    """Read all that a log says.

    Raises TraceError if it is no text, holds nothing of NCCL, or more communicators than can be held.
    """
    collector = Collector(source.label)
    for number, line in lines(source):
        collector.take(number, line)
    return collector.finish()


def read(source: Source) -> Iterator[Recording | GroupList]:
    """Give the calls of each rank, in their order, and which ranks are in communicators that it shares with others.

    Raises TraceError: as `read_log`, and where no calls were logged, some are torn, or it is not known which ranks have
        made them.
    """
    log = read_log(source)
    if not len(log.calls):
        msg = "says how NCCL was set up (see fabricsim inspect), but not what it was called for; "
        raise TraceError(source.label, msg + CAPTURE)
    if log.torn:
        msg = "the call is torn: several processes wrote into this file; let each write its own with "
        raise TraceError(source.label, f"{msg}NCCL_DEBUG_FILE=nccl.%h.%p.log", log.torn)
    ranks = Ranks(log)
    for entity, calls in ranks.calls():
        yield Caller(ranks, entity, calls).recording()
    yield GroupList(source.label, ranks.listed())


FORM = Form("nccl_log", "NCCL_DEBUG=INFO logs of NCCL and RCCL, with the subsystem COLL", recognises, read)
