# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_script, node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, manifest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
from ansible_collections.sailloft.fleet.plugins.modules import node_boot_scripts

SERVERS = ["http://10.9.0.1", "http://10.9.0.2:8080"]
REPORT = "http://10.9.0.1/report"


def a_manifest(blobs: dict[str, bytes], **changed) -> manifest.Manifest:
    def put(data: bytes) -> tuple[str, int]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest, len(data)

    verity = manifest.Verity(4096, "7" * 64, "")
    layer = manifest.ManifestLayer("base", "0" * 64, *put(b"l" * 8192), put(b"listing")[0], verity, {})
    values = {
        "name": "gpu-node",
        "distribution": "debian",
        "suite": "bookworm",
        "architecture": "amd64",
        "kernel": manifest.Kernel("6.1.0-31", *put(b"kernel")),
        "first_stage": manifest.FirstStage(*put(b"first stage")),
        "kernel_arguments": ("console=ttyS0", "quiet"),
        "writable_mib": 512,
        "layers": (layer,),
        "packages": (),
        "sbom_sha256": put(b"sbom")[0],
    }
    return manifest.Manifest(**{**values, **changed})


@pytest.fixture
def store(tmp_path) -> Store:
    """A store with one image, to which the channel stable refers."""
    blobs: dict[str, bytes] = {}
    data = manifest.dump(a_manifest(blobs))
    digest = manifest.digest(data)
    for folder in ("blobs", f"images/{digest}"):
        (tmp_path / "store" / folder).mkdir(parents=True)
    for name, content in blobs.items():
        (tmp_path / "store" / "blobs" / name).write_bytes(content)
    for name, content in (("manifest.json", data), ("manifest.json.minisig", b"signature"), ("boot.ipxe", b"#!ipxe\n")):
        (tmp_path / "store" / "images" / digest / name).write_bytes(content)
    found = Store(str(tmp_path / "store"))
    channels.promote(found, "stable", digest)
    return found


def node(number: int = 1, **changed) -> dict:
    own = {"name": f"node{number}", "mac": f"52:54:00:AA:bb:{number:02x}", "channel": "stable"}
    return {**own, "servers": SERVERS, "report": REPORT, **changed}


def scripts(store: Store) -> dict[str, str]:
    return channels.node_scripts(store)


def test_the_script_of_an_image_uses_relative_paths():
    image = a_manifest({})
    text = boot_script.image_script(image, "a" * 64)
    kernel = next(line for line in text.splitlines() if line.startswith("kernel "))
    assert f" ../../blobs/{image.kernel.sha256} initrd=first-stage console=ttyS0 quiet ${{node_args}} " in kernel
    assert f" sailloft.image={'a' * 64} sailloft.servers=${{servers}} sailloft.node=${{node}} " in kernel
    assert kernel.endswith(" BOOTIF=01-${mac:hexhyp} || goto failed")
    assert re.findall(r"^(\w+) --timeout (\d+) ", text, re.MULTILINE) == [("kernel", "20000"), ("initrd", "20000")]
    assert f"--name first-stage ../../blobs/{image.first_stage.sha256} || goto failed" in text
    assert "http" not in text
    # The command that runs after a failure must not find a part of this image in memory.
    assert text.endswith(":failed\nimgfree\nexit 1\n")


def command_line(image: manifest.Manifest, digest: str, script: str) -> str:
    """Return the kernel's command line, as iPXE builds it from the node's script and the image's script."""
    kernel = next(line for line in boot_script.image_script(image, digest).splitlines() if line.startswith("kernel "))
    line = kernel[kernel.index("initrd=") : -len(" || goto failed")]
    settings = dict(
        line.split(" ", 2)[1:] for line in script.splitlines() if line.startswith("set ") and line[-1] != " "
    )
    settings |= {"mac:hexhyp": "52-54-00-aa-bb-01"}
    return re.sub(r"\$\{([^}]*)\}", lambda match: settings.get(match.group(1), ""), line)


def test_command_lines_that_the_kernel_would_truncate_are_refused():
    image = a_manifest({}, kernel_arguments=("a" * kernel_arguments.MOST_ARGUMENT_BYTES,))

    def script(count: int) -> str:
        return boot_script.node_script("node1", "52:54:00:aa:bb:01", "channels/a.ipxe", SERVERS, ["a" * count], REPORT)

    most = max(count for count in range(1, 512) if not refused(lambda count=count: script(count)))
    assert 1980 < len(command_line(image, "a" * 64, script(most))) <= 2047
    with raises(ImageError, "node1", "512", "511"):
        script(most + 1)


def refused(call) -> bool:
    try:
        call()
    except ImageError:
        return True
    return False


def test_the_script_of_a_node_tries_all_servers_and_repeats():
    text = boot_script.node_script("node1", "52:54:00:aa:bb:01", "channels/stable.ipxe", SERVERS, ["a=1", "b"], REPORT)
    lines = text.splitlines()
    assert {"set node node1", f"set servers {','.join(SERVERS)}", f"set report {REPORT}", "set node_args a=1 b"} < set(
        lines
    )
    tries = [line for line in lines if line.startswith("chain ")]
    assert sorted(line.split()[-2] for line in tries) == sorted(f"{url}/channels/stable.ipxe" for url in SERVERS)
    # On failure, iPXE runs the next line; after the last line, it begins again.
    assert all(line.endswith(" ||") for line in tries)
    assert lines[-1] == "goto again"


def test_nodes_start_with_different_servers_and_have_different_pauses():
    texts = [
        boot_script.node_script(f"n{number}", "52:54:00:aa:bb:01", "channels/a.ipxe", SERVERS, []).splitlines()
        for number in range(64)
    ]
    first = [next(line for line in lines if line.startswith("chain ")) for lines in texts]
    assert all(16 <= first.count(line) <= 48 for line in set(first))
    assert len(set(first)) == 2
    pauses = {line for lines in texts for line in lines if line.startswith("set pause")}
    assert pauses == {f"set pause:int32 {seconds}" for seconds in range(1, 9)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mac": "52:54:00:aa:bb"}, r"node node1: '52:54:00:aa:bb'"),
        # YAML reads 52:54:00:00:00:01 without quotes as this number (base 60).
        (
            {"mac": 41135040001},
            "41135040001.*in quotes",
        ),
        ({"mac": "ff:ff:ff:ff:ff:ff"}, "'ff:ff:ff:ff:ff:ff'"),
        ({"mac": "00:00:00:00:00:00"}, "'00:00:00:00:00:00'"),
        ({"name": "Node_1"}, "node 'Node_1': not a valid host name"),
        (
            {"channel": "absent"},
            "channel absent, which node1 would boot: .* has no such channel; existing channels: stable",
        ),
        ({"channel": "../x"}, "'../x': not a valid name"),
        ({"channel": None}, "node node1: needs either a channel or a digest"),
        ({"digest": "a" * 64}, "node node1: needs either a channel or a digest"),
        ({"channel": None, "digest": "a" * 64}, f"node node1: store .* has no image {'a' * 64}"),
        ({"channel": None, "digest": "abc"}, "node node1: 'abc' is not a digest"),
        ({"kernel_arguments": ["a b"]}, "kernel argument 'a b' cannot be passed on by iPXE"),
        ({"kernel_arguments": ["a=${mac}"]}, "cannot be passed on by iPXE"),
        ({"kernel_arguments": ["sailloft.image=x"]}, "'sailloft.image=x' is set by its script"),
        ({"kernel_arguments": ["sailloft.debug=2"]}, "is set by its script"),
        ({"kernel_arguments": ["sailloft.reboot_after_s=10m"]}, "sailloft.reboot_after_s=10m' is not in whole seconds"),
        ({"kernel_arguments": ["BOOTIF=x"]}, "'BOOTIF=x' is set by its script"),
    ],
)
def test_invalid_nodes_are_refused_and_no_script_is_changed(store, changed, message):
    node_scripts.ensure(store, [node()], False)
    before = scripts(store)
    with pytest.raises(ImageError, match=message):
        node_scripts.ensure(store, [node(2), node(**changed)], False)
    assert scripts(store) == before


def test_two_nodes_with_the_same_address_or_name_are_refused(store):
    with raises(ImageError, "other", "52-54-00-aa-bb-01", "node1"):
        node_scripts.ensure(store, [node(), node(name="other", mac="52-54-00-aa-BB-01")], False)
    with raises(ImageError, "node1", "listed twice"):
        node_scripts.ensure(store, [node(), node(mac="52:54:00:aa:bb:02")], False)
    assert scripts(store) == {}


@pytest.mark.parametrize(
    "url", ["http://boot01", "https://10.9.0.1", "http://10.9.0.1/", "http://10.9.0.256", "10.9.0.1"]
)
def test_servers_that_the_first_stage_cannot_reach_are_refused(store, url):
    with raises(ImageError, "node1", repr(url), "URL"):
        node_scripts.ensure(store, [node(servers=[url])], False)


@pytest.mark.parametrize("url", ["http://0.0.0.0", "http://10.9.0.1:99999", "http://10.9.0.1:0/path"])
def test_addresses_and_ports_that_no_server_has_are_refused(store, url):
    with raises(ImageError, "node1", url, "reach"):
        node_scripts.ensure(store, [node(servers=[url])], False)


def test_an_argument_of_a_node_that_would_replace_the_first_stage_is_refused(store):
    with pytest.raises(ImageError, match="rdinit=/bin/sh"):
        node_scripts.ensure(store, [node(kernel_arguments=["rdinit=/bin/sh"])], False)


def test_an_incomplete_image_is_refused(store):
    digest = store.images()[0]
    sha256 = store.manifest(digest).layers[0].sha256
    Path(store.place("blobs", sha256)).unlink()
    with raises(ImageError, "node node1", digest, f"blob {sha256}"):
        node_scripts.ensure(store, [node(channel=None, digest=digest)], False)


def call(store: Store, capsys, check: bool = False, **options) -> dict:
    arguments = {"store": store.path, "_ansible_check_mode": check, **options}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        node_boot_scripts.main()
    return json.loads(capsys.readouterr().out)


def test_the_module_writes_changes_and_removes_scripts(store, capsys):
    digest = store.images()[0]
    nodes = [node(1), node(2, channel=None, digest=digest, kernel_arguments=["debug"])]
    dry = call(store, capsys, check=True, nodes=nodes)
    assert scripts(store) == {}
    made = call(store, capsys, nodes=nodes)
    assert dry == made
    assert made["changed"]
    assert made["written"] == ["52-54-00-aa-bb-01", "52-54-00-aa-bb-02"]
    assert set(scripts(store)) == set(made["written"])
    assert f"images/{digest}/boot.ipxe" in scripts(store)["52-54-00-aa-bb-02"]
    again = call(store, capsys, nodes=nodes)
    assert (again["changed"], again["written"], again["removed"], again["diff"]) == (False, [], [], [])

    changed = call(store, capsys, nodes=[node(1, kernel_arguments=["debug"])], removed=["node2"])
    assert (changed["written"], changed["removed"]) == (["52-54-00-aa-bb-01"], ["52-54-00-aa-bb-02"])
    assert changed["others"] == []
    assert set(scripts(store)) == {"52-54-00-aa-bb-01"}
    first, second = changed["diff"]
    assert "set node_args debug" in first["after"]
    assert "set node_args debug" not in first["before"]
    assert second["before_header"] == "nodes/52-54-00-aa-bb-02.ipxe"
    assert second["after"] == ""

    failed = call(store, capsys, nodes=[node(1, channel="absent")])
    assert failed["failed"]
    assert "channel absent" in failed["msg"]


def test_scripts_of_other_nodes_are_not_changed(store):
    node_scripts.ensure(store, [node(number) for number in (1, 2, 3)], False)
    before = scripts(store)
    change = node_scripts.ensure(store, [node(2, kernel_arguments=["debug"])], False)
    assert (list(change.written), change.removed) == (["52-54-00-aa-bb-02"], ())
    assert change.others == ("node1", "node3")
    after = scripts(store)
    assert {mac for mac in before if after[mac] != before[mac]} == {"52-54-00-aa-bb-02"}
    assert set(after) == set(before)


def test_scripts_are_removed_only_by_node_name(store):
    node_scripts.ensure(store, [node(number) for number in (1, 2, 3)], False)
    change = node_scripts.ensure(store, [], False, removed=["node3", "node9"])
    assert (change.written, change.removed) == ({}, ("52-54-00-aa-bb-03",))
    assert set(scripts(store)) == {"52-54-00-aa-bb-01", "52-54-00-aa-bb-02"}
    with raises(ImageError, "node1", "written", "removed"):
        node_scripts.ensure(store, [node(1)], False, removed=["node1"])
    with raises(ImageError, "node '../x'", "host name"):
        node_scripts.ensure(store, [], False, removed=["../x"])


def test_the_old_script_is_removed_if_a_node_gets_another_nic(store):
    node_scripts.ensure(store, [node(1), node(2)], False)
    change = node_scripts.ensure(store, [node(1, mac="52:54:00:aa:bb:11")], False)
    assert (list(change.written), change.removed) == (["52-54-00-aa-bb-11"], ("52-54-00-aa-bb-01",))
    assert set(scripts(store)) == {"52-54-00-aa-bb-02", "52-54-00-aa-bb-11"}


def test_the_mac_address_of_another_node_is_refused_unless_both_nodes_change(store):
    node_scripts.ensure(store, [node(1), node(2)], False)
    before = scripts(store)
    moved = node(1, mac="52:54:00:aa:bb:02")
    with raises(ImageError, "node1", "52-54-00-aa-bb-02", "node2", "node_boot_mac", "node_boot_removed"):
        node_scripts.ensure(store, [moved], False)
    assert scripts(store) == before
    node_scripts.ensure(store, [moved, node(2, mac="52:54:00:aa:bb:01")], False)
    assert "set node node1\n" in scripts(store)["52-54-00-aa-bb-02"]
    assert "set node node2\n" in scripts(store)["52-54-00-aa-bb-01"]
    node_scripts.ensure(store, [node(3, mac="52:54:00:aa:bb:02")], False, removed=["node1"])
    assert "set node node3\n" in scripts(store)["52-54-00-aa-bb-02"]


def test_each_node_has_its_own_servers(store):
    node_scripts.ensure(store, [node(1, servers=["http://10.9.1.1"], report=""), node(2)], False)
    first, second = scripts(store).values()
    assert "set servers http://10.9.1.1\nset report \n" in first
    assert f"set servers {','.join(SERVERS)}\nset report {REPORT}\n" in second


REPORT_DATA = {
    "format": "sailloft-boot/1",
    "node": "n1",
    "image": "a" * 64,
    "name": "gpu-node",
    "kernel": "6.1",
    "arguments": "quiet",
    "layers": [{"name": "base", "sha256": "b" * 64, "verity": True, "root_sha256": "c" * 64}],
    "server": "http://10.9.0.1",
    "writable_bytes": 1024,
    "phases": [{"name": "network", "start_s": 1, "end_s": 2.5}],
    "warnings": [],
    "host_keys": ["ssh-ed25519 AAAA"],
    "mac": "52:54:00:aa:bb:01",
    "statement": 7,
    "rollback": "TPM",
    "clock": "",
    "report_url": "",
    "servers": ["http://10.9.0.1"],
    "files": "",
    "caches": ["http://10.9.1.2"],
    "nics": ["52:54:00:aa:bb:01 dhcp"],
}


def test_a_boot_report_is_read_back():
    report = boot_report.load(json.dumps(REPORT_DATA), "node n1")
    assert json.loads(json.dumps({"format": boot_report.FORMAT, **dataclasses.asdict(report)})) == REPORT_DATA


def test_the_report_of_an_earlier_version_has_no_host_keys():
    data = {key: value for key, value in REPORT_DATA.items() if key != "host_keys"}
    assert boot_report.load(json.dumps(data), "node n1").host_keys == ()


MAC = "52:54:00:aa:bb:01"
NICS = [
    {"name": "ens1np0", "address": "10.1.0.5/24", "gateway": "10.1.0.1", "mac": None},
    {"mac": "52-54-00-AA-BB-02", "address": "dhcp"},
    {"name": "ens2np0", "address": "fd00:0:0::5/64"},
]


def test_a_nodes_script_lists_its_nics_for_the_first_stage():
    script = boot_script.node_script("n1", MAC, "channels/a.ipxe", ["http://10.9.0.1"], ["quiet"], nics=NICS)
    assert re.findall("^# nic (.*)$", script, re.MULTILINE) == [
        "ens1np0 10.1.0.5/24 10.1.0.1",
        "52:54:00:aa:bb:02 dhcp",
        "ens2np0 fd00::5/64",
    ]
    assert "\nset node_args quiet sailloft.nics=1\n" in script
    without = boot_script.node_script("n1", MAC, "channels/a.ipxe", ["http://10.9.0.1"], ["quiet"])
    assert "nic" not in without


@pytest.mark.parametrize(
    ("nic", "message"),
    [
        ({"address": "dhcp"}, "has not exactly one of mac and name"),
        ({"name": "a", "mac": MAC, "address": "dhcp"}, "has not exactly one of mac and name"),
        ({"mac": "52:54:00", "address": "dhcp"}, "node n1: NIC 52:54:00: '52:54:00' is not the MAC address of a NIC"),
        ({"name": "ens*", "address": "dhcp"}, "node n1: NIC ens*: the name is not that of an interface"),
        ({"name": "ens1np0", "address": "10.2.0.5/24"}, "node n1: NIC ens1np0: is listed twice"),
        ({"name": "a", "address": "10.2.0.5"}, "node n1: NIC a: address '10.2.0.5' has no prefix length"),
        ({"name": "a", "address": "10.2.0.256/24"}, "node n1: NIC a: "),
        ({"name": "a", "address": "10.2.0.5/24", "gateway": "10.3.0.1"}, "gateway 10.3.0.1 is not another address of"),
        ({"name": "a", "address": "10.2.0.5/24", "gateway": "10.2.0.5"}, "gateway 10.2.0.5 is not another address of"),
        ({"name": "a", "address": "dhcp", "gateway": "10.2.0.5"}, "has a gateway, which the DHCP server gives"),
    ],
)
def test_a_nic_that_the_first_stage_could_not_configure_is_refused(nic, message):
    with pytest.raises(ImageError, match=re.escape(message)):
        boot_script.node_script("n1", MAC, "channels/a.ipxe", ["http://10.9.0.1"], [], nics=[NICS[0], nic])
