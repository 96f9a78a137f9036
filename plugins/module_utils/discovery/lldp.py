# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Listen to LLDP on a machine's own NICs, without a daemon: the switch and the port that each is connected to.

IEEE 802.1AB, clause 8: type-length-values with 7 bits of type and 9 of length. Nothing is sent.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import Neighbour

# IEEE 802.1AB, 7.1 and 7.4: the group address of the nearest bridge, and the Ethertype.
GROUP, ETHERTYPE = bytes.fromhex("0180c200000e"), 0x88CC
# linux/if_packet.h and linux/socket.h.
SOL_PACKET, ADD_MEMBERSHIP, MULTICAST = 263, 1, 0
HEADER_BYTES, FRAME_BYTES = 14, 9216
END, PORT_ID, TTL, PORT_DESCRIPTION, SYSTEM_NAME, CAPABILITIES = 0, 2, 3, 4, 5, 7
# Table 8-3 (a MAC address says nothing about the port's place), and table 8-4 (MAC bridge, router).
MAC_ADDRESS, SWITCHES = 3, 0b10100


def parse(frame: bytes) -> tuple[Neighbour, bool] | None:
    """Return the neighbour of a frame's sender, and whether it is a switch; None for a frame that names none."""
    if struct.unpack_from("!H", frame.ljust(HEADER_BYTES, b"\0"), 12)[0] != ETHERTYPE:
        return None
    device, ports, described, is_switch, offset = "", [], "", False, HEADER_BYTES
    while offset + 2 <= len(frame):
        head = struct.unpack_from("!H", frame, offset)[0]
        kind, value = head >> 9, frame[offset + 2 : offset + 2 + (head & 0x1FF)]
        offset += 2 + (head & 0x1FF)
        if kind == END or offset > len(frame):
            break
        if kind == TTL and value[:2] == b"\0\0":
            return None  # the neighbour is leaving
        if kind == PORT_ID and value[:1] != bytes([MAC_ADDRESS]):
            ports = [_text(value[1:])]
        elif kind == PORT_DESCRIPTION:
            described = _text(value)
        elif kind == SYSTEM_NAME:
            device = _text(value)
        elif kind == CAPABILITIES and len(value) >= 4:
            is_switch = bool(struct.unpack_from("!H", value, 2)[0] & SWITCHES)
    ports = list(dict.fromkeys(filter(None, (*ports, described))))
    return (Neighbour(device, tuple(ports)), is_switch) if device else None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()


def listen(names: Iterable[str], seconds: float) -> dict[str, Neighbour]:
    """Return the neighbours by interface that were heard in this time. An interface that cannot be opened has none.

    Where a port has several neighbours, such as a BMC that shares it, the switch is taken.
    """
    heard: dict[str, Neighbour] = {}
    switches: set[str] = set()
    end_s = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        sockets: dict[int, tuple[socket.socket, str]] = {}
        for name in names:
            with contextlib.suppress(OSError):
                receiver = stack.enter_context(_open(name))
                sockets[receiver.fileno()] = (receiver, name)
        while time.monotonic() < end_s:
            for number in select.select(list(sockets), [], [], max(end_s - time.monotonic(), 0))[0]:
                receiver, name = sockets[number]
                try:
                    parsed = parse(receiver.recv(FRAME_BYTES))
                except OSError:  # the interface is down for a moment
                    continue
                if parsed and (parsed[1] or name not in switches):
                    heard[name] = parsed[0]
                    switches.update([name] if parsed[1] else [])
    return heard


def _open(name: str) -> socket.socket:
    receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    try:
        receiver.bind((name, ETHERTYPE))
        member = struct.pack("IHH8s", socket.if_nametoindex(name), MULTICAST, len(GROUP), GROUP)
        receiver.setsockopt(SOL_PACKET, ADD_MEMBERSHIP, member)
    except OSError:
        receiver.close()
        raise
    return receiver
