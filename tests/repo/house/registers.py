# SPDX-License-Identifier: BSD-2-Clause
"""Registers: each of ours has a description, each field too, and each is on the bus."""

def undescribed(top, watch):
    """[(place, sentence)] of registers without description or out of reach."""
    found, banks = [], getattr(top, "csr_bankarray", None)
    reachable = [c for bank in banks.banks for c in bank[1]] if banks else top.get_csrs() if hasattr(top, "get_csrs") else []
    reachable = {id(c) for c in reachable}
    for place, register in watch.csrs:
        fields = getattr(getattr(register, "fields", None), "fields", None) or []
        if id(register) in {id(f) for f in fields} or not hasattr(register, "description"):
            continue
        if not (register.description or fields):
            found.append((place, f"register {register.name} has no description"))
        found += [(place, f"field {field.name} of register {register.name} has no description")
            for field in fields if not field.description]
        if id(register) not in reachable:
            found.append((place, f"register {register.name} is on no bus: its module lacks a way up to the card"))
    return found
