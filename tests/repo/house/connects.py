# SPDX-License-Identifier: BSD-2-Clause
"""Names given to `connect(keep=, omit=)`: Migen takes a name that does not exist and stays silent."""

from migen.genlib.record import Record

def leaves(record):
    """Names of the signals of a record, those of records within it included."""
    found = set()
    for name, *_ in record.layout:
        value = getattr(record, name)
        found |= leaves(value) if isinstance(value, Record) else {name}
    return found

def wrong_names(top, watch):
    """[(place, sentence)]; the name of a record within the record is wrong too: connect() heeds signals only."""
    found = []
    for place, record, names in watch.connects:
        unknown = [n for n in names if n not in leaves(record)] if names else []
        if unknown:
            found.append((place, f"connect() is given {', '.join(unknown)}, which is no signal of the record "
                f"({', '.join(sorted(leaves(record)))})"))
    return found
