# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses of VFs, derived from the physical function's own, so that they are the same at every boot. Pure.

A VF without an address gets a random one from its driver at each start of its guest.

    address = SHA-256("IDENTITY/INDEX"), its first 6 bytes (MAC) or 8 bytes (GUID),
              with the first byte's lower half replaced by 2

IDENTITY is the permanent MAC of the physical function, or the last 8 bytes of an InfiniBand interface's hardware
address (its port GUID; the bytes before it change), in lower case with colons. INDEX counts from 0. The lower half 2
makes a locally administered unicast address of the quadrant that is free for administrators (IEEE 802c-2017, "AAI"; in
an EUI-64 the bits mean the same). A MAC has 44 bits left: of 100,000 VFs in one network two have the same MAC with a
probability of 0.03% (n^2 / 2^45).
"""

from __future__ import annotations

from hashlib import sha256

MAC_BYTES = 6
GUID_BYTES = 8
# The lower half of the first byte: unicast, local, administratively assigned.
LOCAL = 0x02


def mac(pf_mac: str, index: int) -> str:
    """Return the MAC of VF ``index`` of the physical function whose permanent MAC is ``pf_mac``."""
    return _derived(pf_mac, index, MAC_BYTES)


def guid(pf_hardware_address: str, index: int) -> str:
    """Return the GUID of VF ``index`` of an InfiniBand physical function, from its hardware address of 20 bytes."""
    return _derived(":".join(pf_hardware_address.split(":")[-GUID_BYTES:]), index, GUID_BYTES)


def _derived(identity: str, index: int, length: int) -> str:
    first, *remaining = sha256(f"{identity.lower()}/{index}".encode()).digest()[:length]
    return ":".join(f"{byte:02x}" for byte in (first & 0xF0 | LOCAL, *remaining))
