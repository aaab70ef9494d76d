# SPDX-License-Identifier: BSD-2-Clause
"""Runs generators against the Verilog that LiteX makes of a module, under Verilator.

The library keeps all port values in one array of 64-bit words that Python maps: a read or a write
costs no call, a clock cycle costs one. In a cycle the edge comes first, with the inputs as they
were, then the new inputs, then the logic settles: exactly what migen.sim does.
"""

import ctypes
import os
import re
import weakref

from litex.build.sim.common import sim_special_overrides
from litex.gen import LiteXContext
from litex.gen.fhdl.verilog import convert
from migen.fhdl.structure import Constant, Signal, _Assign, _Statement, _Value
from migen.fhdl.tools import list_targets
from migen.sim.core import Evaluator

from tests.engines import build, ports

# Shim ---------------------------------------------------------------------------------------------

SHIM = """\
#include <cstring>
#include <stdexcept>
#include <string>
void vl_fatal(const char* file, int line, const char*, const char* message) {{
    throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + message);
}}
void vl_stop(const char* file, int line, const char* hier) VL_MT_UNSAFE {{ vl_fatal(file, line, hier, "$stop"); }}
struct Dut {{
    VerilatedContext context;
    Vdut*            top;
    uint64_t         port[{words}] = {{}};
    std::string      error;
}};
static void take(Dut* d) {{
    Vdut* const top = d->top;
{take}}}
static void give(Dut* d) {{
    Vdut* const top = d->top;
{give}}}
#define API extern "C" __attribute__((visibility("default")))
API Dut* dut_open(uint64_t** port) {{
    Dut* d = new Dut;
    d->context.randReset(0);
    d->top = new Vdut(&d->context, "dut");
    *port = d->port;
    return d;
}}
API const char* dut_settle(Dut* d) {{
    try {{ take(d); d->top->eval(); give(d); }} catch (std::exception& e) {{ d->error = e.what(); return d->error.c_str(); }}
    return nullptr;
}}
API const char* dut_cycle(Dut* d) {{
    try {{
        Vdut* const top = d->top;
        {high} top->eval();
        {low} take(d); top->eval();
        give(d);
    }} catch (std::exception& e) {{ d->error = e.what(); return d->error.c_str(); }}
    return nullptr;
}}
API void dut_close(Dut* d) {{ d->top->final(); delete d->top; delete d; }}
"""

class Port:
    """Where a signal lies in the array; `output` is what the module drives."""
    def __init__(self, signal, index, output):
        self.signal, self.index, self.output = signal, index, output
        self.words  = (len(signal) + 63)//64
        self.mask   = (1 << len(signal)) - 1
        self.sign   = (1 << (len(signal) - 1)) if signal.signed else 0
        self.simple = self.words == 1 and not self.sign

    def statement(self, name):
        """C++ that moves the value between model and array."""
        if len(self.signal) > 64:
            a, b = f"&d->port[{self.index}]", f"&top->{name}[0]"
            a, b = (a, b) if self.output else (b, a)
            return f"    std::memcpy({a}, {b}, {4*((len(self.signal) + 31)//32)});\n"
        if self.output:
            return f"    d->port[{self.index}] = top->{name};\n"
        return f"    top->{name} = d->port[{self.index}];\n"

# Model --------------------------------------------------------------------------------------------

class Model:
    """The library of one module, and where its ports are."""
    def __init__(self, dut):
        fragment = ports.fragment_of(dut)
        clocks   = ports.clock_domains_of(fragment)
        ports.check_drivers(fragment)
        clock_signals = {fragment.clock_domains[name].clk for name in clocks}
        driven        = ports.driven_signals(fragment)
        registers     = list_targets([s for s in fragment.sync.values()])
        self.ports, index, ios = {}, 0, set()
        for path, signal in ports.public_signals(dut):
            if signal in clock_signals:
                continue
            signal.name_override = ports.verilog_name(path)
            port = Port(signal, index, signal in driven)
            self.ports[signal.duid] = port
            index += port.words
            ios.add(signal)
        for n, signal in enumerate(sorted(clock_signals, key=lambda s: s.duid)):
            signal.name_override = f"clock_{n}"
        saved, LiteXContext.top = LiteXContext.top, None
        try:
            out = convert(fragment, ios | clock_signals, name="dut", special_overrides=sim_special_overrides)
        finally:
            LiteXContext.top = saved
        names   = {p.signal.duid: out.ns.get_name(p.signal) for p in self.ports.values()}
        verilog = re.sub(r"^// *(Filename|Device|LiteX sha1|Date|Auto-Generated).*\n", "", out.main_source, flags=re.M)
        # The release gives ports no initial value, though registers have one.
        initial = "".join(f"    {names[s.duid]} = {len(s)}'d{s.reset.value & ((1 << len(s)) - 1)};\n"
            for s in sorted(registers & ios, key=lambda s: s.duid))
        if initial:
            verilog = verilog.replace("endmodule\n", f"initial begin\n{initial}end\nendmodule\n")
        clock_names = sorted(out.ns.get_name(c) for c in clock_signals)
        shim = SHIM.format(words=max(index, 1),
            high=" ".join(f"top->{name} = 1;" for name in clock_names),
            low=" ".join(f"top->{name} = 0;" for name in clock_names),
            take="".join(p.statement(names[d]) for d, p in self.ports.items() if not p.output),
            give="".join(p.statement(names[d]) for d, p in self.ports.items() if p.output))
        self.words = index
        self.path  = build.library(verilog, dict(out.data_files), shim)
        self.api   = ctypes.CDLL(self.path)
        self.api.dut_open.restype  = ctypes.c_void_p
        self.api.dut_open.argtypes = [ctypes.c_void_p]
        for name in ("dut_settle", "dut_cycle", "dut_close"):
            getattr(self.api, name).argtypes = [ctypes.c_void_p]
            getattr(self.api, name).restype  = ctypes.c_char_p

_models = weakref.WeakKeyDictionary()

def model_of(dut):
    if dut not in _models:
        _models[dut] = Model(dut)
    return _models[dut]

# Simulation ---------------------------------------------------------------------------------------

class _Values:
    """Port values by signal number, for Migen's evaluator."""
    def __init__(self, read):
        self.read = read
    def __getitem__(self, duid):
        return self.read(duid)

class _Evaluator(Evaluator):
    def eval(self, node, postcommit=False):
        if type(node) is Signal and node.duid not in self.known:
            raise AssertionError(f"Signal {ports.name_of(node)} is no port of the module: it is in no public attribute, "
                "so the Verilog does not show it.")
        return super().eval(node, postcommit)

def run(dut, generators):
    """Runs the generators to their end."""
    model   = model_of(dut)
    api     = model.api
    pointer = ctypes.c_void_p()
    handle  = api.dut_open(ctypes.byref(pointer))
    try:
        _run(model, api, handle, pointer.value, generators)
    finally:
        api.dut_close(handle)

def _run(model, api, handle, address, generators):
    table  = model.ports
    memory = (ctypes.c_uint64*max(model.words, 1)).from_address(address)
    writes = {}

    def read(duid):
        port = table[duid]
        if port.simple:
            return memory[port.index]
        value = 0
        for n in range(port.words):
            value |= memory[port.index + n] << (64*n)
        return value - 2*port.sign if value & port.sign else value

    def write(port, value):
        for n in range(port.words):
            memory[port.index + n] = (value >> (64*n)) & 0xffffffffffffffff

    evaluator = _Evaluator(None, None)
    evaluator.known         = table
    evaluator.signal_values = _Values(read)
    evaluator.modifications = writes

    def execute(request):
        kind = type(request)
        if kind is Signal:
            port = table.get(request.duid)
            if port is not None and port.simple:
                return memory[port.index]
            return evaluator.eval(request)
        if kind is _Assign and type(request.l) is Signal and type(request.r) is Constant:
            writes[request.l.duid] = request.r.value
            return None
        if isinstance(request, (list, tuple)):
            return [execute(r) for r in request]
        if isinstance(request, _Statement):
            return evaluator.execute([request])
        if isinstance(request, _Value):
            return evaluator.eval(request)
        raise ValueError(f"A generator yielded {request!r}; it may yield nothing, a value, a statement or a list of them.")

    def check(error):
        if error:
            raise AssertionError(f"Verilator: {error.decode(errors='replace')}")

    for port in table.values():
        if not port.output:
            write(port, port.signal.reset.value & port.mask)
    folder = os.getcwd()
    os.chdir(os.path.dirname(model.path))               # The first evaluation reads $readmemh files, relative.
    try:
        check(api.dut_settle(handle))
    finally:
        os.chdir(folder)
    while generators.active:
        generators.cycle(execute)
        if writes:
            for duid, value in writes.items():
                port = table.get(duid)
                if port is None:
                    raise AssertionError("A generator wrote a signal that is no port of the module.")
                if port.output:
                    raise AssertionError(f"A generator wrote {port.signal.name_override}, which the module drives.")
                write(port, value & port.mask)
            writes.clear()
        check(api.dut_cycle(handle))
