# SPDX-License-Identifier: BSD-2-Clause
"""Drivers and monitors of the tests."""
