# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines that are no nodes: what the real dnsmasq, nginx and keeper of a boot server answer to them."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import sys
import time
from pathlib import Path

import health_keeper
import pytest
import yaml
from boot_http import CONTENT, NGINX, keeping, serving
from boot_server_role import dnsmasq_configuration, render
from dhcp_network import DNSMASQ, ROUTER, DhcpNetwork
from playing import ROOT, ansible_playbook

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_server
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, garbage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

keeper = health_keeper.load()
IMAGE = "ab" * 32
OTHER_IMAGE = "cd" * 32
KNOWN = {"name": "bm01", "mac": "52:54:00:aa:bb:01", "address": "10.9.0.11"}
STRANGER = "52:54:00:ff:ff:01"
RELAY = {"network": "10.9.16.0/24", "gateway": "10.9.16.1"}
DISCOVERY = {"image": IMAGE, "ranges": ["10.9.0.200-10.9.0.209", "10.9.16.200-10.9.16.209"]}
UNKNOWN_SCRIPT = "http://10.9.0.1/nodes/unknown.ipxe"
# An address that nginx takes as one of an unknown machine, and one that it takes as a node's.
UNKNOWN, NODE = "127.0.0.9", "127.0.0.1"


@pytest.fixture
def network(tmp_path):
    if not DNSMASQ:
        pytest.skip("no dnsmasq on this machine (bindep.txt)")
    made = DhcpNetwork(tmp_path, 24, [RELAY])
    yield made
    made.close()


def answers(network: DhcpNetwork, discovery: dict, *clients: dict) -> list[dict]:
    """Return the answer to each client by a server of one node."""
    text = dnsmasq_configuration(
        [KNOWN],
        boot_server_interface="boot0",
        boot_server_gateway=ROUTER,
        boot_server_subnets=[RELAY],
        boot_server_discovery=discovery,
    )
    network.dnsmasq(text, 1)
    return [answer for [answer] in network.ask(list(clients), tries=2)["clients"]]


def is_unknown(address: str, network: int = 0) -> bool:
    first = ipaddress.IPv4Address(f"10.9.{network}.200")
    return first <= ipaddress.IPv4Address(address) < first + 10


def test_an_unknown_machine_gets_an_address_of_its_range_and_the_inspection_image_and_a_node_its_own(network):
    stages = ["bios", "efi", "http", "ipxe", "first-stage"]
    found = answers(
        network,
        DISCOVERY,
        *({"mac": STRANGER, "stages": [stage]} for stage in stages),
        *({"mac": KNOWN["mac"], "stages": [stage]} for stage in stages),
        {"mac": STRANGER, "stages": ["ipxe"], "giaddr": RELAY["gateway"]},
    )
    files = ["undionly.kpxe", "ipxe.efi", "http://10.9.0.1/boot/ipxe.efi"]
    unknown, known, relayed = found[:5], found[5:10], found[10]
    assert [answer["kind"] for answer in found] == [5] * 11
    assert all(is_unknown(answer["address"]) for answer in unknown)
    assert [answer["file"] for answer in unknown[:4]] == [*files, UNKNOWN_SCRIPT]
    assert {answer["address"] for answer in known} == {KNOWN["address"]}
    assert [answer["file"] for answer in known[:4]] == [*files, "tftp://10.9.0.1/start.ipxe"]
    assert is_unknown(relayed["address"], 16)
    assert (relayed["router"], relayed["file"]) == (RELAY["gateway"], UNKNOWN_SCRIPT)


def test_an_unknown_machine_with_secure_boot_gets_the_signed_kernel(network):
    found = answers(
        network,
        {**DISCOVERY, "secure_boot": True},
        *({"mac": STRANGER, "stages": [stage]} for stage in ("efi", "http", "bios")),
        {"mac": KNOWN["mac"], "stages": ["efi"]},
    )
    program = "nodes/unknown.efi"
    assert [answer["file"] for answer in found] == [program, f"http://10.9.0.1/{program}", "undionly.kpxe", "ipxe.efi"]


def test_machines_beyond_the_range_get_no_answer_and_the_nodes_still_do(network):
    strangers = [{"mac": f"52:54:00:ff:ff:{number:02x}", "stages": ["efi"]} for number in range(12)]
    *found, known = answers(network, DISCOVERY, *strangers, {"mac": KNOWN["mac"], "stages": ["efi"]})
    assert len({answer["address"] for answer in found if answer["kind"] == 5}) == 10
    assert known["address"] == KNOWN["address"]


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"image": "inspection"}, ["boot_server_discovery.image", "'inspection'"]),
        ({"ranges": []}, ["boot_server_discovery", "ranges"]),
        ({"ranges": ["10.9.0.209-10.9.0.200"]}, ["10.9.0.209-10.9.0.200"]),
        ({"ranges": ["10.9.0.200-10.9.0.210; }"]}, ["10.9.0.200-10.9.0.210; }"]),
        ({"ranges": ["10.9.0.200-10.9.1.210"]}, ["10.9.0.200-10.9.1.210", "one network"]),
        ({"ranges": ["10.9.0.5-10.9.0.20"]}, ["10.9.0.5-10.9.0.20", "10.9.0.11"]),
        ({"architecture": "riscv"}, ["'riscv'"]),
    ],
)
def test_wrong_settings_are_refused(changed, facts):
    def problems(gives: bool = True, **fields: object) -> list[str]:
        server = boot_server.Server(
            "10.9.0.1", "255.255.255.0", "", (), ("http://10.9.0.1",), gives, discovery={**DISCOVERY, **fields}
        )
        return boot_server.problems(server, [KNOWN])

    valid = {"ranges": ["10.9.0.200-10.9.0.209"]}
    assert problems(**valid) == []
    [text] = problems(**{**valid, **changed})
    assert [fact for fact in facts if fact not in text] == []
    assert "boot_server_dhcp" in " ".join(problems(gives=False, **valid))


def test_the_image_stays_in_the_store(tmp_path):
    """The script that pins it is no node's: no run writes or removes it as one."""
    values = {"boot_server_servers": ["http://10.9.0.1", "http://10.9.0.2"], "boot_server_discovery": DISCOVERY}
    text = render("unknown.ipxe.j2", **values)
    assert [line.split()[-2] for line in text.splitlines() if line.startswith("chain ")] == [
        f"http://10.9.0.{number}/images/{IMAGE}/boot.ipxe" for number in (1, 2)
    ]
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes/unknown.ipxe").write_text(text)
    store = Store(str(tmp_path))
    assert channels.node_scripts(store) == {"unknown": text}
    assert garbage.reasons(store, [], 0) == {IMAGE: ["node unknown"]}


@pytest.mark.skipif(not NGINX, reason="no nginx on this machine (bindep.txt)")
def test_an_unknown_machine_reaches_nothing_but_the_inspection_image(tmp_path):
    """A laptop on the boot network: it has an address of the range, and asks for everything."""
    discovery = {"image": IMAGE, "ranges": [f"{UNKNOWN}-{UNKNOWN}"]}
    with serving(tmp_path, discovery) as ask:
        for path in (f"images/{IMAGE}/boot.ipxe", f"images/{OTHER_IMAGE}/boot.ipxe", "nodes/unknown.ipxe"):
            (tmp_path / "store" / path).parent.mkdir(exist_ok=True)
            (tmp_path / "store" / path).write_bytes(CONTENT)
        allowed = ["/blobs/file", "/boot/ipxe.efi", "/nodes/unknown.ipxe", f"/images/{IMAGE}/boot.ipxe"]
        refused = [
            *("/nodes/file", "/nodes/statement", "/channels/file", "/identity/file", "/health/bm01"),
            *(
                f"/images/{OTHER_IMAGE}/boot.ipxe",
                f"/images/{IMAGE}/../{OTHER_IMAGE}/boot.ipxe",
                "/nodes/unknown.ipxe/",
            ),
            *("/blobs/../nodes/file", "//nodes/file", "/%6eodes/file", f"/blobs/?/images/{IMAGE}/", "/"),
        ]
        assert {path: ask(path, source=UNKNOWN).status for path in allowed} == dict.fromkeys(allowed, 200)
        seen = {path: ask(path, source=UNKNOWN).status for path in refused}
        assert [path for path, status in seen.items() if status not in (400, 403, 404)] == []
        for path in ("/nodes/file", "/channels/file", "/identity/file", f"/images/{OTHER_IMAGE}/boot.ipxe"):
            assert ask(path, source=NODE).status == 200, path
    tmp_path.joinpath("off").mkdir()
    with serving(tmp_path / "off") as ask:
        assert ask("/pending/52-54-00-ff-ff-01", "PUT", b"{}").status == 404


def report(mac: str = STRANGER, **fields: object) -> bytes:
    return json.dumps({"format": "sailloft-inspection/1", "mac": mac, **fields}).encode()


@pytest.fixture
def pending(tmp_path):
    """Return a function that sends a report, and the directory of the reports, behind nginx."""
    if not NGINX:
        pytest.skip("no nginx on this machine (bindep.txt)")
    reports = tmp_path / "reports"
    reports.mkdir()
    with (
        serving(tmp_path, {"image": IMAGE, "ranges": [f"{UNKNOWN}-{UNKNOWN}"]}) as ask,
        keeping(tmp_path, tmp_path / "copies", tmp_path / "store/nodes", reports),
    ):
        yield lambda path, body, method="PUT": ask(path, method, body, source=UNKNOWN).status, reports


def test_a_report_is_kept_until_its_machine_is_a_node(pending, tmp_path):
    send, reports = pending
    name = STRANGER.replace(":", "-")
    assert send(f"/pending/{name}", report()) == 204
    assert send(f"/pending/{name}", report(serial="S1")) == 204
    assert {path.name: path.read_bytes() for path in reports.iterdir()} == {name: report(serial="S1")}
    assert send(f"/pending/{name}", None, "GET") in (403, 404)
    (tmp_path / f"store/nodes/{name}.ipxe").write_text("#!ipxe\n")
    assert send(f"/pending/{name}", report()) == 410
    assert list(reports.iterdir()) == []


def test_reports_that_lie_or_do_harm_are_not_kept(pending, tmp_path):
    send, reports = pending
    name = STRANGER.replace(":", "-")
    for path, body, statuses in (
        (f"/pending/{name}", report("52:54:00:ff:ff:02"), {400}),
        (f"/pending/{name}", b"\x00\xff" * 100, {400}),
        (f"/pending/{name}", b"[]", {400}),
        (f"/pending/{name}", b"", {400}),
        (f"/pending/{name}", b"[" * 400_000, {400}),
        (f"/pending/{name}", report()[:-1] + b', "n": ' + b"9" * 400_000 + b"}", {204}),
        (f"/pending/{name}", report(padding="x" * (1 << 19)), {413}),
        (f"/pending/{name}", report(padding="x" * (1 << 20)), {413}),
        ("/pending/../nodes/unknown", report(), {404, 405}),
        ("/pending/..%2fnodes%2funknown", report(), {400, 404}),
        (f"/pending/{name}.ipxe", report(), {404}),
        (f"/pending/{name}/x", report(), {404}),
        (f"/pending/{STRANGER}", report(), {404}),
        ("/pending/", report(), {404}),
    ):
        began = time.monotonic()
        assert send(path, body) in statuses, (path, body[:40])
        assert time.monotonic() - began < 20
    assert [path.name for path in reports.iterdir()] == [name]
    assert sorted(path.name for path in (tmp_path / "store/nodes").iterdir()) == ["file"]
    assert list((tmp_path / "copies").iterdir()) == []


def test_10000_machines_do_not_fill_the_disk_and_old_reports_make_room(tmp_path):
    reports = tmp_path / "reports"
    reports.mkdir()
    pending = keeper.Pending(tmp_path, reports)
    keeper.replace = lambda path, content: path.write_bytes(content)  # without the wait for the disk
    macs = [f"52-54-00-ff-{number >> 8:02x}-{number & 255:02x}" for number in range(10_000)]
    statuses = [pending.take(mac, report(mac.replace("-", ":"))) for mac in macs]
    assert statuses == [204] * keeper.MOST_REPORTS + [507] * (10_000 - keeper.MOST_REPORTS)
    # One that is there may report again; a new one may when another has not for a day.
    assert pending.take(macs[0], report(macs[0].replace("-", ":"), serial="S1")) == 204
    day_before_s = time.time() - keeper.REPORT_KEPT_S - 1
    os.utime(reports / macs[1], (day_before_s, day_before_s))
    assert pending.take(macs[-1], report(macs[-1].replace("-", ":"))) == 204
    assert not (reports / macs[1]).exists()
    assert len(list(reports.iterdir())) == keeper.MOST_REPORTS


@pytest.mark.fleet
def test_the_role_writes_what_unknown_machines_boot_and_removes_it(tmp_path):
    """Its tasks of main.yml, as the others would configure this machine."""
    tasks = yaml.safe_load((ROOT / "roles/boot_server/tasks/main.yml").read_text())
    own = [task for task in tasks if "machines that are no nodes" in task["name"]]
    next(task["ansible.builtin.template"] for task in own if "ansible.builtin.template" in task)["src"] = str(
        ROOT / "roles/boot_server/templates/unknown.ipxe.j2"
    )
    folder = tmp_path / "nodes"
    folder.mkdir()
    values = {"boot_server_store_dir": str(tmp_path), "boot_server_servers": ["http://10.9.0.1"]}

    def changes(discovery: dict) -> int:
        variables = {**values, "boot_server_discovery": discovery, "ansible_python_interpreter": sys.executable}
        play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": own}
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        status, output = ansible_playbook("-i", "localhost,", "-c", "local", str(tmp_path / "play.yml"))
        assert status == 0, output
        return int(re.search(r"changed=(\d+)", output)[1])

    signed = {**DISCOVERY, "secure_boot": True}
    assert [changes(signed), changes(signed)] == [2, 0]
    assert (folder / "unknown.efi").readlink() == Path("..", "images", IMAGE, "boot.efi")
    assert IMAGE in (folder / "unknown.ipxe").read_text()
    assert [changes(DISCOVERY), changes(DISCOVERY)] == [1, 0]
    assert [path.name for path in folder.iterdir()] == ["unknown.ipxe"]
    assert [changes({}), changes({})] == [1, 0]
    assert list(folder.iterdir()) == []


def test_without_discovery_an_unknown_machine_gets_no_answer(network):
    [found] = answers(network, {}, {"mac": STRANGER, "stages": ["efi"]})
    assert found == {"kind": 0}
