# SPDX-License-Identifier: BSD-2-Clause
"""The harness's C interface (soc/sim/harness/api.cpp) as Python: types, arrays and calls, nothing else."""

import ctypes as C

import numpy as np

RECORD = np.dtype([("cycle", "<u8"), ("delivered", "<u8"), ("delivered_copy", "<u8"), ("qpn", "<u4"), ("psn", "<u4"),
    ("length", "<u2"), ("entropy", "<u2"), ("node", "u1"), ("plane", "u1"), ("path", "u1"), ("destination", "u1"),
    ("kind", "u1"), ("opcode", "u1"), ("flags", "u1"), ("fate", "u1"), ("payload", "<u4")])
CAPTURE    = np.dtype([("cycle", "<u8"), ("port", "<u4"), ("length", "<u4"), ("offset", "<u8")])
FLAG_EVENT = np.dtype([("cycle", "<u8"), ("value", "<u8"), ("node", "<u4"), ("watch", "<u4")])

TRAFFIC = ("doorbell", "credit", "flag", "payload", "read", "completion", "mmio")

class Kind:
    DATA, CONTROL, OTHER = range(3)

class Fate:
    LOST, CORRUPTED, DUPLICATED, UNKNOWN, DOWN, FCS_REPAIRED, TRIMMED, MARKED = (1 << i for i in range(8))

class HostOptions(C.Structure):
    _fields_ = [("memory_base", C.c_uint64), ("memory_size", C.c_uint64), ("bar0", C.c_uint64), ("read_latency", C.c_uint32),
        ("read_jitter", C.c_uint32), ("completion_bytes", C.c_uint32), ("max_payload", C.c_uint32), ("max_request", C.c_uint32),
        ("reorder", C.c_uint32), ("stall", C.c_double)]

class SimOptions(C.Structure):
    _fields_ = [("nodes", C.c_uint32), ("paths", C.c_uint32), ("seed", C.c_uint64), ("delay", C.c_uint64), ("jitter", C.c_uint64),
        ("loss", C.c_double), ("duplicate", C.c_double), ("corrupt", C.c_double), ("trim", C.c_double), ("mark", C.c_double),
        ("doorbell", C.c_uint32), ("capturing", C.c_uint32), ("host", HostOptions)]

P, U32, U64, INT, DBL, STR, BYTES = C.c_void_p, C.c_uint32, C.c_uint64, C.c_int, C.c_double, C.c_char_p, C.POINTER(C.c_uint8)

_CALLS = {  # name: (result, arguments after the simulation)
    "step": (U64, U64, INT), "now": (U64,), "reset": (None, INT), "memory": (BYTES, INT), "trace": (INT, INT, STR), "free": (None,),
    "write": (None, INT, U32, P, U32), "read": (INT, INT, U32, U64, P), "drain": (INT, U64),
    "console": (U32, INT, P, U32), "type": (None, INT, C.c_uint8),
    "page": (U32, INT, U64, U32), "page_quota": (None, INT, U32, U32), "post": (None, INT, U32, P, P, U32),
    "post_interval": (None, INT, U32), "withdraw": (None, INT, U32), "posted": (U32, INT, U32), "post_cycles": (None, INT, U32, P, U32),
    "watch": (U32, INT, U64), "target": (None, U32, U64), "flag": (U64, U32),
    "expect": (INT, U32, U64, U64, INT, U64, U64, U64, U64),
    "mac": (None, U32, U64, U32), "path_loss": (None, U32, U32, DBL), "rates": (None, DBL, DBL, DBL, DBL),
    "plane_down": (None, U32, U32, INT),
    "drop": (None, U32, U32, U32, U32), "stall": (None, INT, DBL),
    "fail_reads": (None, INT, U64, U64, INT), "inject": (None, U32, U32, STR, U32, U32),
    "count": (U64, INT), "sentence": (INT, INT, U32, P, U32), "traffic": (None, INT, P),
    "records": (U64, P), "flag_events": (U64, P), "captures": (U64, P, P), "captures_clear": (None,),
}

class Library:
    """One simulation in a loaded model; every call of the table above is a method."""
    def __init__(self, path, options, folder):
        self._lib = lib = C.CDLL(path)
        for what, size in enumerate((C.sizeof(SimOptions), RECORD.itemsize, CAPTURE.itemsize, FLAG_EVENT.itemsize)):
            if lib.sim_sizes(what) != size:
                raise RuntimeError(f"type {what} of the harness has {lib.sim_sizes(what)} bytes, Python's has {size}.")
        lib.sim_new.restype, lib.sim_new.argtypes = P, (P, STR)
        self._sim = lib.sim_new(C.byref(options), folder.encode())
        if not self._sim:
            raise MemoryError("The simulation could not be made: not enough memory for its hosts.")
        for name, (result, *arguments) in _CALLS.items():
            f = getattr(lib, "sim_" + name)
            f.restype, f.argtypes = result, (P, *arguments)
            setattr(self, name, self._bound(f))

    def _bound(self, f):
        sim = self._sim
        return lambda *arguments: f(sim, *arguments)

    def close(self):
        if self._sim:
            self.free()
            self._sim = None

    def _array(self, call, dtype):
        """A copy of one of the harness's lists."""
        first = P()
        count = call(C.byref(first))
        if count == 0:
            return np.zeros(0, dtype)
        return np.frombuffer((C.c_char*(count*dtype.itemsize)).from_address(first.value), dtype).copy()

    def record_array(self):     return self._array(self.records, RECORD)
    def flag_event_array(self): return self._array(self.flag_events, FLAG_EVENT)

    def take_captures(self):
        """[(cycle, port, bytes)] since the last call."""
        first, data = P(), P()
        count = self.captures(C.byref(first), C.byref(data))
        if count == 0:
            return []
        rows = np.frombuffer((C.c_char*(count*CAPTURE.itemsize)).from_address(first.value), CAPTURE)
        out  = [(int(r["cycle"]), int(r["port"]), C.string_at(data.value + int(r["offset"]), int(r["length"]))) for r in rows]
        self.captures_clear()
        return out

    def memory_view(self, node, size):
        return np.ctypeslib.as_array(self.memory(node), (size,))

    def sentences(self, which):
        """0: complaints about a card, 1: flags before their data."""
        out, text = [], C.create_string_buffer(512)
        while self.sentence(which, len(out), text, 512):
            out.append(text.value.decode())
        return out

    def console_text(self, node):
        text  = C.create_string_buffer(65536)
        count = self.console(node, text, 65536)
        return text.raw[:count].decode("latin1")

    def traffic_counts(self, node):
        """{kind: (TLPs, bytes of data)}."""
        values = (U64*(2*len(TRAFFIC)))()
        self.traffic(node, values)
        return {name: (values[2*i], values[2*i + 1]) for i, name in enumerate(TRAFFIC)}
