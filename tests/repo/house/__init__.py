# SPDX-License-Identifier: BSD-2-Clause
"""House checks: rules of this tree that only an elaborated design shows.

`check(make)` elaborates what `make()` returns and gives a sentence per breach, with the place:

    children   every module that is made is a registered child        modules.py
    drivers    one driver per signal                                   modules.py
    registers  described, fields too, and on the bus                   registers.py
    connects   names in connect(keep=, omit=) exist                    connects.py
    states     named states exist, are entered and left                states.py
    sums       no raw sum is compared, shifted or an index             sums.py

lint.py has Verilator's lint of the generated Verilog, with waivers.vlt.
"""

from gateware.config import preset
from tests.repo.house import connects, modules, registers, states
from tests.repo.house.watch import Watch

CARDS = {
    "tiny, two planes, 64-bit host": preset("tiny", planes=2, host_width=64),
    "sim, four planes": preset("sim", planes=4),
}

CHECKS = {
    "children":   modules.unregistered,
    "attributes": modules.unregistered_attributes,
    "drivers":    modules.two_drivers,
    "registers":  registers.undescribed,
    "connects":   connects.wrong_names,
    "states":     states.bad_states,
    "sums":       lambda top, watch: watch.sums,
}

def check(make, checks=tuple(CHECKS)):
    """Sentences about the design that `make()` returns; elaborates it."""
    with Watch() as watch:
        top = make()
        top.finalize()
    found = [f"{place}: {sentence}." for name in checks for place, sentence in CHECKS[name](top, watch)]
    return list(dict.fromkeys(found))
