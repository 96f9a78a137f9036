#!/usr/bin/python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Send an exact number of packets with RoCE's headers: traffic.py ADDRESS STREAM...

A stream is TOS:PACKETS:BYTES:PER_SECOND. All streams run at the same time, each at its own rate; late packets are sent
immediately. The payload begins with a base transport header for queue pair 0, which software RoCE discards.
"""

import json
import socket
import sys
import time

PORT = 4791
HEADER = bytes([0xFF, 0, 0xFF, 0xFF]) + bytes(8)


class Stream:
    def __init__(self, address: str, text: str, number: int) -> None:
        self.tos, self.packets, self.bytes, self.per_second = map(int, text.split(":"))
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, self.tos)
        else:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.tos)
        self.socket.bind(("", 49152 + number))
        self.socket.connect((address, PORT))
        self.payload = HEADER + bytes(self.bytes - len(HEADER))
        self.sent = 0

    def due(self) -> float:
        """Return when the next packet is due, in seconds after the start."""
        return self.sent / self.per_second if self.sent < self.packets else float("inf")

    def send(self) -> None:
        self.socket.send(self.payload)
        self.sent += 1


def main() -> None:
    streams = [Stream(sys.argv[1], text, number) for number, text in enumerate(sys.argv[2:])]
    start = time.monotonic()
    while True:
        stream = min(streams, key=Stream.due)
        if stream.sent == stream.packets:
            break
        early = start + stream.due() - time.monotonic()
        if early > 0.001:
            time.sleep(early)
        stream.send()
    print(json.dumps({"sent": sum(each.sent for each in streams), "seconds": time.monotonic() - start}))


if __name__ == "__main__":
    main()
