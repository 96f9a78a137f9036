# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Many diskless machines that request addresses at once, on a network interface or behind DHCP relays.

``python dhcp_clients.py <REQUEST.json >ANSWER.json`` runs in a network namespace. The request has interface, server
(its address), own (the address of this side), tries, transfers (the number of TFTP transfers to keep open at once) and
clients. Each client has mac, stages (keys of ASKS), giaddr (of its relay, or null) and renews (the address that it
already has, or null). The answer has a list for each client, with one item per stage: the fields of the last message
that it got; kind is 0 if it got none.
"""

from __future__ import annotations

import collections
import json
import select
import socket
import struct
import sys
import time

# The options that each client sends: vendor class (60), architecture (93), iPXE's own option (175), client identifier
# (61). Firmware follows RFC 4578; the others are an EDK2 that boots by HTTP, iPXE, and BusyBox's udhcpc with the first
# stage's options.
ASKS = {
    "bios": ("PXEClient:Arch:00000:UNDI:002001", 0, False, False),
    "efi": ("PXEClient:Arch:00007:UNDI:003001", 7, False, False),
    "efi-9": ("PXEClient:Arch:00009:UNDI:003016", 9, False, False),
    "arm64": ("PXEClient:Arch:00011:UNDI:003001", 11, False, False),
    "http": ("HTTPClient:Arch:00016:UNDI:003001", 16, False, False),
    "http-arm64": ("HTTPClient:Arch:00019:UNDI:003001", 19, False, False),
    "ipxe": ("PXEClient:Arch:00007:UNDI:003010", 7, True, False),
    "first-stage": ("udhcp 1.35.0", None, False, True),
}
MAGIC = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6
AT_ONCE = 200
AGAIN_S = 2


def options(*given: tuple[int, bytes]) -> bytes:
    return MAGIC + b"".join(bytes([code, len(data)]) + data for code, data in given) + b"\xff"


def message(
    kind: int, xid: int, mac: bytes, ask: str, giaddr: str | None, ciaddr: str | None = None, more: tuple = ()
) -> bytes:
    """Return a client's message; if it has a relay, in the form in which the relay forwards it."""
    vendor, architecture, ipxe, identifier = ASKS[ask]
    places = (address(ciaddr), bytes(4), bytes(4), address(giaddr))
    head = struct.pack("!4BIHH4s4s4s4s", 1, 1, 6, 1 if giaddr else 0, xid, 0, 0, *places)
    asked = [(53, bytes([kind])), (55, bytes([1, 3, 6, 12, 15, 28, 43, 60, 66, 67])), (60, vendor.encode()), *more]
    if architecture is not None:
        asked += [(93, struct.pack("!H", architecture)), (94, b"\x01\x03\x10"), (97, b"\0" + mac + bytes(10))]
    if ipxe:
        asked += [(77, b"iPXE"), (175, b"\xb1\x05\x01\x1a\xf4\x10\x00\xeb\x03\x01\x00\x00")]
    if identifier:
        asked.append((61, b"\x01" + mac))
    return head + mac.ljust(16, b"\0") + bytes(192) + options(*asked)


def address(text: str | None) -> bytes:
    return socket.inet_aton(text) if text else bytes(4)


def read(data: bytes) -> dict:
    """Return an answer's fields, and its options by number."""
    found: dict[int, bytes] = {}
    at = 240
    while at < len(data) and data[at] != 255:
        if data[at] == 0:
            at += 1
            continue
        found[data[at]] = found.get(data[at], b"") + data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    text = {code: socket.inet_ntoa(found[code][:4]) if code in found else "" for code in (1, 3, 6, 54)}
    return {
        "xid": struct.unpack_from("!I", data, 4)[0],
        "kind": found.get(53, b"\0")[0],
        "address": socket.inet_ntoa(data[16:20]),
        "next_server": socket.inet_ntoa(data[20:24]),
        "file": (found.get(67) or data[108:236]).split(b"\0")[0].decode(),
        "netmask": text[1],
        "router": text[3],
        "name_server": text[6],
        "server": text[54],
        "vendor": found.get(60, b"").decode(),
        "message": found.get(56, b"").decode(errors="replace"),
    }


def frame(mac: bytes, payload: bytes) -> bytes:
    """Return a broadcast from a machine without an address; a UDP checksum of 0 means none (RFC 768)."""
    udp = struct.pack("!4H", 68, 67, 8 + len(payload), 0) + payload
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return b"\xff" * 6 + mac + b"\x08\x00" + head[:10] + struct.pack("!H", total) + head[12:] + udp


class Machines:
    """All clients, a limited number of which are active at once; each goes through its stages."""

    def __init__(self, request: dict) -> None:
        self.server = request["server"]
        self.tries = request["tries"]
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.wire.bind((request["interface"], 0))
        self.relays: dict[str, socket.socket] = {}
        self.waiting = collections.deque(enumerate(request["clients"]))
        self.answers: list[list[dict]] = [[] for _client in request["clients"]]
        self.open: dict[int, dict] = {}
        self.next = 1
        # A client that has its address from another server uses a proxy's second port (PXE 2.1, section 2.2.3).
        self.other_port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.other_port.bind((request["own"], 68))
        self.own = request["own"]
        for client in request["clients"]:
            if client["giaddr"] and client["giaddr"] not in self.relays:
                relay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                relay.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
                relay.bind((client["giaddr"], 67))
                self.relays[client["giaddr"]] = relay

    def run(self) -> list[list[dict]]:
        while self.waiting or self.open:
            while self.waiting and len(self.open) < AT_ONCE:
                number, client = self.waiting.popleft()
                self.ask(number, client, REQUEST if client["renews"] else DISCOVER)
            for ready in select.select([self.wire, self.other_port, *self.relays.values()], [], [], 0.1)[0]:
                self.hear(ready)
            now = time.monotonic()
            for job in [job for job in self.open.values() if now - job["sent"] > AGAIN_S]:
                job["tries"] += 1
                if job["tries"] >= self.tries:
                    del self.open[job["xid"]]
                    self.answers[job["number"]].append({"kind": 0})
                else:
                    self.send(job)
        return self.answers

    def ask(self, number: int, client: dict, kind: int, offer: dict | None = None) -> None:
        xid, self.next = self.next, self.next + 1
        mac = bytes.fromhex(client["mac"].replace(":", ""))
        stage = client["stages"][len(self.answers[number])]
        proxied = offer and offer["address"] == "0.0.0.0"
        if proxied:
            text = message(kind, xid, mac, stage, None, self.own)
        else:
            more = ((50, address(offer["address"])), (54, address(offer["server"]))) if offer else ()
            text = message(kind, xid, mac, stage, client["giaddr"], client["renews"], more)
        job = {"number": number, "client": client, "mac": mac, "text": text, "xid": xid, "tries": 0, "proxied": proxied}
        self.open[xid] = job
        self.send(job)

    def send(self, job: dict) -> None:
        job["sent"] = time.monotonic()
        relay = self.relays.get(job["client"]["giaddr"])
        if job["proxied"]:
            self.other_port.sendto(job["text"], (self.server, 4011))
        elif relay:
            relay.sendto(job["text"], (self.server, 67))
        else:
            self.wire.send(frame(job["mac"], job["text"]))

    def hear(self, ready: socket.socket) -> None:
        data = ready.recv(4096)
        if ready is self.wire:
            # The packet has Ethernet and IP headers without options, and its UDP port is that of the clients.
            if len(data) < 282 or data[23] != 17 or data[36:38] != b"\x00\x44":
                return
            data = data[42:]
        answer = read(data)
        job = self.open.pop(answer["xid"], None)
        if job is None:
            return
        number, client = job["number"], job["client"]
        # An offer of a proxy that names the file is complete; an offer to other UEFI clients refers to the proxy's
        # port.
        if answer["kind"] == OFFER and not (answer["address"] == "0.0.0.0" and answer["file"]):
            self.ask(number, client, REQUEST, answer)
            return
        self.answers[number].append(answer)
        if answer["kind"] == ACK and len(self.answers[number]) < len(client["stages"]):
            self.waiting.append((number, client))


def transfers(server: str, count: int, file: str) -> int:
    """Request a file ``count`` times at once, acknowledge nothing, and return how many transfers began."""
    begun = set()
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _each in range(count)]
    waits = select.poll()
    by_number = {each.fileno(): each for each in sockets}
    for each in sockets:
        waits.register(each, select.POLLIN)
    for _attempt in range(3):
        for number, each in by_number.items():
            if number not in begun:
                each.sendto(b"\x00\x01" + file.encode() + b"\0octet\0", (server, 69))
                time.sleep(0.0002)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and len(begun) < count:
            for number, _event in waits.poll(100):
                if by_number[number].recv(2048)[:2] == b"\x00\x03":
                    begun.add(number)
    return len(begun)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    began = time.monotonic()
    found = {"clients": Machines(asked).run()}
    found["seconds"] = time.monotonic() - began
    found["transfers"] = transfers(asked["server"], asked["transfers"], "ipxe.efi") if asked["transfers"] else 0
    json.dump(found, sys.stdout)
