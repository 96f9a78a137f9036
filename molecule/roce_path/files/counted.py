#!/usr/bin/python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Count the arriving RoCE packets (UDP 4791) by their ToS: counted.py DEVICE install|read.

The kernel counts them when they arrive, before software RoCE receives them. "read" prints the packets since "install":
{"ipv4": {"106": 600}, "ipv6": {}}.
"""

import json
import subprocess
import sys

PORT = 4791
PROTOCOLS = {"ip": "ipv4", "ipv6": "ipv6"}


def install(device: str) -> None:
    subprocess.run(["tc", "qdisc", "del", "dev", device, "clsact"], capture_output=True, check=False)  # an earlier one
    subprocess.run(["tc", "qdisc", "add", "dev", device, "clsact"], check=True)
    lines = [
        f"filter add dev {device} ingress protocol {protocol} pref {pref} handle {tos + 1:#x} "
        f"flower ip_proto udp dst_port {PORT} ip_tos {tos:#x}/0xff action pass"
        for pref, protocol in enumerate(PROTOCOLS, 1)
        for tos in range(256)
    ]
    subprocess.run(["tc", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def read(device: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {family: {} for family in PROTOCOLS.values()}
    output = subprocess.run(
        ["tc", "-s", "-j", "filter", "show", "dev", device, "ingress"], capture_output=True, text=True, check=True
    )
    for each in json.loads(output.stdout):
        options = each.get("options", {})
        if "handle" in options:
            packets = options["actions"][0]["stats"]["packets"]
            if packets:
                found[PROTOCOLS[each["protocol"]]][str(options["handle"] - 1)] = packets
    return found


if __name__ == "__main__":
    device, what = sys.argv[1:]
    if what == "install":
        install(device)
    else:
        print(json.dumps(read(device)))
