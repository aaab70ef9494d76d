# SPDX-License-Identifier: BSD-2-Clause
"""Where bytes lie that go on at another bus address after their first 4 KiB boundary."""

def pieces(address, beyond, length):
    """[(bus address, bytes)] of `length` bytes, 4096 at most: up to the boundary, then from `beyond`, in units of 4 KiB."""
    assert 0 <= length <= 4096
    here = min(length, 4096 - address % 4096)
    return [(a, n) for a, n in ((address, here), (beyond << 12, length - here)) if n]

def straight(address):
    """`beyond` of bytes that simply go on."""
    return (address//4096 + 1) % 2**52
