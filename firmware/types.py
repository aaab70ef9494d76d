# SPDX-License-Identifier: BSD-2-Clause
"""The integers and records of a policy, as Python runs them.

`u8`, `u16`, `u24` and `u32` wrap around as the soft core's do, so a PSN difference is just
`e.base - e.unacked` of two `u24`. An operation has the width of its wider operand; a literal takes
the width of the other side. What would differ in C (division, negative numbers) is refused.
"""

# Integers -----------------------------------------------------------------------------------------

def _operation(name):
    native = getattr(int, f"__{name}__")
    def operation(self, other):
        cls = type(self)
        if isinstance(other, Unsigned):
            cls = cls if cls.width >= other.width else type(other)
        elif type(other) is not int or not 0 <= other < (1 << cls.width):
            raise TypeError(f"{other!r} does not fit beside a {cls.__name__}.")
        return cls(native(int(self), int(other)))
    return operation

def _reflected(name):
    native = getattr(int, f"__{name}__")
    def operation(self, other):
        return type(self)(native(int(other), int(self)))
    return operation

def _shift(name):
    native = getattr(int, f"__{name}__")
    def operation(self, count):
        return type(self)(native(int(self), min(int(count), 32)))
    return operation

def _refused(sentence):
    def operation(self, *_):
        raise TypeError(sentence)
    return operation

class Unsigned(int):
    """An integer of `width` bits that wraps around."""
    width = 32

    def __new__(cls, value=0):
        return int.__new__(cls, int(value) & ((1 << cls.width) - 1))

    for _name in ("add", "sub", "mul", "and", "or", "xor"):
        locals()[f"__{_name}__"]  = _operation(_name)
        locals()[f"__r{_name}__"] = _reflected(_name)
    for _name in ("lshift", "rshift"):
        locals()[f"__{_name}__"] = _shift(_name)
    del _name

    def __invert__(self):
        return type(self)(~int(self))

    __neg__    = _refused("A policy has no negative numbers; write `u32(0) - x`.")
    __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = _refused(
        "A policy does not divide (34 cycles or more); use shifts.")

class u8(Unsigned):
    width = 8

class u16(Unsigned):
    width = 16

class u24(Unsigned):
    width = 24

class u32(Unsigned):
    width = 32

TYPES = {cls.__name__: cls for cls in (u8, u16, u24, u32)}

def type_of_width(width):
    """The integer type of a field."""
    return TYPES[f"u{width}"]

# Loops --------------------------------------------------------------------------------------------

MAX_STEPS = 64

def steps(count):
    """`for i in steps(8)`: i is a u32 from 0 to 7. The count is a constant, at most 64."""
    if not 0 <= count <= MAX_STEPS:
        raise ValueError(f"steps({count}): a loop of a policy has at most {MAX_STEPS} steps.")
    return (u32(i) for i in range(count))

# Records ------------------------------------------------------------------------------------------

def make_record(name, layout, read_only=False):
    """A class whose fields ({name: integer type}) start at 0 and keep their width."""
    def init(self, **values):
        for field, cls in layout.items():
            object.__setattr__(self, f"_{field}", cls(values.pop(field, 0)))
        if values:
            raise AttributeError(f"{name} has no field {', '.join(values)}.")

    def setattribute(self, field, value):
        if field not in layout:
            raise AttributeError(f"{name} has no field {field}.")
        if read_only:
            raise AttributeError(f"{name} cannot be written.")
        object.__setattr__(self, f"_{field}", layout[field](value))

    body = {field: property(lambda self, field=field: getattr(self, f"_{field}")) for field in layout}
    body.update(__init__=init, __setattr__=setattribute, __slots__=[f"_{field}" for field in layout], layout=layout)
    return type(name, (), body)

def record(cls):
    """Decorator: the annotated fields of a class become the state that is kept per queue pair."""
    result = make_record(cls.__name__, dict(cls.__annotations__))
    result.__doc__ = cls.__doc__
    return result
