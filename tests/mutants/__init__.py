# SPDX-License-Identifier: BSD-2-Clause
"""Faults planted on purpose, each with the tests that must notice it: what the tests are worth.

`scripts/mutants` runs them (docs/testing.md). The tables are grouped like the tree.
"""

from tests.mutants.firmware import FIRMWARE
from tests.mutants.host import HOST
from tests.mutants.network import NETWORK
from tests.mutants.requester import REQUESTER
from tests.mutants.responder import RESPONDER

MUTANTS = (*REQUESTER, *RESPONDER, *HOST, *NETWORK, *FIRMWARE)
