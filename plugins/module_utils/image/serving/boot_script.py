# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""iPXE's scripts: an image's script boots the image, and a node's script finds the node's image.

A node's script names the servers. The image's script names none: it requests files by relative paths, from the server
that it came from. Every failure returns to the node's script, which tries the next server, with increasing pauses.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import (
    checked_digest,
    checked_name,
    checked_node,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.kernel_arguments import (
    ARGUMENT,
    MOST_ARGUMENT_BYTES,
    RESERVED_ARGUMENTS,
    wrong_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Manifest

# An address and not a name, since the first stage has no resolver. Only http, since digest and signature verify what is
# fetched.
ADDRESS = r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
SERVER = re.compile(rf"http://{ADDRESS}(:\d{{1,5}})?(/[A-Za-z0-9._~-]+)*")
MAC = re.compile(r"(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}")
# IFNAMSIZ of linux/if.h is 16 with the closing NUL. dnsmasq and systemd-networkd read '*' as a pattern.
INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
DHCP = "dhcp"
# First stages that know no statement read the script's lines about NICs if the command line has this.
NICS_ARGUMENT = "sailloft.nics=1"
# The name of the image that machines boot that are no nodes.
INSPECTION = "inspection"
INITRD = "initrd=first-stage"
# The scripts set the first stage's own arguments. These are the only ones of them that a node may set.
OWN_ARGUMENT_ALLOWED = "sailloft.reboot_after_s="
DEBUG_ARGUMENT = "sailloft.debug=1"
SECONDS = re.compile(r"[1-9][0-9]{0,8}")
# The part of the command line that the image's arguments leave: Linux cuts it off at 2048 bytes, including the zero at
# its end (MOST_ARGUMENT_BYTES has the source).
NODE_BYTES = 2047 - MOST_ARGUMENT_BYTES
# The text around the values: "initrd=first-stage", the names of settings, the image's digest, BOOTIF.
FIXED_BYTES = 192
# The first pause between two rounds over all servers is 1 to 8 s, depending on the node; it doubles DOUBLED times.
FIRST_PAUSES_S = 8
DOUBLED = 4
# The time that iPXE waits for a server that sends nothing.
TIMEOUT_MS = 20000


def image_script(manifest: Manifest, digest: str) -> str:
    """Return the text of an image's boot.ipxe. Raises ImageError."""
    checked_digest(digest, f"image {manifest.name}")
    settings = boot_words(digest, "${servers}", "${node}", "${report}", "${mac:hexhyp}")
    kernel_arguments = " ".join((INITRD, *manifest.kernel_arguments, "${node_args}", *settings))
    return f"""#!ipxe
# image {manifest.name}, {manifest.distribution} {manifest.suite}, kernel {manifest.kernel.version}
echo ${{node}}: image {manifest.name} {digest}
kernel --timeout {TIMEOUT_MS} ../../blobs/{manifest.kernel.sha256} {kernel_arguments} || goto failed
initrd --timeout {TIMEOUT_MS} --name first-stage ../../blobs/{manifest.first_stage.sha256} || goto failed
boot || goto failed
:failed
imgfree
exit 1
"""


def boot_words(digest: str, servers: str, node: str, report: str, mac: str) -> list[str]:
    """Return the words of the command line for the first stage; ``servers`` with commas, ``mac`` with hyphens."""
    values = (f"image={digest}", f"servers={servers}", f"node={node}", f"report={report}")
    return [*(f"sailloft.{value}" for value in values), f"BOOTIF=01-{mac}"]


def sealed_words(digest: str, name: str = "") -> list[str]:
    """Return the words for the first stage of a command line that is signed with the kernel of the image ``name``."""
    arguments = [f"sailloft.image={digest}", "sailloft.signed=1"]
    return [*arguments, "sailloft.inspect=1"] if name == INSPECTION else arguments


def target_path(channel: str | None, digest: str | None, subject: str) -> str:
    """Return the path in a store of the script that boots the channel or the image.

    Raises ImageError unless exactly one of them is given.
    """
    if (channel is None) == (digest is None):
        raise ImageError("needs either a channel or a digest", "say which image it boots", subject=subject)
    if channel is not None:
        return f"channels/{checked_name(channel, 'channel')}.ipxe"
    return f"images/{checked_digest(digest, subject)}/boot.ipxe"


def node_script(
    node: str,
    mac: str,
    target: str,
    servers: Sequence[str],
    arguments: Sequence[str],
    report: str = "",
    nics: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the text of a node's nodes/MAC.ipxe.

    ``target`` is a result of ``target_path``; ``report`` is the URL for reports, or empty; ``nics`` are as in
    ``nic_lines``. The first server and the lengths of the pauses depend on the node. Raises ImageError.
    """
    subject = f"node {node}"
    checked_node(node)
    checked_mac(mac, subject)
    for url in (*servers, *([report] if report else [])):
        checked_server(url, subject)
    if not servers:
        raise ImageError("no servers are given", "give at least one, as http://ADDRESS", subject=subject)
    for argument in arguments:
        _check_argument(argument, subject)
    lines = nic_lines(nics, subject)
    text = " ".join([*arguments, *([NICS_ARGUMENT] if lines else [])])
    size_bytes = FIXED_BYTES + len(text) + len(",".join(servers)) + len(node) + len(report)
    if size_bytes > NODE_BYTES:
        raise ImageError(
            f"its kernel arguments, servers and report take {size_bytes} bytes of the kernel's command line",
            f"remove some, the maximum is {NODE_BYTES} bytes",
            subject=subject,
        )
    number = int.from_bytes(hashlib.sha256(node.encode()).digest()[:4], "big")
    first = number % len(servers)
    pause_s = 1 + number // len(servers) % FIRST_PAUSES_S
    tries = "".join(
        f"chain --autofree --timeout {TIMEOUT_MS} {url}/{target} ||\n" for url in (*servers[first:], *servers[:first])
    )
    return f"""#!ipxe
# node {node}
{"".join(f"# nic {line}{chr(10)}" for line in lines)}set node {node}
set servers {",".join(servers)}
set report {report}
set node_args {text}
set pause:int32 {pause_s}
:again
{tries}echo {node}: no server boots it by {target}, trying again in ${{pause}} s
sleep ${{pause}}
iseq ${{pause}} {pause_s << DOUBLED} || inc pause ${{pause}}
goto again
"""


def nic_lines(nics: Sequence[Mapping[str, Any]], subject: str) -> list[str]:
    """Return "NIC ADDRESS [GATEWAY]" of each NIC, for the first stage. Raises ImageError.

    A NIC has mac or name, address (with its prefix length, or "dhcp") and, with an address, it may have gateway.
    """
    lines: dict[str, str] = {}
    for nic in nics:
        mac, name, address, gateway = (nic.get(key) or "" for key in ("mac", "name", "address", "gateway"))
        if bool(mac) == bool(name):
            raise ImageError(
                f"NIC {dict(nic)} has not exactly one of mac and name", "give one of them", subject=subject
            )
        shown = f"{subject}: NIC {mac or name}"
        key = checked_mac(mac, shown).replace("-", ":") if mac else name
        if name and not INTERFACE.fullmatch(str(name)):
            raise ImageError("the name is not that of an interface", "give it as 'ip link' shows it", subject=shown)
        if key in lines:
            raise ImageError("is listed twice", "give each NIC one address", subject=shown)
        lines[key] = " ".join(filter(None, (key, *_addresses(address, gateway, shown))))
    return list(lines.values())


def stated_nics(mac: str, nics: Sequence[Mapping[str, Any]], subject: str) -> list[str]:
    """Return the lines about all NICs that the booted node configures; ``mac``, with colons, is of the one that boots.

    That one uses DHCP unless it is among ``nics``. Raises ImageError.
    """
    lines = nic_lines(nics, subject)
    return lines if any(line.split()[0] == mac for line in lines) else [f"{mac} {DHCP}", *lines]


def _addresses(address: Any, gateway: Any, subject: str) -> tuple[str, str]:
    """Return address and gateway in their canonical forms. Raises ImageError."""
    if address == DHCP:
        if gateway:
            raise ImageError("has a gateway, which the DHCP server gives", "remove gateway", subject=subject)
        return DHCP, ""
    try:
        interface = ipaddress.ip_interface(address)
        router = ipaddress.ip_address(gateway) if gateway else None
    except ValueError as error:
        raise ImageError(str(error), "give an address like 10.1.0.5/24, or dhcp", subject=subject) from error
    if "/" not in str(address) or not isinstance(address, str):
        raise ImageError(f"address {address!r} has no prefix length", "write it like 10.1.0.5/24", subject=subject)
    if router is not None and (router not in interface.network or router == interface.ip):
        raise ImageError(
            f"gateway {router} is not another address of {interface.network}", "correct one of them", subject=subject
        )
    return str(interface), str(router or "")


def checked_server(url: str, subject: str) -> str:
    """Return ``url`` unchanged. Raises ImageError if a first stage could not fetch from it."""
    if not isinstance(url, str) or not SERVER.fullmatch(url):
        raise ImageError(
            f"{url!r} is not the URL of a server",
            "give http://ADDRESS, with an IPv4 address and no '/' at the end",
            subject=subject,
        )
    address, _colon, port = url.split("/")[2].partition(":")
    if address.startswith("0.") or (port and not 1 <= int(port) <= 65535):
        raise ImageError(
            f"no node can reach {url}", "give the address and port that the server listens on", subject=subject
        )
    return url


def checked_mac(mac: str, subject: str) -> str:
    """Return ``mac`` in the form of iPXE's hexhyp. Raises ImageError if it is not the MAC address of one machine."""
    text = mac.lower() if isinstance(mac, str) else ""
    if not MAC.fullmatch(text) or int(text[:2], 16) & 1 or not text.strip("0:-"):
        # YAML reads pairs of digits below 60 as a number of base 60.
        quoted = "" if isinstance(mac, str) else ", in quotes"
        remedy = f"give six pairs, like aa:bb:cc:dd:ee:ff{quoted}"
        raise ImageError(f"{mac!r} is not the MAC address of a NIC", remedy, subject=subject)
    return text.replace(":", "-")


def _check_argument(argument: str, subject: str) -> None:
    if not isinstance(argument, str) or not ARGUMENT.fullmatch(argument) or "${" in argument:
        raise ImageError(
            f"kernel argument {argument!r} cannot be passed on by iPXE",
            "use printable ASCII without spaces, quotes, backslashes and ${, starting with a letter, digit or '_'",
            subject=subject,
        )
    allowed = argument == DEBUG_ARGUMENT or argument.startswith(OWN_ARGUMENT_ALLOWED)
    if argument.startswith(RESERVED_ARGUMENTS) and not allowed:
        raise ImageError(f"kernel argument {argument!r} is set by its script", "remove it", subject=subject)
    reason = wrong_reason(argument)
    if reason:
        raise ImageError(f"kernel argument {argument!r} {reason}", "remove it", subject=subject)
    # The first stage compares it with numbers; if it were a word, the node would reboot at each first pause.
    if argument.startswith(OWN_ARGUMENT_ALLOWED) and not SECONDS.fullmatch(argument[len(OWN_ARGUMENT_ALLOWED) :]):
        raise ImageError(
            f"kernel argument {argument!r} is not in whole seconds", "give a number, like 600", subject=subject
        )
