"""Pickles read as data: every opcode is carried out on inert values, so nothing is imported, called or constructed.

A pickle is a program for a stack machine. Here a name stays a name (`Global`), a call stays a record of the call (`Call`),
a dict stays its pairs (`Table`): no value of this module can run code, whatever the bytes are. Python's own unpickler is
not used at all, because its memo allocates whatever index a file asks for; `pickletools` cuts the bytes into opcodes.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

__all__ = ["BadPickle", "Call", "Global", "Persistent", "Pickled", "Table", "read_pickle", "words"]


class BadPickle(Exception):
    """Bytes that are no pickle, or one that ends early."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Table:
    """A dict as its pairs, in order; keys need not be hashable."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a text key."""
        return next((v for k, v in reversed(self.pairs) if isinstance(k, str) and k == key), default)


@dataclass(slots=True, eq=False)
class Call:
    """A call that the pickle would make: of a function, or of a class to make an object."""

    func: Any
    args: Any
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """A reference to something outside the pickle: for torch a storage."""

    id: Any


def words(value: Any) -> str:
    """A value of a pickle as text of bounded length: of a container only its type, for it may unfold without end."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 64):
        return str(value)
    if isinstance(value, Global):
        return f"{value.module}.{value.name}"
    return f"<{type(value).__name__}>"


class _Mark:
    """The mark on the stack that opens a group."""


MARK = _Mark()


@dataclass(slots=True)
class Pickled:
    """What a pickle holds: its value, every name it would import and every reference to the outside, in order."""

    value: Any
    globals: list[Global]
    references: list[Persistent]


def read_pickle(file: BinaryIO) -> Pickled:
    """The content of one pickle. The file is left behind the pickle's last byte.

    Raises BadPickle. Memory and time grow with the bytes read, never with a number in them.
    """
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # odd escapes in a damaged text
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "STOP":
                    return Pickled(machine.pop(), machine.globals, machine.references)
                machine.step(opcode.name, argument)
    except BadPickle:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, UnicodeError, EOFError) as error:
        raise BadPickle(str(error) or type(error).__name__) from None
    raise BadPickle("it ends before its last opcode")


class _Machine:
    """The stack machine of a pickle, on inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: list[Global] = []
        self.references: list[Persistent] = []

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is MARK:
            raise BadPickle("an opcode finds the stack empty")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is MARK:
            raise BadPickle("an opcode finds the stack empty")
        return self.stack[-1]

    def group(self) -> list[Any]:
        """Everything above the last mark, taken off the stack together with the mark."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is MARK:
                found = self.stack[at + 1 :]
                del self.stack[at:]
                return found
        raise BadPickle("a group was never opened")

    def name(self, module: Any, name: Any) -> None:
        found = Global(words(module), words(name))
        self.globals.append(found)
        self.stack.append(found)

    def step(self, op: str, argument: Any) -> None:
        """Carry out one opcode."""
        if op in _PUSH:
            self.stack.append(argument)
        elif op in _MAKE:
            self.stack.append(_MAKE[op]())
        elif op in _GROUP:
            self.stack.append(_GROUP[op](self.group()))
        elif op in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = self.top()
        elif op == "MEMOIZE":
            self.memo[len(self.memo)] = self.top()
        elif op in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif op in ("TUPLE1", "TUPLE2", "TUPLE3"):
            taken = [self.pop() for _ in range(int(op[-1]))]
            self.stack.append(tuple(reversed(taken)))
        elif op == "GLOBAL":
            self.name(*argument.split(" ", 1))
        elif op == "STACK_GLOBAL":
            name, module = self.pop(), self.pop()
            self.name(module, name)
        elif op in ("EXT1", "EXT2", "EXT4"):
            self.name("copyreg", f"extension {argument}")
        elif op in ("REDUCE", "NEWOBJ", "NEWOBJ_EX"):
            keywords = self.pop() if op == "NEWOBJ_EX" else None
            args, func = self.pop(), self.pop()
            self.stack.append(_called(func, args if keywords is None else (args, keywords)))
        elif op == "INST":
            args = self.group()
            self.name(*argument.split(" ", 1))
            self.stack.append(_called(self.stack.pop(), tuple(args)))
        elif op == "OBJ":
            func, *args = self.group()
            self.stack.append(_called(func, tuple(args)))
        elif op == "BUILD":
            state = self.pop()
            if isinstance(top := self.top(), Call):
                top.state = state
        elif op in ("PERSID", "BINPERSID"):
            self.references.append(Persistent(argument if op == "PERSID" else self.pop()))
            self.stack.append(self.references[-1])
        elif op == "APPEND":
            value = self.pop()
            _append(self.top(), [value])
        elif op in ("APPENDS", "ADDITEMS"):
            values = self.group()
            _append(self.top(), values)
        elif op == "SETITEM":
            value, key = self.pop(), self.pop()
            _set(self.top(), [key, value])
        elif op == "SETITEMS":
            values = self.group()
            _set(self.top(), values)
        elif op == "DUP":
            self.stack.append(self.top())
        elif op == "POP":
            if not self.stack:
                raise BadPickle("an opcode finds the stack empty")
            self.stack.pop()
        elif op == "POP_MARK":
            self.group()
        elif op not in ("PROTO", "FRAME", "READONLY_BUFFER"):
            raise BadPickle(f"opcode {op} is not read")


_PUSH = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "FLOAT",
        "BINFLOAT",
    ]
)
_MAKE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": Table,
    "EMPTY_SET": list,
    "MARK": lambda: MARK,
}
_GROUP: dict[str, Callable[[list[Any]], Any]] = {
    "LIST": list,
    "TUPLE": tuple,
    "FROZENSET": list,
    "DICT": lambda values: Table(_paired(values)),
}


def _paired(values: list[Any]) -> list[tuple[Any, Any]]:
    if len(values) % 2:
        raise BadPickle("a dict has a key without a value")
    return list(zip(values[::2], values[1::2], strict=True))


def _called(func: Any, args: Any) -> Any:
    """A record of the call; an ordered dict, whose call means nothing else, as its pairs."""
    if isinstance(func, Global) and (func.module, func.name) == ("collections", "OrderedDict"):
        given = args[0] if isinstance(args, tuple) and args else None
        if isinstance(given, list):
            return Table([tuple(pair) for pair in given if isinstance(pair, (list, tuple)) and len(pair) == 2])
        return given if isinstance(given, Table) else Table()
    return Call(func, args)


def _append(target: Any, values: list[Any]) -> None:
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, Call):
        target.items.extend(values)
    else:
        raise BadPickle("values are appended to what is no list")


def _set(target: Any, values: list[Any]) -> None:
    if isinstance(target, (Table, Call)):
        target.pairs.extend(_paired(values))
    else:
        raise BadPickle("items are set in what is no dict")
