"""A drone's parameters and log blocks, as its host reads and writes them."""

from __future__ import annotations

import dataclasses
import errno
import struct
from collections.abc import Callable, Iterator, Mapping

from legoswarm.deploy.sitl import crtp

BLOCK_BYTES, BLOCKS = 26, 16
_EARLY = 1e-3  # s by which a block may be sent before its time


class Parameters:
    """Named numbers that the host may read, and write unless they are read-only."""

    def __init__(self, contents: crtp.Contents, values: Mapping[str, int]):
        self.contents = contents
        self.values: dict[str, int | float] = {name: values.get(name, 0) for name, _ in contents.entries}

    def answer(self, channel: int, request: bytes) -> tuple[str | None, bytes]:
        """Read (channel 1) or write (2) a parameter; return the name of one that was written, and the answer."""
        at = int.from_bytes(request[:2], "little")
        if len(request) < 2 or at >= len(self.contents.entries):
            return None, crtp.packet(2, channel, request[:2] + bytes([errno.ENOENT]))
        name, kind = self.contents.entries[at]
        form = "<" + crtp.PARAMETER_FORMATS[kind & 0x0F]
        written = channel == 2 and not kind & crtp.READ_ONLY and len(request) == 2 + struct.calcsize(form)
        if written:
            (self.values[name],) = struct.unpack_from(form, request, 2)
        head = request[:2] + b"\0" * (channel == 1)
        return name if written else None, crtp.packet(2, channel, head + struct.pack(form, self.values[name]))


@dataclasses.dataclass
class _Block:
    """A block of log variables, by type and place, and when it is sent."""

    variables: tuple[tuple[int, int], ...] = ()
    period: float = 0.0  # s; 0: not started
    due: float = 0.0

    @property
    def form(self) -> str:
        """Return how its values are packed."""
        return "<" + "".join(crtp.LOG_FORMATS[kind] for kind, _ in self.variables)


class LogBlocks:
    """The variables that the host wants to hear of again and again."""

    def __init__(self, contents: crtp.Contents):
        self.contents = contents
        self._blocks: dict[int, _Block] = {}

    def order(self, request: bytes, now: float) -> bytes | None:
        """Make, extend, start, stop or delete a block, as a request on channel 1 says; return the answer."""
        if request[:1] == b"\5":
            self._blocks.clear()
            return crtp.packet(5, 1, b"\5\0\0")
        if len(request) < 2:
            return None
        code, at = request[:2]
        return crtp.packet(5, 1, bytes([code, at, self._do(code, at, request[2:], now)]))

    def _do(self, code: int, at: int, data: bytes, now: float) -> int:
        """Carry an order out; return the number of the error, or 0."""
        if code == 6 and at in self._blocks:
            return errno.EEXIST
        if code == 6:
            return self._extend(at, _Block(), data)
        if (block := self._blocks.get(at)) is None:
            return errno.ENOENT
        match code:
            case 7:
                return self._extend(at, block, data)
            case 2:
                del self._blocks[at]
            case 3 if data:
                block.period, block.due = data[0] / 100, now + data[0] / 100
            case 4:
                block.period = 0.0
            case _:
                return errno.ENOEXEC
        return 0

    def _extend(self, at: int, block: _Block, data: bytes) -> int:
        """Put variables into a block: a type and a place for each of them."""
        more = [(kind & 0x0F, variable) for kind, variable in struct.iter_unpack("<BH", data[: len(data) // 3 * 3])]
        if any(kind not in crtp.LOG_FORMATS or variable >= len(self.contents.entries) for kind, variable in more):
            return errno.ENOENT
        block = dataclasses.replace(block, variables=(*block.variables, *more))
        if struct.calcsize(block.form) > BLOCK_BYTES:
            return errno.E2BIG
        if at not in self._blocks and len(self._blocks) >= BLOCKS:
            return errno.ENOMEM
        self._blocks[at] = block
        return 0

    def packets(
        self, now: float, measure: Callable[[float], Mapping[str, int | float]], clock: float = 0.0
    ) -> Iterator[bytes]:
        """Yield the packets of the blocks that are to be sent, dated by a clock that is off by so much."""
        due = {at: block for at, block in self._blocks.items() if block.period and now >= block.due - _EARLY}
        values = measure(now) if due else {}
        for at, block in due.items():
            block.due = max(block.due, now - block.period) + block.period
            logged = (values[self.contents.entries[variable][0]] for _, variable in block.variables)
            when = (int((now + clock) * 1000) & 0xFFFFFF).to_bytes(3, "little")
            yield crtp.packet(5, 2, bytes([at]) + when + struct.pack(block.form, *logged))
