# SPDX-License-Identifier: BSD-2-Clause
"""The contract between gateware and recovery firmware: one description of events and commands.

Stream layouts, the C header, the Python types of a policy and the documents are made from these
tables. Words are 32 bits; a field never crosses a word. Time is in ticks of 128 ns, modulo 2^32
(`time`) or 2^16 (timestamps).
"""

from dataclasses import dataclass

VERSION = 2

@dataclass(frozen=True)
class ContractField:
    name:   str
    word:   int     # Word of the record.
    bit:    int     # Lowest bit in the word.
    width:  int
    unit:   str     # Unit or meaning.

def _fields(*rows):
    return tuple(ContractField(*row) for row in rows)

# Events: gateware to firmware ---------------------------------------------------------------------

EVENT_WORDS = 8

class EventKind:
    HOLES      = 1  # PSNs that are missing and ripe: `base` + bits of `mask`.
    NACK       = 2  # The peer refused PSN `base` for `reason`.
    TIMEOUT    = 3  # No progress for the interval that firmware had set.
    NAK        = 4  # Transport NAK, `reason` = AETH syndrome.
    READ_ERROR = 5  # A PCIe read of this queue pair's payload failed.
    ACCESS     = 6  # The responder refused a packet: `reason` = AETH syndrome it sent.
    PATH       = 7  # The path named by `base` changed: `reason` = PathChange. Only `qp`, `base`, `entropy`, `time` are valid.
    DIGEST     = 8  # What the SACKs of an interval said: `base` units of 256 bytes newly received, `mask_low` SACKs [15:0] and
                    # marks [31:16], `mask_high` shortest [15:0] and longest [31:16] round trip, ticks, `reason` NACKs.
    START      = 9  # A new life of the queue pair has begun.

# Kinds of events that do not belong to a life: what they carry in `life` is void.
NO_LIFE = (EventKind.PATH,)

class PathState:
    """What the card knows of a path: of one entropy value of one peer."""
    GOOD        = 0 # Used in its turn.
    SKIP        = 1 # Congested: its next turn is passed over, or it is used when its plane has no good one.
    ASSUMED_BAD = 2 # It lost a packet: used only when no plane has a better one, until a probe is answered.
    DENIED      = 3 # Never used; only the driver and PATH commands enter and leave this state.

class PathChange:
    """Why a PATH event was raised."""
    RETURNED = 0    # A probe was answered: GOOD or SKIP again.
    LOST     = 1    # A packet was lost on it, or the peer thinks that it is bad: ASSUMED_BAD now.
    REMINDER = 2    # It still is ASSUMED_BAD: one of these in turn, now and then.

class Path:
    """A path in `base` of PATH events, PATH commands and probes: lowest bits of its fields."""
    EV    = 0       # Entropy value, 8 bits: a row of the peer's table.
    PEER  = 8       # Peer, 8 bits.
    NAMED = 23      # 1: a path is named.

EVENT = _fields(
    ("kind",     0,  0,  8, "EventKind"),
    ("reason",   0,  8,  8, "NACK reason, AETH syndrome or PathChange"),
    ("qp",       0, 16, 16, "index of the queue pair"),
    ("unacked",  1,  0, 24, "oldest PSN that is not acknowledged"),
    ("life",     1, 24,  8, "life of the queue pair, modulo 2^8: each reset begins another one"),
    ("next",     2,  0, 24, "next new PSN to send"),
    ("base",     3,  0, 24, "first PSN that the mask speaks of, or a path"),
    ("mask_low", 4,  0, 32, "bit i: PSN base + i"),
    ("mask_high",5,  0, 32, "bit i: PSN base + 32 + i"),
    ("rtt",      6,  0, 16, "last round-trip time of the queue pair, ticks"),
    ("entropy",  6, 16, 16, "entropy value concerned"),
    ("time",     7,  0, 32, "when it was raised, ticks"),
)

# Commands: firmware to gateware -------------------------------------------------------------------

COMMAND_WORDS = 4

class CommandKind:
    RESEND = 1  # Resend the PSNs base + bits of the mask (those already acknowledged are left out); `reason` 1: their
                # path lost them.
    PROBE  = 2  # Send a reliability probe: on the path `base`, or on the peer's next one if `base` is 0.
    TIMER  = 3  # Arm the deadline: TIMEOUT if no progress for `mask_low` ticks from now.
    GUARD  = 4  # Reorder guard: a hole is ripe `mask_low`[15:0] ticks after it was sent and
                # `mask_high`[7:0] packets below the highest arrival.
    ERROR  = 5  # End the queue pair; `reason` goes to the error words.
    PATH   = 6  # Set the state of the path `base` to `reason`, a PathState.
    WINDOW = 7  # Congestion window: `mask_low`[23:0] units of 256 bytes, 0 = no limit; a DIGEST event
                # every `mask_high`[15:0] ticks in which SACKs came, 0 = none.

COMMAND = _fields(
    ("kind",     0,  0,  8, "CommandKind"),
    ("reason",   0,  8,  8, "RESEND: lost; ERROR: QpError; PATH: PathState"),
    ("qp",       0, 16, 16, "index of the queue pair"),
    ("base",     1,  0, 24, "first PSN that the mask speaks of, or a path"),
    ("life",     1, 24,  8, "life that the command is meant for: that of the event; the runtime fills it in"),
    ("mask_low", 2,  0, 32, "bit i: PSN base + i, or a value"),
    ("mask_high",3,  0, 32, "bit i: PSN base + 32 + i, or a value"),
)

def path_word(peer, ev):
    """A path as it stands in `base`."""
    return 1 << Path.NAMED | peer << Path.PEER | ev << Path.EV

def event_words(values):
    """Words of an event, from a dictionary of its fields; fields that are not named are 0."""
    return _words(EVENT, EVENT_WORDS, values)

def command_values(words):
    """Dictionary of a command's fields, from its words."""
    return {f.name: (words[f.word] >> f.bit) & ((1 << f.width) - 1) for f in COMMAND}

def _words(table, count, values):
    words = [0]*count
    for f in table:
        value = values.get(f.name, 0)
        if not 0 <= value < (1 << f.width):
            raise ValueError(f"{f.name} is {value}, but it has {f.width} bits.")
        words[f.word] |= value << f.bit
    return words

# The window: words of the recovery port, as the soft core sees them -------------------------------

WINDOW_WORDS = 32

class Window:
    """Word offsets in the recovery port. 32-bit accesses only; a word that is not named reads 0."""
    EVENT       = 0x00 # to 0x07, read: words of the oldest event, 0 when none waits.
    STATUS      = 0x08 # read: WindowStatus.
    POP         = 0x09 # write: drop the oldest event.
    TIME        = 0x0a # read: ticks of 128 ns.
    VERSION     = 0x0b # read: version of this contract.
    QUEUE_PAIRS = 0x0c # read: queue pairs of the card.
    HEARTBEAT   = 0x0d # write: the firmware is alive.
    REFUSED     = 0x0e # read: commands refused, stays at 2^32 - 1.
    COMMAND     = 0x10 # to 0x13, write: words of a command.
    GO          = 0x14 # write: submit the command words and clear them; only while STATUS says not busy.

class WindowStatus:
    """Fields of the STATUS word."""
    EVENTS_MASK = 0xffff    # Events that wait.
    BUSY        = 1 << 16   # The mailbox takes no command now.

# Reasons why a queue pair or a token failed, as shown in error words ------------------------------

class QpError:
    """Reasons 1 to 15 end a queue pair, from 16 on a single token was dropped, from 23 on a packet of the peer refused."""
    RETRY_EXCEEDED     = 1
    REMOTE_INVALID     = 2   # Transport NAK: invalid request.
    REMOTE_ACCESS      = 3   # Transport NAK: remote access.
    REMOTE_OPERATION   = 4   # Transport NAK: remote operational error, or NACK UNEXP_EVENT.
    READ_FAILED        = 5   # A PCIe read failed.
    FLUSHED            = 6   # The driver has ended or reset the queue pair.
    TOKEN_CONTEXT      = 16  # No such context on the page.
    TOKEN_FORMAT       = 17  # Operation, flags or half a token.
    TOKEN_SLOT         = 18  # Slot outside of the context.
    TOKEN_LENGTH       = 19  # Length over the context's limit.
    TOKEN_QUOTA        = 20  # Page over its quota.
    TOKEN_REGION       = 21  # Local memory outside of the region or without the right.
    TOKEN_STATE        = 22  # The queue pair is not ready to send.
    REFUSED_ACCESS     = 23  # The responder has refused a peer's packet: key, bounds, rights or signal.
    REFUSED_INVALID    = 24  # The responder has refused a peer's packet as invalid.

QP_ERROR_TEXT = {
    QpError.RETRY_EXCEEDED:   "retry budget used up",
    QpError.REMOTE_INVALID:   "the peer refused a request as invalid",
    QpError.REMOTE_ACCESS:    "the peer refused access to its memory",
    QpError.REMOTE_OPERATION: "the peer reported an operational error",
    QpError.READ_FAILED:      "a PCIe read of the payload failed",
    QpError.FLUSHED:          "the driver has ended or reset the queue pair",
    QpError.TOKEN_CONTEXT:    "the context does not exist",
    QpError.TOKEN_FORMAT:     "the token is malformed",
    QpError.TOKEN_SLOT:       "the slot is outside of the context",
    QpError.TOKEN_LENGTH:     "the length is over the context's limit",
    QpError.TOKEN_QUOTA:      "the page is over its quota",
    QpError.TOKEN_REGION:     "the local memory is outside of its region",
    QpError.TOKEN_STATE:      "the queue pair is not ready to send",
    QpError.REFUSED_ACCESS:   "a packet of the peer was refused access to memory",
    QpError.REFUSED_INVALID:  "a packet of the peer was refused as invalid",
}
