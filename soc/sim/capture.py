# SPDX-License-Identifier: BSD-2-Clause
"""A pcapng file of what passed the MACs: one interface per card, plane and direction.

Sent frames are taken before the fabric, received ones after it, without preamble and FCS; the time is
that of the frame's last word, in nanoseconds of the simulated clock.
"""

from pcapng import FileWriter
from pcapng.blocks import EnhancedPacket, InterfaceDescription, SectionHeader

LINK_ETHERNET = 1

class Capture:
    """Writes `path` while a cluster runs; give it to `Cluster(capture=...)`."""
    def __init__(self, path):
        self.path, self.packets = path, 0
        self._stream = open(path, "wb")     # Refused early when it cannot be written.

    def open(self, cluster):
        self._cluster = cluster
        section = SectionHeader(options={"shb_userappl": "OpenRDMA on LiteX simulation"})
        for node in range(len(cluster.nodes)):
            for plane in range(cluster.planes):
                for direction in ("tx", "rx"):
                    section.new_member(InterfaceDescription, link_type=LINK_ETHERNET, snaplen=0,
                        options={"if_name": f"card{node}-plane{plane}-{direction}", "if_tsresol": b"\x09"})
        self._section = section
        self._writer  = FileWriter(self._stream, section)

    def drain(self):
        """Writes what the harness has collected."""
        clock = self._cluster.config.clk_freq
        for cycle, port, data in self._cluster.sim.take_captures():
            ns = round(cycle*1e9/clock)
            self._writer.write_block(self._section.new_member(EnhancedPacket, interface_id=port, timestamp_high=ns >> 32,
                timestamp_low=ns & 0xffffffff, packet_len=len(data), packet_data=data))
            self.packets += 1

    def close(self):
        self._stream.close()
