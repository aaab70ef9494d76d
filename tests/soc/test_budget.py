# SPDX-License-Identifier: BSD-2-Clause
"""The memory budget counts what is built: every table belongs to an object, and the sums hold."""

import pytest

from gateware.config import ConfigError, preset
from gateware.transport.transport import Transport
from soc import budget

@pytest.mark.parametrize("name", ["tiny", "sim"])
def test_every_table_belongs_to_exactly_one_object(name):
    paths  = [t.name for t in budget.tables(preset(name))]
    listed = [path for tables in budget.OBJECTS.values() for path in tables]
    assert sorted(paths) == sorted(listed)

def test_state_grows_with_what_the_configuration_says():
    small = preset("sim", queue_pairs=16, mpr=128)
    large = small.but(queue_pairs=32, mpr=256, contexts=2048)
    count, bits = budget.objects(large), budget.bits_per_object(large)
    sizes = budget.tables(large)
    assert sum(t.bits for t in sizes) == sum(count[what]*bits[what] for what in count)
    assert count["queue pair"] == 32 and count["PSN of the window, sender"] == 32*256 and count["context"] == 2048
    assert bits["PSN of the window, receiver"] == budget.bits_per_object(small)["PSN of the window, receiver"]
    assert sum(t.bits for t in sizes) > sum(t.bits for t in budget.tables(small))

def test_state_keeps_to_its_limits():
    """A context takes at most 64 bytes, a message record at most 20, the row of a queue pair at most 128."""
    bits = budget.bits_per_object(preset("sim"))
    assert bits["context"] <= 8*64
    assert bits["message in flight, sender"] <= 8*20
    assert bits["queue pair"] <= 8*128

def test_copies_are_counted():
    sizes = {t.path: t for t in budget.tables(preset("tiny"))}
    assert all(t.copies >= 1 for t in sizes.values())
    assert sizes["tables.region"].stored == sizes["tables.region"].bits*sizes["tables.region"].copies

def test_stores_follow_the_configuration():
    config = preset("tiny", planes=2)
    assert budget.stores(config)["receive stores"] == 2*config.receive_store

@pytest.mark.parametrize("name", ["tiny", "sim"])
def test_presets_keep_to_their_budgets(name):
    config    = preset(name)
    transport = Transport(config)
    budget.check(config, transport)
    bits = budget.total(config, transport)
    assert bits == sum(t.stored for t in budget.tables(config, transport)) + 8*sum(budget.stores(config).values())
    with pytest.raises(ConfigError, match=r"needs \d+ bits of memory, its budget \(memory_bits\) is \d+; the largest table is"):
        budget.check(config.but(memory_bits=bits - 1), transport)
