# SPDX-License-Identifier: BSD-2-Clause
"""Where the bytes of a memory region lie: a region's row and the translation table, byte by byte."""

def bus_byte(row, table, va):
    """Bus address of the byte at `va`; None if its page is not in the table."""
    shift = row.get("page_shift", 0)
    if shift == 0:
        return (row["bus"] + va - row["base"]) % 2**64
    if not 12 <= shift <= 21:
        return None
    number = row["first_page"] + (va >> shift) - (row["base"] >> shift)
    if not 0 <= number < len(table):
        return None
    return (table[number] >> shift << shift) + va % (1 << shift)

def bus_pieces(row, table, va, length):
    """[(bus address, bytes)]: up to the first 4 KiB boundary of the bus address, and beyond it. None if a page is missing."""
    first = bus_byte(row, table, va)
    if first is None:
        return None
    here = min(length, 4096 - first % 4096)
    if here == length:
        return [(first, length)]
    rest = bus_byte(row, table, va + here)
    return None if rest is None else [(first, here), (rest, length - here)]

def allowed(row, key, rights, va, length):
    """Do key, rights and bounds of the region allow `length` bytes at `va`? Nothing wraps at 2^64."""
    return bool(row and row["valid"] and row["variant"] == key & 0xff and row["rights"] & rights and
        row["base"] <= va and va + length <= min(row["base"] + row["length"], 2**64))
