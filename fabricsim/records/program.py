"""Record types that cross the border between Python and the compiled engines.

One line per column, with its unit. Times are integer picoseconds, sizes integer bytes, rates float
bytes per second. An index of ``-1`` means none. No column is named as an attribute of NumPy's records
(``size``, ``base``, ``data``), which would hide it from kernels that run uncompiled.
"""

import numpy as np

NONE = -1
"""No index."""

NEVER = int(np.iinfo(np.int64).max)
"""A time that does not come, picoseconds."""
CLOCK_END = 8 * 10**18
"""Nothing happens after this time, picoseconds (92 days), so that sums of times stay below NEVER."""

COMPUTE = 0
"""Kind of an op: keeps its rank busy for a given time."""
COLLECTIVE = 1
"""Kind of an op: one rank's part of a collective call."""
HOST = 2
"""Kind of an op: keeps a thread of the rank's host busy for a given time; on the main stream, a device that is about
to begin."""

UNMODELLED = "unmodelled communication"
"""Timer of captured kernels that communicate, of which no more is known than how long they took."""

MAIN_STREAM = 0
"""The rank waits for the op before it issues its next one."""
OVERLAPPED_STREAM = 1
"""The op runs beside the main stream."""
HOST_STREAM = 2
"""The op is the host's: it goes on while the main stream runs."""

OP = np.dtype(
    [
        ("rank", np.int32),
        ("kind", np.int8),  # COMPUTE, COLLECTIVE or HOST
        ("stream", np.int8),  # MAIN_STREAM, OVERLAPPED_STREAM or HOST_STREAM
        ("timer", np.int16),  # index into Program.timers
        ("call", np.int32),  # index into Program.calls; NONE for compute
        ("member", np.int32),  # the rank's place in the call's ranks; NONE for compute
        ("duration", np.int64),  # of a compute or host op, ps; 0 otherwise
        ("predecessors", np.int32),  # how many must be done before this op starts
        ("first_successor", np.int64),  # into Program.successors
        ("successors", np.int32),
    ],
    align=True,
)
"""A node of the program's DAG."""

SPAN = np.dtype([("start", np.int64), ("end", np.int64)], align=True)
"""When an op started (its predecessors were done) and ended, ps; one per op of the program."""

SLOWDOWN_BINS = 512
"""Bins of the slowdown histogram; the last takes all that is slower."""
SLOWDOWN_BINS_PER_OCTAVE = 32
"""Bin 0 holds messages that were as fast as alone; bin ``i`` those up to ``2 ** (i / 32)`` times slower."""

RESOURCE = np.dtype(
    [
        ("capacity", np.float64),  # units per second: wire bytes, PCIe bytes, CPU seconds
        ("residual", np.float64),  # capacity that no flow takes
        ("settled", np.float64),  # lowest level of the flows that it limits; inf: it limits none
        ("demand", np.float64),  # solver: sum of weight * cost of the flows not yet frozen
        ("open", np.int32),  # solver: flows not yet frozen
        ("mark", np.int32),  # solver: number of the solve that saw it last
        ("place", np.int32),  # solver: where it is in the heap; NONE: full
        ("limited", np.int32),  # flows whose bottleneck it is
        ("first", np.int32),  # head of its list of active hops
        ("flows", np.int32),  # active flows
        ("load", np.float64),  # units consumed by finished flows
        ("payload", np.float64),  # bytes of finished flows
        ("tap", np.int32),  # row of the rate series; NONE: not recorded
        ("touched", np.int8),  # 1: lost a flow in this instant
    ],
    align=True,
)
"""Anything with a capacity that flows share: a link direction, a PCIe direction, a thread."""

SERIES_BINS = 1024
"""Bins of a rate series, a power of two: where a run outgrows them, neighbours are merged."""

SERIES = np.dtype([("bytes", np.float64, SERIES_BINS)], align=True)
"""Payload that a recorded resource carried, bytes per bin."""

HEAP = np.dtype([("level", np.float64), ("resource", np.int64)], align=True)
"""An entry of the solver's heap: the level at which something may happen on a resource."""

HOP = np.dtype([("resource", np.int32), ("share", np.float64), ("cost", np.float64)], align=True)
"""One resource on a route, and the units of it that a payload byte costs.

``share`` of each payload byte crosses the resource: less than all if a message goes by several NICs. If a route stands
for others alike, share and cost are those of all of them together.
"""

ROUTE = np.dtype(
    [
        ("first_hop", np.int64),
        ("hops", np.int32),
        ("latency", np.int64),  # from the last byte sent to the message handed over, ps
        ("byte_latency", np.float64),  # more of it for each byte of the message, ps
        ("overhead", np.int64),  # of the sender before the first byte, ps
        ("peak", np.float64),  # payload rate when alone, bytes/s
        ("round_trip", np.int64),  # unloaded, ps
        ("window", np.int64),  # initial congestion window, bytes; 0: no slow start
        ("idle_restart", np.int64),  # idle time after which slow start begins anew, ps
        ("warm_until", np.int64),  # no slow start before this time, ps
        ("moderation", np.int32),  # first step of interrupt moderation; NONE: none
        ("moderation_steps", np.int32),
        ("flow", np.int32),  # packet engine: flow of messages from outside; NONE: none yet
        ("base_time", np.float64),  # packet engine: of a packet without payload when alone, ps
        ("byte_time", np.float64),  # packet engine: of each payload byte of a message's first packet, ps
        ("header_time", np.float64),  # packet engine: of each byte that cut-through switches wait for, ps
        ("packet", np.int64),  # packet engine: payload of a full packet, bytes
        ("framing", np.int64),  # packet engine: wire bytes of a packet beyond its payload
        ("out_hops", np.int32),  # flow engine: hops up to the host's wire, which is the last of them; 0: within a host
        ("read_ahead", np.int64),  # flow engine: time for which the adapter has messages ahead of the wire, ps
    ],
    align=True,
)
"""How messages of one connection go from one endpoint to another."""

MODERATION = np.dtype([("above", np.int64), ("interval", np.int64)], align=True)
"""Messages above a size (bytes) are handed over no sooner than an interval (ps) after their start."""

FLOW = np.dtype(
    [
        ("mark", np.int32),  # solver: number of the solve that it is part of
        ("bottleneck", np.int32),  # the resource that limits it
        ("first_leg", np.int32),
        ("legs", np.int32),  # hops of its route
        ("weight", np.float64),
        ("rate", np.float64),  # bytes/s
        ("share", np.float64),  # solver: the new rate
        ("remaining", np.float64),  # bytes, at `updated`
        ("updated", np.int64),  # ps
        ("route", np.int32),
        ("owner", np.int32),  # sending lane, or external message where connection is NONE; NONE: a free slot
        ("connection", np.int32),
        ("next_free", np.int32),
        ("bytes", np.int64),  # bytes
        ("started", np.int64),  # ps
        ("tick", np.int64),  # it leaves at a multiple of it, ps
    ],
    align=True,
)
"""A message in transfer."""

LEG = np.dtype(
    [
        ("cost", np.float64),  # units of the resource per payload byte
        ("share", np.float64),  # as of the hop
        ("resource", np.int32),
        ("flow", np.int32),
        ("previous", np.int32),
        ("next", np.int32),
    ],
    align=True,
)
"""A flow's place in the list of one of its resources; flow ``f`` owns legs ``f * width ...``."""

EVENT = np.dtype([("kind", np.int32), ("target", np.int32), ("extra", np.int32), ("next", np.int32)], align=True)
"""Something that happens at the time of the bucket it lies in."""

BUCKET = np.dtype(
    [
        ("time", np.int64),  # ps
        ("head", np.int32),  # first event
        ("tail", np.int32),  # last event
        ("chain", np.int32),  # next bucket with the same hash, or next free bucket
        ("heap", np.int32),  # column of its own: the bucket at this place of the binary heap
        ("hash", np.int32),  # column of its own: the first bucket with this hash
    ],
    align=True,
)
"""All events of one instant, in the order in which they were posted."""

STEP = np.dtype(
    [
        ("wait", np.int32),  # inbox to receive from first; NONE: nothing
        ("needed", np.int32),  # arrivals in that inbox, within one round, that this step needs
        ("per_turn", np.int32),  # arrivals in that inbox in a whole round
        ("send", np.int32),  # connection to send on then; NONE: nothing
        ("shard", np.int32),  # first that is sent: offset to the member's number where relative, else the shard
        ("shards", np.int32),  # how many are sent, the first after the last of the round
        ("run", np.int32),  # of them, how many are in a row; 0: all
        ("every", np.int32),  # from the beginning of one row to that of the next
        ("into", np.int32),  # first shard of what was received, as `shard`
        ("reduce", np.int32),  # received shards that are reduced with one's own; 0: they are copied
    ],
    align=True,
)
"""One step of a member's script: receive, then send."""

SCRIPT = np.dtype([("first_step", np.int64), ("steps", np.int32)], align=True)
"""What one member of a collective does in every round."""

TEMPLATE = np.dtype(
    [
        ("first_script", np.int64),
        ("symmetric", np.int8),  # 1: one script for all lanes
        ("relative", np.int8),  # 1: shards are counted from the member's own number
        ("members", np.int32),  # that have lanes: fewer than the group where members stand for others
        ("shards", np.int32),  # equal parts of a round's buffer
        ("connections", np.int32),  # outgoing, per lane
        ("inboxes", np.int32),  # incoming connections, per lane
        ("strands", np.int32),  # lanes per member and channel: scripts that run side by side
        ("switches", np.int32),  # further lanes per channel, of switches that reduce or copy
    ],
    align=True,
)
"""A collective algorithm for one group size."""

CONNECTION = np.dtype(
    [
        ("route", np.int32),  # NONE: both ends are one rank's
        ("member", np.int32),  # lane of the channel that receives; NONE: not used
        ("inbox", np.int32),  # of that lane
        ("flow", np.int32),  # of the packet engine
    ],
    align=True,
)
"""An outgoing connection of a lane."""

COMMUNICATOR = np.dtype(
    [
        ("template", np.int32),
        ("channels", np.int32),
        ("first_connection", np.int64),  # of channel c, lane m of it: + (c * lanes + m) * connections
        ("first_source", np.int64),  # sending lane of inbox k of lane m: + m * inboxes + k
        ("line_payload", np.int32),  # bytes of payload in a line of the protocol
        ("line", np.int32),  # bytes of a line; whole ones are sent
        ("within", np.int8),  # 1 if messages that leave the host have no lines
        ("window", np.int32),  # messages a sender may be ahead of its receiver
        ("start", np.int64),  # time from an op's start until its lanes run, ps
        ("copying", np.float64),  # time of each byte that is copied out of a FIFO and not passed on, ps
        ("reduction", np.float64),  # time of each byte that is reduced, ps
        ("ticking", np.int8),  # flow engine: 1 if messages begin and leave at ticks
    ],
    align=True,
)
"""A group of ranks wired for one template."""

CALL = np.dtype(
    [
        ("communicator", np.int32),
        ("first_lane", np.int32),  # NONE while no member has joined
        ("block", np.int32),  # size class of its block of lanes
        ("joined", np.int32),
        ("finished", np.int32),
        ("bytes", np.int64),  # bytes
        ("chunk", np.int64),  # most bytes of a shard in one round and channel
        ("started", np.int64),  # when its last member joined, ps
        ("ended", np.int64),  # when its last member was done, ps
    ],
    align=True,
)
"""A collective call of a replayed program."""

LANE = np.dtype(
    [
        ("call", np.int32),  # of the first lane of a free block: the next such
        ("member", np.int32),
        ("op", np.int32),  # of the member, in its first lane of channel 0; NONE until it joins
        ("open", np.int32),  # lanes of the member not yet done, in its first lane of channel 0
        ("peers", np.int32),  # first lane of member 0 on the same channel
        ("home", np.int32),  # first lane of the same member on channel 0; of a switch itself
        ("first_connection", np.int32),
        ("first_step", np.int32),
        ("steps", np.int32),
        ("step", np.int32),
        ("turn", np.int32),
        ("turns", np.int32),
        ("part", np.int64),  # bytes of the call's buffer that go through this channel
        ("first_inbox", np.int32),
        ("received", np.int8),  # 1: the wait of this step is over; 2: what came is being reduced
        ("sending", np.int8),  # or reducing
        ("blocked", np.int8),  # waits for its receiver
    ],
    align=True,
)
"""One member's part of a call on one channel, or one strand of it: NCCL's thread block."""

LONGEST_FIFO = 8
"""Messages that a connection's FIFO may hold: NCCL's buffers have 8 steps."""

INBOX = np.dtype(
    [
        ("sent", np.int32),  # of the first of a free block: the next such
        ("arrived", np.int32),
        ("consumed", np.int32),
        ("moving", np.int32),  # flow engine: 1 from when a message has its turn until its last byte has left
        ("entering", np.int64),  # flow engine: bytes of that message until it is on the wire
        ("head", np.int32),  # flow engine: of the ring that `queued` is
        ("waiting", np.int32),  # flow engine: messages behind the one that moves
        ("queued", np.int64, LONGEST_FIFO),  # flow engine: their bytes
    ],
    align=True,
)
"""Messages of one connection, counted since the call began; they leave one after the other."""

MESSAGE = np.dtype(
    [
        ("route", np.int32),
        ("weight", np.float64),
        ("bytes", np.int64),
        ("batch", np.int32),  # job that counts it; NONE: whoever sent it waits for it alone
        ("ended", np.int64),  # of a batch: when it was handed over, ps
    ],
    align=True,
)
"""A message posted from outside."""

JOB = np.dtype([("open_ops", np.int64), ("ended", np.int64)], align=True)
"""A program being replayed: ops not yet done, and when the last one was, ps."""

COMPLETION = np.dtype([("kind", np.int64), ("number", np.int64)], align=True)
"""What Python is told of: a job or a message that is done, and its number."""

WORLD = np.dtype(
    [
        ("now", np.int64),  # ps
        ("free_flow", np.int32),
        ("free_event", np.int32),
        ("free_bucket", np.int32),
        ("recent_bucket", np.int32),  # that was posted to last, plus 1; 0: none
        ("heap_size", np.int32),
        ("solve", np.int32),  # number of the current solve
        ("arrived", np.int32),  # flows that began in this instant
        ("touched", np.int32),  # resources that lost a flow in this instant
        ("rising", np.int32),  # members of the filling whose level is not fixed yet
        ("outbox", np.int32),  # completions not yet fetched
        ("next_lane", np.int32),  # lanes handed out so far
        ("next_inbox", np.int32),  # inboxes handed out so far
        ("lacks", np.int32),  # what there are too few of for the next call: 1 lanes, 2 inboxes
        ("bin", np.int64),  # width of a bin of the rate series, ps
        ("active", np.int64),  # flows in transfer
        ("messages", np.int64),
        ("events", np.int64),
        ("solves", np.int64),
        ("rate_updates", np.int64),
        ("dag_nodes", np.int64),
    ],
    align=True,
)
"""Scalars of the flow engine."""
