"""What a connection's peer has not taken yet."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios

__all__ = ["untaken_bytes"]


def untaken_bytes(transport: asyncio.Transport) -> int:
    """Bytes written and not taken: the transport's and, where it tells, those the kernel holds.

    The kernel holds megabytes for a slow reader, who takes from there long before anything moves in the transport.
    """
    kernels = bytearray(4)
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, kernels)
    except (OSError, AttributeError):
        return transport.get_write_buffer_size()
    return transport.get_write_buffer_size() + int.from_bytes(kernels, sys.byteorder)
