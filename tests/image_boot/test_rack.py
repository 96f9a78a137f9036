# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A rack: a boot server and a cache from boot_servers.yml, and a node that node_scripts.yml lets boot from them.

Boot server and cache are rooms of this machine with the real dnsmasq and nginx, whose units a stand-in for systemctl
starts. The node, a machine of QEMU, has files of its own, and an image with the key of the debug shell.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from boot_images import EPOCH, INIT, Image, Parts, made_image
from boot_network import MAC, NODE, Node, stop
from boot_reports import BOOT_S, reported
from patience import scaled_s
from rooms import NETWORK, Rooms

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs, userland
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files, sign, statement

pytestmark = [pytest.mark.boot, pytest.mark.skipif(os.geteuid() != 0, reason="a room needs root (make image-boot)")]
GROUPS = {"boot_servers": ["boot1"], "boot_caches": ["cache1"]}
ADDRESSES = {"boot1": f"{NETWORK}.11", "cache1": f"{NETWORK}.12", NODE: f"{NETWORK}.31"}
SERVER, CACHE = (f"http://{ADDRESSES[name]}" for name in ("boot1", "cache1"))
STORE = "/srv/sailloft"
# The unit of dnsmasq's whole package.
SETUP = """
printf '%s\\n' '[Service]' Type=forking PIDFile=/run/dnsmasq/dnsmasq.pid \
'ExecStart=/usr/sbin/dnsmasq -x /run/dnsmasq/dnsmasq.pid -7 /etc/dnsmasq.d' >$root/etc/systemd/system/dnsmasq.service
mkdir -p $root/run/dnsmasq $root/etc/dnsmasq.d
# Ansible's backups keep attributes, which an overlay shows of its lower layer and does not set.
mount -t tmpfs tmpfs $root/etc/nginx
cp -r /etc/nginx/. $root/etc/nginx
"""
FILES = {
    "/etc/layer": {"content": "of the node\n"},
    "/etc/site/role.conf": {"content": "role = bm01\n", "mode": "0640", "owner": "nobody", "group": "daemon"},
    "/etc/empty": {"content": "", "mode": "0700"},
}
# What the booted node has of them, and of a debug shell: 08AE is its port.
SHOWN = """[Unit]
After=proof.service
[Service]
Type=oneshot
StandardOutput=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh -c 'cat /etc/site/role.conf; \
stat -c "FILE %%a %%U:%%G %%s %%n" /etc/layer /etc/site/role.conf /etc/empty; \
echo SHELLS $$(grep -s dropbear /proc/[0-9]*/comm; grep -o ":08AE 0" /proc/net/tcp /proc/net/tcp6); echo ALL IS SHOWN'
"""
STATES = ["FILE 644 root:root 12 /etc/layer", "FILE 640 nobody:daemon 12 /etc/site/role.conf"]
STATES += ["FILE 700 root:root 0 /etc/empty"]


class Rack:
    """The rooms, with a cable of the node at their bridge; it is the network of a Node."""

    def __init__(self, rooms: Rooms, folder: Path) -> None:
        self.rooms, self.folder = rooms, folder
        folder.mkdir()
        for command in ("tuntap add tap0 mode tap", "link set tap0 master rooms up"):
            subprocess.run(self.inside(["ip", *command.split()]), check=True)
        self.started: list[subprocess.Popen] = []

    def inside(self, command: list) -> list[str]:
        """Return the command, prefixed to run in the network of the bridge."""
        return ["nsenter", f"--target={self.rooms.bridge}", "--net", *map(str, command)]

    def start(self, command: list, log: Path) -> subprocess.Popen:
        """Start a command in this network."""
        with log.open("ab") as stream:
            self.started.append(
                subprocess.Popen(self.inside(command), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
            )
        return self.started[-1]

    def play(self, playbook: str, *options: str) -> dict[str, int]:
        """Run a playbook; return the number of changed tasks of each room."""
        status, output = self.rooms.play(playbook, *options)
        assert status == 0, output
        return self.rooms.changed(output)

    def give(self, files: dict[str, dict[str, str]], *arguments: str) -> None:
        """Let the node boot with these files of its own and these kernel arguments."""
        node = self.rooms.inventory["all"]["children"]["nodes"]["hosts"][NODE]
        node |= {"node_boot_files": files, "node_boot_kernel_arguments": [*arguments]}
        self.play("node_scripts.yml")

    def store(self, *names: str) -> Path:
        """Return a path in the boot server's store."""
        return Path(self.rooms.folder, "shared", *names)

    def files(self) -> Path:
        """Return the node's files in the store, by the digest in the statement."""
        stated = statement.load(self.store("nodes/statement").read_bytes(), "statement")
        return self.store("nodes", stated.nodes[MAC].files + node_files.SUFFIX)

    def cached(self, script: str, url: str = "") -> str:
        """Return what shell lines for each part of a blob that the cache has, $part, print; get a blob first."""
        if url:
            self.rooms.run("boot1", "busybox", "wget", "-q", "-O", "/dev/null", url)
        lines = f"find /var/cache/nginx/sailloft -type f | while read -r part; do {script}; done"
        return self.rooms.run("cache1", "sh", "-c", lines)

    def asked(self, room: str) -> list[str]:
        """Return the blobs that the node has asked of a room since the last call."""
        log = "/var/log/nginx/access.log"
        lines = [line.split() for line in self.rooms.run(room, "cat", log).splitlines()]
        self.rooms.run(room, "truncate", "-s", "0", log)
        return [words[6].rpartition("/")[2] for words in lines if words[0] == ADDRESSES[NODE] and "/blobs/" in words[6]]

    def events(self) -> list[dict[str, str]]:
        """Return the node's reports to the boot server since the last call."""
        log = "/var/log/nginx/sailloft-report.log"
        lines = self.rooms.run("boot1", "cat", log).splitlines()
        self.rooms.run("boot1", "truncate", "-s", "0", log)
        return [json.loads(line) for line in lines]

    def shell(self, key: str, command: str) -> tuple[int, str]:
        """Return the status and output of a command in the node's debug shell, called from the boot server."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "IdentitiesOnly=yes"]
        options += ["ConnectTimeout=60", "LogLevel=ERROR"]
        words = ["ssh", "-F", "none", "-p", "2222", "-i", f"{self.rooms.folder}/tmp/{key}"]
        words += [word for option in options for word in ("-o", option)]
        output = self.rooms.run(
            "boot1", "sh", "-c", '"$@" 2>&1; echo "status $?"', "sh", *words, f"root@{ADDRESSES[NODE]}", command
        )
        text, _status, status = output.strip().rpartition("status ")
        return int(status), text.strip()


@pytest.fixture(scope="module")
def image(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An image whose first stage has dropbear and the key "known" of ``keys`` beside its store."""
    folder = tmp_path_factory.mktemp("rack-image")
    keys, root, units = folder / "keys", folder / "root", folder / "tree/etc/systemd/system"
    keys.mkdir()
    for name in ("known", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True)
    shutil.copytree(parts.folder / "lib", root / "lib", copy_function=os.link)
    for entry in userland.entries(Path("/"), userland.DEBUG_PROGRAMS):
        place = root / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(entry.data)
    (root / userland.DEBUG_KEYS).parent.mkdir(parents=True)
    shutil.copy(keys / "known.pub", root / userland.DEBUG_KEYS)
    stage = folder / "initramfs"
    public_key = sign.read_public_key(parts.folder / "key.pub")
    initramfs.build(root, parts.kernel_version, Path("/"), public_key, INIT.read_text(), EPOCH, stage)
    (units / "multi-user.target.wants").mkdir(parents=True)
    (units / "shown.service").write_text(SHOWN)
    (units / "multi-user.target.wants/shown.service").symlink_to("../shown.service")
    (folder / "tree/etc/layer").write_text("top\n")
    squash = ["mksquashfs", folder / "tree", folder / "upper", "-quiet", "-no-progress", "-all-root", "-comp", "zstd"]
    subprocess.run(squash, check=True)
    return made_image(parts, stage, folder, folder / "upper", own=("sailloft.reboot_after_s=7200",))


@pytest.fixture(scope="module")
def rack(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """The rack, as the playbooks make it."""
    folder = tmp_path_factory.mktemp("rack")
    rooms = Rooms(folder / "rooms", GROUPS, STORE, SETUP, boot_server_servers=[SERVER], boot_server_interface="eth0")
    shutil.copytree(image.store.path, rooms.folder / "shared", dirs_exist_ok=True)
    for name in ("known", "other"):
        shutil.copy(Path(image.store.path).with_name("keys") / name, rooms.folder / "tmp")
    of_rooms = rooms.inventory["all"]["children"]["rooms"]["children"]
    for group, (name,) in GROUPS.items():
        of_rooms[group]["hosts"][name] |= {
            "boot_server_address": ADDRESSES[name],
            "boot_server_netmask": "255.255.255.0",
        }
    rooms.inventory["all"]["hosts"]["localhost"] |= {
        "node_image_store_dir": str(rooms.folder / "shared"),
        "node_image_signing_key": image.keys.secret_key,
        "node_image_public_key": image.keys.public_key,
    }
    node = {"ansible_host": ADDRESSES[NODE], "node_boot_mac": MAC, "node_boot_server_urls": [SERVER]}
    node |= {"node_boot_cache_urls": [CACHE], "node_boot_report_url": f"{SERVER}/report"}
    # Nobody asks it.
    node["node_boot_bmc"] = {"address": "127.0.0.1", "username": "none", "password": "none"}
    rooms.inventory["all"]["children"]["nodes"] = {"hosts": {NODE: node}}
    rooms.start()
    rack = Rack(rooms, folder / "network")
    try:
        changed = rack.play("boot_servers.yml")
        assert min(changed.values()) > 0, changed
        assert rack.play("boot_servers.yml", "-l", "boot_caches") == {"cache1": 0}
        yield rack
    finally:
        for process in rack.started:
            stop(process)
        rooms.close()


def test_a_node_boots_through_its_cache_which_lies_once_with_its_own_files_and_no_shell(rack: Rack, image: Image):
    """The first layer comes through the cache, whose copy of the second is altered; before, files are refused."""
    rack.give(FILES, "sailloft.debug=1")
    files = rack.files()
    right = files.read_bytes()
    wrong = [right.replace(b"0640", b"0666"), node_files.text_of("bm02", {"/etc/layer": {"content": "x"}}).encode()]
    first, second = (layer.sha256 for layer in image.manifest.layers)
    assert rack.cached("echo $part", f"{CACHE}/blobs/{second}")
    rack.cached("printf altered | dd of=$part bs=1 seek=$(($(stat -c %s $part) - 100)) conv=notrunc status=none")
    write_atomic(files, wrong[0])
    node = Node(rack, [])
    console = ""
    for data, following in zip(wrong, (wrong[1], right)):
        seen = hashlib.sha256(data).hexdigest()
        why = f"REFUSED: node {NODE}: nodes/{files.name} from {SERVER}: sha256 wanted {files.stem}, seen {seen}"
        assert node.wait_for(why, BOOT_S, len(console))
        console = node.console
        if data == wrong[0]:
            # The node goes on asking while somebody looks why.
            status, log = rack.shell("known", "cat /run/sailloft/boot.log")
            assert (status, why in log) == (0, True), log
            assert rack.shell("other", "true")[0] == 255
        write_atomic(files, following)
    console = node.wait_for("ALL IS SHOWN", BOOT_S)
    refused = f"blobs/{second} from {CACHE}: sha256 wanted {second}, seen "
    assert f"REFUSED: node {NODE}: {refused}" in console
    report = reported(console, image)
    assert (report.server, report.caches, report.files) == (SERVER, (CACHE,), files.stem)
    assert [warning.split(": sha256")[0] for warning in report.warnings] == [
        *[f"passed over: {SERVER} sent a wrong nodes/{files.name}"] * 2,
        f"passed over: {CACHE} sent a wrong blobs/{second}",
    ]
    # Kernel and first stage come from the boot server, too.
    assert (rack.asked("cache1"), {first, second} & set(rack.asked("boot1"))) == ([first, second], {second})
    assert [line for line in console.splitlines() if line.startswith("FILE ")] == STATES
    assert "LAYER of the node\n" in console
    assert "\nrole = bm01\n" in console
    # The debug shell has ended with the first stage.
    assert "\nSHELLS\n" in console
    assert rack.shell("known", "true")[0] == 255
    events = [(event["event"], event["file"], event["server"]) for event in rack.events()]
    refusals = [("refused", f"nodes/{files.name}", SERVER), ("refused", f"blobs/{second}", CACHE)]
    assert (set(events[:-1]), events[-1]) == ({*refusals}, ("booting", "", SERVER))
    node.stop()


def test_a_node_whose_cache_is_dead_and_whose_boot_fails_waits_for_who_has_a_key(rack: Rack, image: Image):
    rack.give({"/etc/role": {"content": "x", "group": "absent"}}, "sailloft.debug=1")
    rack.rooms.run("cache1", "systemctl", "stop", "nginx")
    node = Node(rack, [])
    console = node.wait_for("FAILED", BOOT_S)
    layer = image.manifest.layers[0].sha256
    assert f"blobs/{layer} from {CACHE}: wget: can't connect to remote host ({ADDRESSES['cache1']})" in console
    assert "all layers received" in console
    why = f"FAILED: node {NODE}: cannot write /etc/role of node_boot_files (0644 root:absent): "
    assert why in console
    assert rack.shell("other", "true")[0] == 255
    status, log = rack.shell("known", "touch /run/sailloft/stay; cat /run/sailloft/boot.log; killall sleep")
    assert (status, why in log) == (0, True), log
    node.wait_for("waiting while /run/sailloft/stay exists", BOOT_S)
    assert rack.shell("known", "rm /run/sailloft/stay")[0] == 0
    # QEMU ends at the reboot.
    node.process.wait(scaled_s(BOOT_S))
    assert "starting test-node" not in node.console
    assert [event["event"] for event in rack.events()] == ["failed", "rebooting"]


def test_without_a_key_in_the_image_there_is_no_shell(rack: Rack, parts: Parts, stage: Path, tmp_path: Path):
    image = made_image(parts, stage, tmp_path, parts.folder / "top")
    node = Node(rack, image.direct([f"{SERVER}:81"], "sailloft.debug=1"))
    node.wait_for("REFUSED", BOOT_S)
    status, output = rack.shell("known", "true")
    assert (status, "Connection refused" in output) == (255, True), output
    node.stop()
