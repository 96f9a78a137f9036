# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet without machines: each node is a directory, and its BMC is the emulator of sushy-tools.

Everything that a playbook talks to is real, except the boot: a system that is reset boots the image that the statement
in the boot server's store names, unless ``fates`` says otherwise.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import boot_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

ENTER = """\
# enter NODE COMMAND: the command, with the node's files over this machine's; of a boot server, its store over boot01's.
set -e
if [ -d "$1/store" ]; then
    mount --bind "$1/store" "${1%/*}/store"
    exec sh -c "$2"
fi
mount -t tmpfs none /run
mkdir -p /run/sailloft
if [ -e "$1/boot.json" ]; then cp "$1/boot.json" /run/sailloft/boot.json; fi
awk -v now="$(date +%s.%N)" '{ printf "%.2f 0.00\\n", now - $1 }' "$1/started" > /run/uptime
mount --bind /run/uptime /proc/uptime
mount --bind "$1/cmdline" /proc/cmdline
# This machine's host key is none of the node's.
if [ -d /etc/ssh ]; then mount -t tmpfs none /etc/ssh; fi
mount --bind "$1/osrelease" /proc/sys/kernel/osrelease
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
PATH="$1/bin:$PATH" exec sh -c "$2"
"""

SYSTEMCTL = """#!/bin/sh
case "$1" in
show) printf 'SystemState=running\\nUserspaceTimestampMonotonic=2000000\\nFinishTimestampMonotonic=9000000\\n' ;;
list-units) cat {node}/failed_units ;;
esac
"""


def boot(fleet: Path, node: str) -> None:
    """Act as a node that is powered on.

    fates.json can set its fate: {"NODE DIGEST": "lost", "ill", "sick", "mute", "hung" or "liar"}.
    """
    store = Store(str(fleet / "store"))
    fates = json.loads((fleet / "fates.json").read_text())
    script = channels.node_scripts(store)[mac(node).replace(":", "-")]
    followed = channels.FOLLOWS.findall(script)
    stated = read_statement(store)
    row = stated.nodes[mac(node)]
    digest = stated_image(stated, node, kernel_of(store, node))
    assert (row.name, bool(row.channel)) == (node, bool(followed))
    fate = fates.get(f"{node} {digest}", "")
    with (fleet / "boots").open("a") as stream:
        stream.write(f"{node} {digest[:12]} {'channel' if followed else 'pin'}\n")
    if fate == "liar":
        return
    folder = fleet / node
    (folder / "up").unlink(missing_ok=True)
    if fate == "lost":
        return
    image = store.manifest(digest)
    node_arguments = re.search(r"^set node_args (.*)$", script, re.MULTILINE).group(1)
    line = " ".join(
        [
            "initrd=first-stage",
            *image.kernel_arguments,
            *node_arguments.split(),
            *boot_words(digest, ",".join(row.servers), node, row.report, mac(node).replace(":", "-")),
        ]
    )
    report = {
        "format": "sailloft-boot/1",
        "node": node,
        "image": digest,
        "name": image.name,
        "kernel": image.kernel.version,
        "arguments": line,
        "layers": [
            {"name": layer.name, "sha256": layer.sha256, "verity": True, "root_sha256": layer.verity.root_sha256}
            for layer in image.layers
        ],
        "server": row.servers[0],
        "writable_bytes": image.writable_mib << 20,
        "phases": [{"name": "network", "start_s": 0.5, "end_s": 1.5}, {"name": "layers", "start_s": 1.5, "end_s": 2}],
        "warnings": [],
        "host_keys": [],
        "mac": mac(node),
        "statement": stated.sequence,
        "rollback": "expiry",
        "clock": "",
        "report_url": row.report,
        "servers": row.servers,
        "caches": row.caches,
        "nics": row.nics,
        "files": row.files,
    }
    (folder / "boot.json").write_text(json.dumps(report))
    (folder / "cmdline").write_text(line + "\n")
    (folder / "osrelease").write_text(image.kernel.version + "\n")
    (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    (folder / "started").write_text(f"{time.time():.3f}\n")
    (folder / "failed_units").write_text("gpu.service loaded failed failed GPUs\n" if fate == "ill" else "")
    (folder / "sick").write_text("yes" if fate == "sick" else "no")
    broken = {"mute": "#!/bin/sh\nexit 1\n", "hung": "#!/bin/sh\nexec sleep 60\n"}
    (folder / "bin/systemctl").write_text(broken.get(fate) or SYSTEMCTL.format(node=folder))
    (folder / "bin/systemctl").chmod(0o755)
    (folder / "up").touch()


def read_statement(store: Store) -> statement.Statement:
    """Return the store's statement."""
    return statement.load(store.contents("nodes", statement.STATEMENT), "statement")


def kernel_of(store: Store, node: str) -> str:
    """Return the digest of the image whose kernel iPXE fetches for the node from this store."""
    script = channels.node_scripts(store)[mac(node).replace(":", "-")]
    named = [channels.known(store, name).digest for name in channels.FOLLOWS.findall(script)]
    return (named or channels.PINS.findall(script))[0]


def stated_image(stated: statement.Statement, node: str, kernel: str) -> str:
    """Return the digest of the image that the first stage in this kernel boots, as its function of that name does."""
    row = stated.nodes[mac(node)]
    is_previous = kernel == row.previous and time.time() < statement.seconds(row.until)
    return row.previous if is_previous else row.image


def mac(node: str) -> str:
    """Return the MAC address of bmNN."""
    return f"52:54:00:00:00:{node[-2:]}"


def system(node: str) -> str:
    """Return the id of bmNN's system in the BMC."""
    return f"5a11f017-0000-4000-8000-0000000000{node[-2:]}"


def make_node(fleet: Path, node: str) -> None:
    """Make a node that is off."""
    folder = fleet / node
    (folder / "bin").mkdir(parents=True)


def serve(fleet: Path) -> None:
    """Run the fleet's BMC with the emulator's command-line arguments.

    The emulator's systems without libvirt have no BIOS; these have two settings, which take effect at the next boot
    unless fates.json says {"NODE bios": "forgets"}.
    """
    from sushy_tools.emulator import main
    from sushy_tools.emulator.resources.systems.fakedriver import FakeDriver

    def set_power_state(self, identity, state):
        name = self._get(identity)["name"]
        pending = self._get(identity).get("pending") or {}
        if json.loads((fleet / "fates.json").read_text()).get(f"{name} bios") == "forgets":
            pending = {}
        boot(fleet, name)
        self._update(identity, power_state="On", bios={**self.get_bios(identity), **pending}, pending={})

    def get_bios(self, identity):
        return self._get(identity).get("bios") or {"ProcTurboMode": "Enabled", "NicBoot1": "NetworkBoot"}

    def set_bios(self, identity, attributes):
        self._update(identity, pending=attributes)

    FakeDriver.set_power_state = set_power_state
    FakeDriver.get_bios, FakeDriver.set_bios = get_bios, set_bios
    main.main()


def start_bmc(fleet: Path, nodes: list[str], port: int) -> subprocess.Popen:
    """Start the emulator as a process with its own certificate (bmc.pem); the caller stops the process."""
    openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bmc"
    openssl += f" -addext subjectAltName=IP:127.0.0.1 -keyout {fleet}/bmc.key -out {fleet}/bmc.pem"
    subprocess.run(openssl.split(), check=True, capture_output=True)
    tls = f"SUSHY_EMULATOR_SSL_CERT = '{fleet}/bmc.pem'\nSUSHY_EMULATOR_SSL_KEY = '{fleet}/bmc.key'\n"
    systems = [
        {"uuid": system(node), "name": node, "power_state": "On", "external_notifier": False, "nics": []}
        for node in nodes
    ]
    config = fleet / "bmc.py"
    config.write_text(f"{tls}SUSHY_EMULATOR_FAKE_SYSTEMS = {systems!r}\nSUSHY_EMULATOR_STATE_DIR = {str(fleet)!r}\n")
    with (fleet / "bmc.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, __file__, "--fake", "--config", str(config), "-i", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "FLEET": str(fleet), "PYTHONPATH": str(Path(__file__).parents[3] / ".collections")},
        )


if __name__ == "__main__":
    serve(Path(os.environ["FLEET"]))
