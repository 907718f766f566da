"""Record types of the packet engine: packets, links, ports and nodes; `fabricsim.records.transport` has those of flows.

One line per column, with its unit, as in `fabricsim.records.program`. Times are integer picoseconds, sizes
bytes, rates bytes per second, windows packets. An index of ``-1`` means none.
"""

import numpy as np

# Kinds of packets.
DATA = 0
ACK = 1
NACK = 2  # the receiver misses `number`: out of sequence (go-back-N), or trimmed (selective)
CNP = 3  # congestion notification packet (RoCEv2)
PULL = 4  # of a receiver that says when to send (NDP)

# Bits of PACKET.state.
MARKED = 1  # congestion experienced; on an ACK its echo
TRIMMED = 2  # payload cut off by a full queue
PULLS = 4  # of an ACK or NACK: it pulls a packet, too (NDP)
AGAIN = 4  # sent before: a retransmission
CLASS_SHIFT = 3  # the three bits from here: traffic class, or virtual lane
CAPABLE = 64  # of ECN: switches may mark it

CLASSES = 8
"""Traffic classes, or virtual lanes, of a port."""
CONTROL_BYTES = 64
"""Wire bytes of a PAUSE frame or a credit update."""
CREDIT_BYTES = 64
"""Unit of credits (InfiniBand architecture specification, volume 1, flow control)."""
HEADER_BYTES = 64
"""What a cut-through switch must have of a packet before it forwards it, and what trimming leaves, bytes."""
CHUNK = 8
"""Packets per chunk of a FIFO."""

# Kinds of nodes.
HOST = 0
SWITCH = 1

WHEN_FREE = -1
"""NODE.port_due of a host whose NIC acts when its wire is free."""

WATCHED = -1
"""LINK.shallow of a link whose packets are never just sent: somebody records them, or they may be lost."""
MANAGED = -2
"""LINK.shallow of a link with a managed port, of whose packets none is recorded or lost."""

_CACHE_LINE = 64  # bytes


def on_lines(columns: list[tuple[str, type]]) -> np.dtype[np.void]:
    """Make a record of whole lines of the cache, so that its first columns lie on the same lines in all rows."""
    packed = np.dtype(columns, align=True)
    names = list(packed.names or ())
    places = [packed.fields[name] for name in names] if packed.fields else []
    return np.dtype(
        {
            "names": names,
            "formats": [place[0] for place in places],
            "offsets": [place[1] for place in places],
            "itemsize": -(-packed.itemsize // _CACHE_LINE) * _CACHE_LINE,
        },
        align=True,
    )


PACKET = np.dtype(
    [
        ("time", np.int64),  # when it reaches the far end of its link, ps; elsewhere: when it may go on
        ("stamp", np.int64),  # when the data packet left its sender, ps; echoed by an ACK
        ("flow", np.int32),
        (
            "number",
            np.int32,
        ),  # of a data packet within its flow; on ACK and NACK: next number awaited; on PULL: pulls so far
        ("echo", np.int32),  # on ACK and NACK: number of the packet that it answers
        ("cursor", np.int32),  # place of its next link in the table of paths; ~h: each switch looks up ways to host h
        ("wire", np.int32),  # bytes on the wire
        ("entropy", np.int16),  # that a spraying sender drew; echoed by an ACK
        ("kind", np.int8),  # DATA, ACK, NACK, CNP or PULL
        ("state", np.int8),  # bits: MARKED, TRIMMED, AGAIN, class
    ],
    align=True,
)
"""A packet on a link or in a queue."""

LINK = on_lines(
    [
        # what each packet needs, on two lines of the cache
        ("delay", np.int64),  # propagation, and the latency of the switch at its end, ps
        ("ps_per_byte", np.float64),
        ("free_at", np.int64),  # when the last packet given to it has left, ps
        ("head", np.int32),  # of the packets on their way: first place in the pool
        ("tail", np.int32),
        ("count", np.int32),
        ("target", np.int32),  # node
        ("port", np.int32),  # managed egress port; NONE: a plain FIFO
        ("place", np.int32),  # among the incoming links of all nodes
        ("shallow", np.int64),  # a packet with which it drains in at most this, ps, is just sent; or WATCHED, MANAGED
        ("packets", np.int64),  # sent
        ("bytes", np.int64),  # sent, on the wire
        ("payload", np.int64),  # sent for the first time, bytes of messages
        ("deepest", np.int64),  # longest drain time, ps
        ("mark_low", np.int64),  # RED: drain time at which marking begins, ps; NEVER: none
        ("limit", np.int64),  # drain time that a packet may not push the queue beyond, ps
        ("source", np.int32),  # node
        ("reverse", np.int32),  # link the other way; NONE: none
        ("cut_through", np.int32),  # 1: the node at its end forwards on the header
        ("down", np.int32),  # 1: failed; packets are lost
        ("tap", np.int32),  # of the series of its queue; NONE: not recorded
        ("log", np.int32),  # 1: its packets are logged
        # the rest
        ("loss", np.float64),  # bit error rate
        ("mark_high", np.int64),  # drain time at which every packet is marked, ps
        ("mark_most", np.float64),  # probability of a mark just below mark_high
        ("draws", np.int64),  # random numbers drawn
        ("control_head", np.int32),  # pauses and credits on their way to `target`
        ("control_tail", np.int32),
        ("control_count", np.int32),
        ("marks", np.int64),
        ("drops", np.int64),  # by overflow
        ("errors", np.int64),  # lost by bit errors or failure
        ("trims", np.int64),
        ("pauses", np.int64),  # PAUSE frames received for it
        ("paused", np.int64),  # time that some class was paused, ps
    ]
)
"""One direction of a cable, with the egress queue before it."""

READ_AHEAD = 16
"""Packets that a host has on their way between memory and wire: out through its adapter, and in to each endpoint.
With 4 KiB packets that is the 64 KiB of a segment that a TCP stack hands over at once, and of the reads that an RDMA
adapter keeps outstanding."""

PORT = on_lines(
    [
        ("link", np.int32),
        ("classes", np.int32),
        ("turn", np.int32),  # class whose turn it is
        ("paused", np.int32),  # bit per class
        ("filled", np.int32),  # bit per class: packets wait in it
        ("place", np.int32),  # among the ports of all nodes
        ("ready", np.int32),  # of a host: flow whose turn it is; NONE: none
        ("ready_last", np.int32),
        ("taken", np.int64),  # of a host: data packets so far
        ("credit_bytes", np.int64),  # receive buffer per class at the far end; 0: no credits
        ("paused_since", np.int64),  # ps
        ("weighted", np.int8),  # 1: deficit weighted round robin; 0: strict priority, class 0 first
        ("visited", np.int8),  # DWRR: 1: that class has had its weight
        ("trimming", np.int8),  # 1: a full queue cuts off payloads
        ("mark_late", np.int8),  # 1: packets are marked when they leave; 0: when they come
    ]
)
"""An egress port that decides at each departure: several classes, PFC, credits, shared buffer, or a host's NIC."""

QUEUE = np.dtype(
    [
        ("head", np.int32),
        ("tail", np.int32),
        ("count", np.int32),
        ("weight", np.int32),  # bytes per turn of DWRR
        ("deficit", np.int64),  # bytes
        ("bytes", np.int64),  # waiting, on the wire
        ("waiting", np.int64),  # their serialisation time, ps
        ("credits", np.int64),  # bytes that may be sent
        ("alpha", np.float64),  # share of the free shared buffer that it may hold; inf: no such bound
        ("lossless", np.int32),  # 1: PFC or credits keep it from overflowing
        ("shared", np.int32),  # 1: it takes from the shared buffer of its node, and is dropped if none is left
    ],
    align=True,
)
"""One class of a port; port ``p`` has queues ``p * CLASSES ...``."""

INGRESS = on_lines(
    [
        ("bytes", np.int64),  # in the node's buffer that came this way
        ("above", np.int64),  # PAUSE is sent beyond this, bytes; with alpha: never less than this; NEVER: no PFC
        (
            "below",
            np.int64,
        ),  # RESUME is sent when no more than this is left, bytes; with alpha: less than the threshold
        ("headroom", np.int64),  # bytes taken in after a PAUSE
        ("alpha", np.float64),  # share of the free shared buffer; 0: static
        ("credits", np.int32),  # 1: bytes that leave are given back as credits
        ("pausing", np.int32),  # 1: a PAUSE is in force
        ("held", np.int64),  # bytes when that PAUSE was sent
    ]
)
"""What one class of one incoming link holds; link ``l`` has ``l * CLASSES ...``."""

ARRIVAL = np.dtype([("link", np.int32), ("place", np.int32), ("out", np.int32)], align=True)
"""What arrives at a switch in a window: its link (``~link``: a control frame, of which the others say nothing), its
place in the pool, and the link that it goes to next; NONE: it has no path."""

CONTROL = np.dtype(
    [
        ("time", np.int64),  # ps
        ("amount", np.int64),  # credits, bytes; 0: PAUSE, -1: RESUME
        ("traffic_class", np.int32),
        ("next", np.int32),
    ],
    align=True,
)
"""A PAUSE, RESUME or credit update on its way."""

NODE = np.dtype(
    [
        ("kind", np.int8),  # HOST or SWITCH
        ("strict", np.int8),  # 0: nothing is wrong if its ports act later within a window than they are due
        ("accounts", np.int8),  # 1: it counts what each incoming link holds (PFC, credits)
        ("number", np.int32),  # of the host; of the switch among the switches
        ("first_in", np.int32),  # into the list of incoming links
        ("ins", np.int32),
        ("agenda", np.int32),  # root of its heap of what it has to do; NONE: nothing
        ("first_port", np.int32),  # into the list of ports, in which those of a node follow each other
        ("ports", np.int32),
        ("port", np.int32),  # of a host: its NIC
        ("agenda_due", np.int64),  # time of the first entry of its agenda, ps; NEVER: none
        ("port_due", np.int64),  # no port of it is to act before, ps; of a host: its NIC, or WHEN_FREE
        ("buffer", np.int64),  # shared, bytes; 0: none
        ("used", np.int64),  # of the shared buffer, bytes
    ],
    align=True,
)
"""A host or a switch."""

PULLS_OF_HOST = np.dtype([("first", np.int32), ("last", np.int32), ("at", np.int64)], align=True)
"""Flows of which packets are yet to be pulled, the next first (NONE: there is none), and when that may be, ps."""

AGENDA = np.dtype(
    [
        ("time", np.int64),  # ps
        ("order", np.int64),  # among entries of one time: kind and target
        ("child", np.int32),
        ("next", np.int32),
    ],
    align=True,
)
"""An entry of a node's pairing heap, or of the list of free entries."""

# Kinds of what a node has planned, in the order in which it is done at one time.
RECEIVED = 0  # target: endpoint whose first waiting packet has passed the host
ALARM = 1  # target: flow; pace, or retransmission timeout
ACKNOWLEDGE = 2  # target: flow; the delayed acknowledgement is due
PULL_DUE = 3  # target: host; its next pull may leave
PORT_DUE = 4  # target: port; kept in a list of times, the others in a heap

LOG = np.dtype(
    [
        ("time", np.int64),  # at which its first bit leaves, or it is dropped, ps
        ("link", np.int32),
        ("flow", np.int32),
        ("number", np.int32),
        ("echo", np.int32),
        ("wire", np.int32),
        ("kind", np.int8),
        ("state", np.int8),  # as in PACKET
        ("fate", np.int8),  # SENT, DROPPED, LOST
    ],
    align=True,
)
"""An entry of the packet log."""

# Fates of a logged packet.
SENT = 0
DROPPED = 1  # by a full queue
LOST = 2  # by a bit error or a failed link

DELIVERY = np.dtype(
    [("time", np.int64), ("flow", np.int32), ("transfer", np.int32), ("owner", np.int64), ("posted", np.int64)],
    align=True,
)
"""A message whose last packet was received."""

NETWORK = np.dtype(
    [
        ("seed", np.int64),
        ("hosts", np.int32),
        ("many", np.int32),  # 1: so many that records do not fit into the second cache, and more is fetched ahead
        ("peers", np.int32),  # NICs of a host where they share its servers; 0: none do
        ("controls", np.int32),  # 1: PAUSE frames or credits travel
        ("telemetry", np.int32),  # 1: links write telemetry
        ("sprayed", np.int32),  # 1: some packets choose among ways that do not depend on the present load
        ("logging", np.int32),  # 1: some link is logged
        ("sampling", np.int32),  # 1: something is tapped
        ("free_chunk", np.int32),
        ("chunks", np.int32),  # free
        ("first_left", np.int32),  # of the chunks whose packets a node has taken off their link, and still reads
        ("last_left", np.int32),
        ("chunks_left", np.int32),  # of these
        ("free_control", np.int32),
        ("controls_left", np.int32),  # free
        ("free_agenda", np.int32),
        ("agenda_left", np.int32),  # free
        ("free_transfer", np.int32),
        ("transfers_left", np.int32),  # free
        ("calendar", np.int32),  # 1: nodes are found by the tournament over their next times
        ("smallest", np.int64),  # wire bytes of the smallest packet that windows are made for
        ("out", np.int64),  # no node of side 1 is affected sooner by what one of side 0 does, ps
        ("back", np.int64),  # and none of side 0 by what one of side 1 does
        ("window", np.int64),  # most that a node is run at once, ps; 0: to be fixed anew, for a smaller packet
        ("side", np.int32),  # whose turn it is
        ("sides", np.int32),  # stretches of nodes of side 0, on which hosts are; those of side 1 follow
        ("open", np.int32),  # 1: a window has begun and not ended
        ("until", np.int64),  # end of the present window, ps
        ("node", np.int32),  # next node of the present window
        ("room", np.int64),  # events that a node may take in one window, at most
        ("plans", np.int64),  # entries of the agenda that a host may make in one window, or an event of a program
        ("deliveries", np.int32),  # messages received in this window
        ("logged", np.int64),  # entries of the log
        ("sampled", np.int64),  # entries of the series
        ("data_hops", np.int64),
        ("ack_hops", np.int64),  # of ACK, NACK, CNP and PULL
        ("frames", np.int64),  # PAUSE, RESUME and credit updates
        ("due", np.int64),  # agenda entries worked off, and ports
    ],
    align=True,
)
"""Scalars of the packet engine."""

BUCKET = np.dtype([("first", np.int32), ("end", np.int32)])
"""Places of the keys of a bucket, `end` not among them."""

STRETCH = np.dtype([("first", np.int32), ("end", np.int32)])
"""Nodes of one side with consecutive numbers, `end` not among them."""

SAMPLE = np.dtype([("time", np.int64), ("tap", np.int32), ("value", np.float64)], align=True)
"""A change of something tapped: the drain time of a link's queue (ps), or a flow's window (packets) or rate."""
