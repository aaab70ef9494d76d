# SPDX-License-Identifier: BSD-2-Clause
"""The configuration: presets hold, and what cannot be built is refused with a sentence."""

import pytest

from gateware.config import PRESETS, CardConfig, ConfigError, bits_for_index, preset

@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_built(name):
    config = preset(name)
    assert config.name == name
    assert 1 << config.psn_bits == config.mpr and 1 << config.qp_bits == config.queue_pairs
    assert config.max_mtu < 1 << config.length_bits

@pytest.mark.parametrize("changes, sentence", [
    ({"network_width": 96},                        "network_width is 96, but a data path is 64, 128, 256 or 512 bits wide"),
    ({"host_width": 64, "network_width": 128},     r"host_width \(64\) is smaller than network_width \(128\)"),
    ({"planes": 5},                                "planes is 5, but a card has 1 to 4 planes"),
    ({"planes": 0},                                "planes is 0"),
    ({"max_mtu": 1500},                            "max_mtu is 1500"),
    ({"queue_pairs": 12},                          "queue_pairs is 12, but it must be a power of two"),
    ({"mpr": 64},                                  "mpr is 64, but it must be between 128 and 1024"),
    ({"messages": 128},                            r"max_wimm \(64\) is smaller than messages \(128\)"),
    ({"receive_store": 4096},                      "receive_store is 4096 bytes, but it must hold two packets of 4096"),
    ({"broken": "everything"},                     "the known broken builds are flag_first, flag_second_port"),
])
def test_what_cannot_be_built_is_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        CardConfig().but(**changes)

@pytest.mark.parametrize("name", ["queue_pairs", "ring_depth", "messages", "contexts", "peers", "evs", "regions", "signals", "events"])
@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_depth_of_0_or_of_no_power_of_two_is_refused(name, size):
    with pytest.raises(ConfigError, match=f"{name} is {size}, but it must be"):
        CardConfig().but(**{name: size})

def test_unknown_preset_is_refused():
    with pytest.raises(ConfigError, match="There is no preset 'huge'; the presets are tiny, sim"):
        preset("huge")

@pytest.mark.parametrize("count, bits", [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (4097, 13)])
def test_index_width_reaches_the_last_entry(count, bits):
    assert bits_for_index(count) == bits

def test_a_tick_is_128_ns():
    assert preset("sim").tick_cycles == 20
    assert preset("sim", clk_freq=250_000_000).tick_cycles == 32
