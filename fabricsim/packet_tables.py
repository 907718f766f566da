"""Record types of the packet engine.

One line per column, with its unit, as in `fabricsim.tables`. Times are integer picoseconds, sizes
bytes, rates bytes per second, windows packets. An index of ``-1`` means none.
"""

from __future__ import annotations

import numpy as np

# Kinds of packets.
DATA = 0
ACK = 1
NACK = 2  # the receiver misses `number`: out of sequence (go-back-N), or trimmed (selective)
CNP = 3  # congestion notification packet (RoCEv2)

# Bits of PACKET.state.
MARKED = 1  # congestion experienced; on an ACK its echo
TRIMMED = 2  # payload cut off by a full queue
AGAIN = 4  # sent before: a retransmission
CLASS_SHIFT = 3  # the three bits from here: traffic class, or virtual lane
CAPABLE = 64  # of ECN: switches may mark it

CLASSES = 8
"""Traffic classes, or virtual lanes, of a port."""
CONTROL_BYTES = 64
"""Wire bytes of a PAUSE frame or a credit update."""
HEADER_BYTES = 64
"""What a cut-through switch must have of a packet before it forwards it, and what trimming leaves, bytes."""
CHUNK = 8
"""Packets per chunk of a FIFO."""

# Kinds of nodes.
HOST = 0
SWITCH = 1

# How a switch chooses among equally short ways.
BY_FLOW = 0  # ECMP: by the hash of flow and entropy 0
BY_PACKET = 1  # spraying: the sender draws an entropy for each packet
BY_FLOWLET = 2  # the sender draws a new entropy after a gap
LEAST_LOADED = 3  # adaptive: the port that drains first

# Kinds of loss recovery.
GO_BACK_N = 0
SELECTIVE = 1

# Congestion control laws.
NONE_LAW = 0  # a fixed window and rate
NEW_RENO = 1
CUBIC = 2
DCTCP = 3
DCQCN = 4
TIMELY = 5
SWIFT = 6
HPCC = 7
NSCC = 8

# when DCTCP cuts
AT_MARKS = 0  # at the first mark of a window
EVERY_WINDOW = 1  # at the end of each window, marks or none

WATCHED = -1
"""LINK.calm of a link whose packets are never just sent: somebody records them, or they may be lost."""
MANAGED = -2
"""LINK.calm of a link with a managed port, of whose packets none is recorded or lost."""

_CACHE_LINE = 64  # bytes


def _on_lines(columns: list[tuple[str, type]]) -> np.dtype[np.void]:
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
        ("number", np.int32),  # of a data packet within its flow; on ACK and NACK: next number awaited
        ("echo", np.int32),  # on ACK and NACK: number of the packet that it answers
        ("cursor", np.int32),  # place of its next link in the table of paths; NONE: routed at each switch
        ("wire", np.int32),  # bytes on the wire
        ("entropy", np.int16),  # that a spraying sender drew; echoed by an ACK
        ("kind", np.int8),  # DATA, ACK, NACK or CNP
        ("state", np.int8),  # bits: MARKED, TRIMMED, AGAIN, class
    ],
    align=True,
)
"""A packet on a link or in a queue."""

LINK = _on_lines(
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
        ("calm", np.int64),  # a packet with which it drains in this time, ps, or less is just sent; or WATCHED, MANAGED
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
    ],
)
"""One direction of a cable, with the egress queue before it."""

READ_AHEAD = 16
"""Packets that a host has on their way between memory and wire: out through its adapter, and in to each endpoint.
With 4 KiB packets that is the 64 KiB of a segment that a TCP stack hands over at once, and of the reads that an RDMA
adapter keeps outstanding."""

PORT = _on_lines(
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
    ],
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
        ("shared", np.int32),  # 1: it takes from the shared buffer of its node, and is dropped where none is left
    ],
    align=True,
)
"""One class of a port; port ``p`` has queues ``p * CLASSES ...``."""

INGRESS = _on_lines(
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
    ],
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
        ("kind", np.int32),  # HOST or SWITCH
        ("number", np.int32),  # of the host; of the switch among the switches
        ("first_in", np.int32),  # into the list of incoming links
        ("ins", np.int32),
        ("agenda", np.int32),  # root of its heap of what it has to do; NONE: nothing
        ("first_port", np.int32),  # into the list of ports, in which those of a node follow each other
        ("ports", np.int32),
        ("strict", np.int32),  # 0: nothing is wrong if its ports act later within a window than they are due
        ("port_due", np.int64),  # no port of it is to act before, ps
        ("accounts", np.int32),  # 1: it counts what each incoming link holds (PFC, credits)
        ("port", np.int32),  # of a host: its NIC
        ("buffer", np.int64),  # shared, bytes; 0: none
        ("used", np.int64),  # of the shared buffer, bytes
    ],
    align=True,
)
"""A host or a switch."""

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
PORT_DUE = 3  # target: port; kept in a list of times, the others in a heap

SERVER = np.dtype([("free_at", np.int64), ("busy", np.int64), ("bytes", np.int64)], align=True)
"""A resource of a host, which serves packets one after the other: when it is free, and what it did (ps, payload)."""

STAGE = np.dtype([("server", np.int32), ("ps_per_byte", np.float64)], align=True)
"""A server on a flow's way through a host, and its time per payload byte."""

ENDPOINT = np.dtype(
    [
        ("head", np.int32),
        ("tail", np.int32),
        ("count", np.int32),
        ("waiting", np.int32),  # of these, the last ones, which no server has taken yet
        ("first_waiting", np.int32),  # place of the first of those
        ("received_at", np.int64),  # the last of the others, ps
    ],
    align=True,
)
"""A GPU or a host's memory: packets on their way to it through its host."""

TRANSFER = np.dtype(
    [
        ("first", np.int64),  # number of its first packet
        ("last", np.int64),  # number of its last packet
        ("tail", np.int32),  # payload of its last packet, bytes
        ("owner", np.int64),  # what the outbox or the lanes know it by
        ("posted", np.int64),  # ps
        ("next", np.int32),  # later message of the same flow; NONE: none yet
    ],
    align=True,
)
"""A message of a flow that is not yet delivered."""

FLOW = _on_lines(
    [
        # what each packet and acknowledgement needs
        ("posted", np.int64),  # packets of all messages so far
        ("next_number", np.int64),  # of the next packet that was never sent, or of the rewound sender
        ("acknowledged", np.int64),  # all below this have arrived
        ("in_flight", np.int64),  # packets taken to be in the network
        ("window", np.float64),  # congestion window, packets
        ("rate", np.float64),  # pace, wire bytes/s; inf: as fast as the NIC takes them
        ("next_send", np.int64),  # the pace allows no packet before, ps
        ("timeout_at", np.int64),  # retransmission timeout, ps; NEVER: nothing is outstanding
        ("alarm_at", np.int64),  # earliest entry of it on the agenda, ps
        ("last_send", np.int64),  # when the last packet was taken, ps
        ("send_last", np.int64),  # last packet of send_transfer
        ("forget_at", np.int64),  # first_transfer is not needed any more when packets beyond this are acknowledged
        ("law", np.int32),  # row of the laws
        ("ready", np.int32),  # 1: in the NIC's round
        ("next_ready", np.int32),
        ("source", np.int32),  # node
        ("first_link", np.int32),  # from the source onto the wire; NONE: within a host
        ("path", np.int32),  # into the table of paths; NONE: routed at each switch
        ("stages", np.int32),
        ("lost", np.int64),  # packets to send again
        ("smoothed", np.float64),  # round trip, ps; 0: none measured
        ("variation", np.float64),  # of the round trip, ps
        ("timeout", np.float64),  # ps
        ("recovering", np.int32),  # 1: until `recover` is acknowledged
        ("highest", np.int64),  # above all selectively acknowledged packets
        ("scanned", np.int64),  # all below this have been looked at for loss
        ("resend", np.int64),  # none below this is to be sent again
        ("renewed", np.int64),  # `next_number` when a lost packet was last sent again; NEVER: those were looked at
        ("recover", np.int64),
        ("send_transfer", np.int32),  # message of next_number
        ("first_transfer", np.int32),  # oldest message that is kept
        ("wire", np.int32),  # bytes of a full packet
        ("entropy", np.int32),  # in force
        ("first_telemetry", np.int64),  # HPCC: into the tables of telemetry
        ("tap", np.int32),  # of the series of its window, the next is that of its rate; NONE: not recorded
        ("draws", np.int32),  # random numbers drawn
        ("slot", np.int64),  # first byte of its scoreboard: `span` of the sender, then `span` of the receiver
        ("key", np.int64),  # that ECMP hashes, 32 bits
        # what receiving needs
        ("target", np.int32),  # node
        ("last_link", np.int32),  # from the target onto the wire: where acknowledgements leave
        ("reverse_path", np.int32),
        ("exits", np.int32),
        ("endpoint", np.int32),  # receiving
        # the rest, and what the laws of congestion control keep
        ("connect", np.int64),  # wait of the first packet for the handshake, ps
        ("last_transfer", np.int32),
        ("route", np.int32),  # row of `fabricsim.tables.ROUTE`
        ("first_stage", np.int32),  # servers before the wire
        ("first_exit", np.int32),  # servers after the wire
        ("hops", np.int32),  # links from source to target
        ("retransmissions", np.int64),
        ("timeouts", np.int64),
        ("line_rate", np.float64),  # of its first link, bytes/s
        ("base_rtt", np.float64),  # unloaded round trip of a full packet and its acknowledgement, ps
        ("threshold", np.float64),  # slow start ends at this window, packets
        ("alpha", np.float64),  # DCTCP, DCQCN: extent of congestion
        ("target_rate", np.float64),  # DCQCN: to which it recovers, bytes/s
        ("stage", np.int32),  # DCQCN, TIMELY, HPCC: increases since a cut; Swift: timeouts in a row; NSCC: 1: fast
        ("byte_stage", np.int32),  # DCQCN: increases by the byte counter since the last cut
        ("epoch", np.int64),  # a round trip has passed when this number is acknowledged
        ("epoch_packets", np.float64),  # acknowledged since the epoch began
        ("epoch_marked", np.float64),  # of these, marked
        ("cut_until", np.int64),  # DCTCP: no cut by marks until more than this number is acknowledged
        ("peak", np.float64),  # CUBIC: W_max, plateau of the growth, packets; 0: none known
        ("prior", np.float64),  # CUBIC: window before the last cut, packets
        ("friendly", np.float64),  # CUBIC: window of a Reno flow, packets
        ("epoch_at", np.int64),  # CUBIC: when growth began, ps; 0: not yet
        ("origin", np.float64),  # CUBIC: time to grow back to the peak, s
        ("alpha_at", np.int64),  # DCQCN: next update of alpha, ps
        ("cut_at", np.int64),  # DCQCN: next look whether to cut; Swift, NSCC: time of the last cut, ps
        ("raise_at", np.int64),  # DCQCN: next increase by the timer, ps
        ("raise_bytes", np.float64),  # DCQCN: bytes until the next increase by the counter
        ("notified", np.int32),  # DCQCN bits: CNP since alpha was updated (1), the rate cut (2); NSCC: 1: a NACK came
        ("previous_rtt", np.float64),  # TIMELY: ps
        ("gradient", np.float64),  # TIMELY: smoothed change of the round trip, ps
        ("reference", np.float64),  # HPCC: window of the last round trip, packets
        ("utilisation", np.float64),  # HPCC: smoothed, of the busiest link
        ("delay", np.float64),  # NSCC: smoothed queueing delay, ps
        ("achieved", np.float64),  # NSCC: packets acknowledged in the present period of quick adaptation
        ("adapted_at", np.int64),  # NSCC: when quick adaptation may act again, ps
        ("increase", np.float64),  # NSCC: not yet added to the window, packets
        ("fast", np.float64),  # NSCC: packets acknowledged without delay in a row
        ("gathered", np.float64),  # NSCC: packets acknowledged since `increase` was last added
        ("adjusted_at", np.int64),  # NSCC: time of the last increase by eta, ps
        ("ignored", np.float64),  # NSCC: packets still to be answered for before marks count again
    ],
)
"""The sending half of a flow: a TCP connection, a queue pair, a UET packet delivery context."""

RECEIVER = _on_lines(
    [
        ("expected", np.int64),  # all below this have arrived
        ("highest", np.int64),  # above all that have arrived
        ("transfer", np.int32),  # message of `delivered`, or the one before it
        ("last", np.int64),  # last packet of the message that is being received, or less
        ("delivered", np.int64),  # messages of all numbers below this are delivered
        ("unacknowledged", np.int32),  # packets in sequence since the last ACK
        ("marked", np.int16),  # whether the last data packet was marked
        ("quick", np.int16),  # packets that are yet to be acknowledged at once
        ("due", np.int64),  # of a delayed ACK, ps; NEVER: none
        ("nack_at", np.int64),  # no NACK for the same gap before, ps
        ("nacked", np.int64),  # number that the last NACK asked for
        ("cnp_at", np.int64),  # no CNP before, ps
        ("stamp", np.int64),  # to echo, ps
        ("echo", np.int32),
        ("entropy", np.int32),
        ("received", np.int64),  # packets, copies too
        ("copies", np.int64),  # of these, received before
        ("first_held", np.int32),  # of the ACKs that the hosts' stacks still have: place in ANSWER + 1, 0: none
        ("last_held", np.int32),
        ("kept_at", np.int64),  # when the last packet was kept, ps
    ],
)
"""The receiving half of a flow."""

ANSWER = np.dtype(
    [
        ("time", np.int64),  # when it leaves, ps
        ("expected", np.int64),
        ("stamp", np.int64),  # ps
        ("echo", np.int32),
        ("entropy", np.int32),
        ("marked", np.int32),
        ("next", np.int32),  # of the same flow: place + 1, 0: none
    ],
    align=True,
)
"""An ACK that the stacks of both hosts still have; it has the place of its entry in the agenda."""

LAW = np.dtype(
    [
        ("law", np.int32),  # congestion control
        ("recovery", np.int32),  # GO_BACK_N or SELECTIVE
        ("payload", np.int32),  # of a full packet, bytes
        ("overhead", np.int32),  # wire bytes beyond the payload
        ("ack_wire", np.int32),  # wire bytes of ACK, NACK and CNP
        ("data_class", np.int32),
        ("ack_class", np.int32),
        ("balance", np.int32),  # BY_FLOW, BY_PACKET, BY_FLOWLET or LEAST_LOADED
        ("entropies", np.int32),  # that a sprayer draws from
        ("flowlet_gap", np.int64),  # ps
        ("ecn", np.int32),  # 1: packets may be marked
        ("span", np.int64),  # packets from the oldest outstanding to the newest, a power of two
        ("ack_every", np.int32),  # packets
        ("ack_delay", np.int64),  # of a delayed ACK, ps
        ("quick_acks", np.int32),  # packets that are acknowledged at once after a pause, and at first
        ("stacks", np.int64),  # what the software of both hosts adds to a round trip, ps
        ("reordering", np.int32),  # packets above a missing one that prove its loss
        ("nack_interval", np.int64),  # between NACKs for one gap, ps
        ("cnp_interval", np.int64),  # between CNPs of a flow, ps; 0: none
        ("initial_timeout", np.int64),  # ps
        ("minimum_timeout", np.int64),  # ps
        ("maximum_timeout", np.int64),  # ps
        ("handshake", np.int32),  # round trips before the first packet
        ("initial_window", np.float64),  # packets
        ("minimum_window", np.float64),  # packets
        ("maximum_window", np.float64),  # packets
        ("initial_threshold", np.float64),  # packets
        ("idle_restart", np.int64),  # TCP: idle time after which slow start begins anew, ps; NEVER: it does not
        ("minimum_rate", np.float64),  # bytes/s
        ("gain", np.float64),  # DCTCP, DCQCN: g; TIMELY: weight of the new gradient; NSCC: weight of the new delay
        ("initial_alpha", np.float64),  # DCTCP: of a new connection
        ("cut", np.int32),  # DCTCP: AT_MARKS or EVERY_WINDOW
        ("decrease", np.float64),  # factor of a cut: CUBIC, TIMELY and Swift beta, NSCC gamma
        ("largest_cut", np.float64),  # Swift, NSCC: most that one cut takes away
        ("scale", np.float64),  # CUBIC: C, packets/s^3
        ("additive", np.float64),  # increase: packets (Swift, HPCC) or bytes/s (DCQCN, TIMELY)
        ("hyper", np.float64),  # hyper increase of DCQCN and TIMELY, bytes/s
        ("stages", np.int32),  # DCQCN F; TIMELY: increases before hyper ones; HPCC maxStage; Swift: timeouts to a reset
        ("alpha_interval", np.int64),  # DCQCN, ps
        ("cut_interval", np.int64),  # DCQCN, ps; 0: each CNP cuts at once
        ("raise_interval", np.int64),  # DCQCN, ps
        ("raise_bytes", np.float64),  # DCQCN byte counter, bytes; 0: none
        ("clamp", np.int32),  # DCQCN: 1: every cut sets the target rate
        ("low", np.float64),  # TIMELY T_low, Swift base target delay, NSCC target queueing delay, ps
        ("high", np.float64),  # TIMELY T_high, ps
        ("minimum_rtt", np.float64),  # TIMELY, ps
        ("per_hop", np.float64),  # Swift: target delay per link, ps
        ("flow_range", np.float64),  # Swift: most target delay for small windows, ps
        ("flow_low", np.float64),  # Swift: window of the full range, packets
        ("flow_high", np.float64),  # Swift: window without any, packets
        ("eta", np.float64),  # HPCC: target utilisation; NSCC: increase per round trip, packets
        ("proportional", np.float64),  # NSCC alpha: packets per ps below the target and acknowledged packet over window
        ("fair", np.float64),  # NSCC: packets per round trip
        ("quick", np.float64),  # NSCC: fast increase, packets per acknowledged packet
        ("adapt_delay", np.float64),  # NSCC: queueing delay that starts a quick adaptation, targets
        ("adapt_gate", np.float64),  # NSCC: share of the maximum window that must not have been achieved
        ("bdp_limit", np.float64),  # NSCC: maximum window, bandwidth-delay products of the flow
        ("no_delay", np.float64),  # NSCC: a queueing delay below this is none, ps
        ("gather", np.float64),  # NSCC: increases are added once more packets than this are acknowledged
    ],
    align=True,
)
"""Parameters of a transport."""

TELEMETRY = np.dtype(
    [
        ("time", np.int64),  # when the packet was given to it, ps
        ("sent", np.int64),  # bytes
        ("drain", np.int64),  # time that its queue needs, ps
        ("ps_per_byte", np.float64),
        ("stamp", np.int64),  # of the packet, in the row of its first link, ps
    ],
    align=True,
)
"""In-band telemetry of one link (HPCC)."""

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
        ("logging", np.int32),  # 1: some link is logged
        ("sampling", np.int32),  # 1: something is tapped
        ("free_chunk", np.int32),
        ("chunks", np.int32),  # free
        ("free_control", np.int32),
        ("controls_left", np.int32),  # free
        ("free_agenda", np.int32),
        ("agenda_left", np.int32),  # free
        ("free_transfer", np.int32),
        ("transfers_left", np.int32),  # free
        ("calendar", np.int32),  # 1: nodes are found by the tournament over their next times
        ("smallest", np.int64),  # wire bytes of the smallest packet that windows are made for
        ("window", np.int64),  # length of a window, ps; 0: to be fixed anew, for a smaller packet
        ("open", np.int32),  # 1: a window has begun and not ended
        ("until", np.int64),  # end of the present window, ps
        ("node", np.int32),  # next node of the present window
        ("room", np.int64),  # events that a node may take in one window, at most
        ("deliveries", np.int32),  # messages received in this window
        ("logged", np.int64),  # entries of the log
        ("sampled", np.int64),  # entries of the series
        ("data_hops", np.int64),
        ("ack_hops", np.int64),  # of ACK, NACK and CNP
        ("frames", np.int64),  # PAUSE, RESUME and credit updates
        ("windows", np.int64),
        ("due", np.int64),  # agenda entries worked off, and ports
    ],
    align=True,
)
"""Scalars of the packet engine."""

SAMPLE = np.dtype([("time", np.int64), ("tap", np.int32), ("value", np.float64)], align=True)
"""A change of something tapped: the drain time of a link's queue (ps), or a flow's window (packets) or rate."""
