# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage's functions in BusyBox's own shell, on this machine."""

from __future__ import annotations

import configparser
import dataclasses
import json
import os
import re
import shutil
import subprocess

import pytest
from first_stage import CONTENT, DIGEST, INIT, Behaviour, shell

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests

pytestmark = pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")


def test_pauses_double_each_round_with_a_jitter_of_half_their_length(tmp_path):
    output = shell(tmp_path, "for round in 0 1 2 3 6 40; do pause_ms $round; pause_ms $round; done").split()
    times = list(map(int, output))
    for at, mean_ms in enumerate((1000, 2000, 4000, 8000, 64000, 64000)):
        pair = times[2 * at : 2 * at + 2]
        assert all(mean_ms / 2 <= time_ms < mean_ms * 1.5 for time_ms in pair)
        assert pair[0] != pair[1]


def test_the_node_reboots_after_its_deadline(tmp_path):
    script = "restart() { echo rebooting: $1; exit; }; deadline_s=0; pause 0"
    assert re.fullmatch(r"rebooting: no image after [01] s\n", shell(tmp_path, script))


def test_servers_are_shuffled(tmp_path):
    output = shell(
        tmp_path, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $(shuffled http://a/,http://b,http://c); done"
    )
    orders = set(output.splitlines())
    assert len(orders) > 1
    assert all(sorted(order.split()) == ["http://a", "http://b", "http://c"] for order in orders)


def test_the_first_occurrence_of_an_argument_is_used(tmp_path):
    output = shell(tmp_path, 'echo "$mac $node"; argument absent', "BOOTIF=01-AA-BB-cc-00-11-22 sailloft.node=other *")
    assert output == "aa:bb:cc:00:11:22 n1\n"


def test_a_signature_of_another_key_is_refused(tmp_path):
    for name in ("key", "other"):
        pair = ["-p", tmp_path / f"{name}.pub", "-s", tmp_path / f"{name}.sec"]
        subprocess.run(["minisign", "-G", "-W", *pair], check=True, stdout=subprocess.DEVNULL)
    signed = tmp_path / "manifest"
    signed.write_text("{}\n")
    for name in ("key", "other"):
        command = ["minisign", "-S", "-W", "-s", tmp_path / f"{name}.sec", "-m", signed, "-x", tmp_path / f"{name}.sig"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    script = f"""
        public_key={tmp_path}/key.pub
        for each in key other; do
            check_signature {signed} {tmp_path}/$each.sig && echo holds || echo $reason
        done
    """
    holds, refused = shell(tmp_path, script).splitlines()
    assert holds == "holds"
    assert re.match("the signature does not hold: .+", refused)


@pytest.mark.parametrize(("turn", "reason"), [("missing", "404"), ("good", "the signature does not hold: ")])
def test_a_manifest_without_a_valid_signature_is_never_used(tmp_path, serve, turn, reason):
    """The signature is missing or invalid on every server: the manifest is not read, and the node reboots."""
    subprocess.run(
        ["minisign", "-G", "-W", "-p", tmp_path / "key.pub", "-s", tmp_path / "key.sec"],
        check=True,
        capture_output=True,
    )
    behaviour = Behaviour("good", turn)
    url = serve(behaviour)
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        manifest_value() {{ echo "the manifest is read"; }}
        servers='{url}' deadline_s=0 public_key={tmp_path}/key.pub signature_limit_bytes={len(CONTENT)}
        fetch_manifest
        echo "went on"
    """
    output = shell(tmp_path, script)
    assert f"images/{DIGEST}/manifest.json.minisig from {url}: " in output
    assert reason in output
    # It is 1 s if the clock's second changes during the run.
    assert re.search(r"\nrebooting: no image after [01] s\n$", output)
    assert "went on" not in output
    assert "the manifest is read" not in output
    assert [path for path, _offset in behaviour.asked] == [
        f"/images/{DIGEST}/manifest.json",
        f"/images/{DIGEST}/manifest.json.minisig",
    ]


def a_manifest() -> manifests.Manifest:
    inputs = {
        "sha256": "f" * 64,
        "name": "x",
        "verity": {"data_bytes": 1, "salt": "00"},
        "list": [{"name": "x"}],
        "text": "]",
    }
    layers = tuple(
        manifests.ManifestLayer(
            name, "0" * 64, digit * 64, 8192, "9" * 64, manifests.Verity(4096, "7" * 64, salt), inputs
        )
        for name, digit, salt in (("base", "1", "aabb"), ("top", "2", ""))
    )
    return manifests.Manifest(
        name="gpu-node",
        distribution="debian",
        suite="bookworm",
        architecture="amd64",
        kernel=manifests.Kernel("6.1.0-31", "3" * 64, 1),
        first_stage=manifests.FirstStage("4" * 64, 1),
        kernel_arguments=('name="x"', "a"),
        writable_mib=512,
        layers=layers,
        packages=(manifests.ImagePackage("version", "1", "amd64", "base"),),
        sbom_sha256="5" * 64,
    )


def test_the_first_stage_reads_the_values_of_a_written_manifest(tmp_path):
    file = tmp_path / "manifest.json"
    file.write_bytes(manifests.dump(a_manifest()))
    script = f"""
        manifest_layers {file}
        for each in format name writable_mib; do manifest_value {file} $each ''; done
        manifest_value {file} version kernel
    """
    assert shell(tmp_path, script).splitlines() == [
        f"base {'1' * 64} 8192 4096 {'7' * 64} aabb",
        f"top {'2' * 64} 8192 4096 {'7' * 64} -",
        "sailloft-image/1",
        "gpu-node",
        "512",
        "6.1.0-31",
    ]


@pytest.mark.parametrize(("name", "boots"), [("inspection", True), ("gpu-node", False)])
def test_a_machine_that_is_no_node_boots_only_an_inspection_image_and_asks_for_no_statement(tmp_path, name, boots):
    """Its command line names the image, which would else be a way around the statement."""
    image = dataclasses.replace(a_manifest(), name=name)
    script = f"""
        fetch() {{ cp {tmp_path}/manifest.json "$2"; }}
        uname() {{ echo {image.kernel.version}; }}
        fail() {{ echo "FAILED: $1"; exit; }}
        tpm_call() {{ echo "the TPM is used"; }}
        mac=52:54:00:ff:ff:01 servers=http://10.9.0.1
        inspect
        fetch_manifest
        echo "$node boots $image_name with $nics"
    """
    (tmp_path / "manifest.json").write_bytes(manifests.dump(image))
    output = shell(tmp_path, script, "sailloft.inspect=1")
    assert ("unknown-525400ffff01 boots inspection with 52:54:00:ff:ff:01 dhcp" in output) == boots
    assert ("FAILED: " in output) != boots
    assert "the TPM is used" not in output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("good", ""),
        ("ends with an error", ""),
        ("no loader", "/sbin/init of the image cannot be started: "),
        ("no interpreter", "/sbin/init of the image cannot be started: "),
        ("not executable", "/sbin/init of the image cannot be started: "),
        ("link to nothing", "/sbin/init of the image cannot be started: "),
        ("folder", "/sbin/init of the image cannot be started: "),
        ("none", "the image has no /sbin/init; put systemd-sysv into a layer"),
    ],
)
def test_an_init_that_cannot_be_started_fails_before_the_root_is_switched(tmp_path, kind, message):
    (tmp_path / "root/sbin").mkdir(parents=True)
    init = tmp_path / "root/sbin/init"
    if kind in ("good", "ends with an error"):
        shutil.copy(shutil.which("busybox"), init.with_name("busybox"))
        # The name under which busybox is called selects its applet.
        script = f"#!/sbin/busybox sh\nexit {'0' if kind == 'good' else '1'}\n"
        init.write_text(script)
    elif kind == "no loader":
        shutil.copy(shutil.which("true"), init)
    elif kind == "link to nothing":
        init.symlink_to("/lib/systemd/systemd")
    elif kind == "folder":
        init.mkdir()
    elif kind != "none":
        init.write_text("#!/bin/absent\n")
    if kind not in ("none", "link to nothing"):
        init.chmod(0o644 if kind == "not executable" else 0o755)
    script = f'fail() {{ echo "FAILED: $1"; exit; }}; new_root={tmp_path}/root; require_init; echo started'
    told = shell(tmp_path, script)
    assert told.startswith(f"FAILED: {message}") if message else told == "started\n"


def test_the_report_of_the_first_stage_is_read_back(tmp_path):
    script = """
        begin one; begin two; begin ''
        sequence=7 rollback=TPM servers='http://a
http://b' nics='52:54:00:aa:bb:01 dhcp
ens1 10.1.0.5/24'
        stated_caches=http://c image_name=i writable_mib=2 layer_server=http://a
        layers_json='{"name": "base", "sha256": "%s", "root_sha256": "%s", "verity": false}'
        warn 'output "so"' >$folder/out; warn 'a \\ b' >$folder/out
        write_report
    """.replace("%s", DIGEST)
    output = shell(tmp_path, script, 'x="y\\z"')
    report = boot_report.load(output, "n1")
    assert report.arguments.endswith('x="y\\z"')
    assert report.warnings == ('output "so"', "a \\ b")
    assert [phase.name for phase in report.phases] == ["one", "two"]
    assert (report.writable_bytes, report.layers[0].verity) == (2 << 20, False)
    assert (report.statement, report.rollback, report.servers) == (7, "TPM", ("http://a", "http://b"))
    assert report.caches == ("http://c",)
    assert report.nics == ("52:54:00:aa:bb:01 dhcp", "ens1 10.1.0.5/24")
    assert json.loads(output)["kernel"] == report.kernel


MAC, BOOTIF = "52:54:00:aa:bb:01", "BOOTIF=01-52-54-00-aa-bb-01"


def configured(tmp_path, program: str, nics: str) -> dict[str, str]:
    """Return the files by name that the first stage writes for the network service with this program."""
    root, run = tmp_path / "root", tmp_path / "below-run"
    (root / program).parent.mkdir(parents=True)
    (root / program).touch()
    # A test must not write to this machine's /run.
    text = INIT.read_text().replace("=/run/systemd", f"={run}/systemd").replace(" /run/systemd", f" {run}/systemd")
    text = text.replace("=/run/NetworkManager", f"={run}/NetworkManager")
    (tmp_path / "init-of-test").write_text(text)
    script = f"""
        . {tmp_path}/init-of-test
        new_root={root} mac={MAC} nics='{nics}'
        configure_network
    """
    assert shell(tmp_path, script, BOOTIF) == ""
    for path in run.rglob("*.nmconnection"):
        assert path.stat().st_mode & 0o777 == 0o600
    return {
        os.fspath(path.relative_to(run)): path.read_text()
        for path in run.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


NICS = f"""{MAC} dhcp
52:54:00:aa:bb:02 10.1.0.5/24 10.1.0.1

ens3np0 fd00::5/64"""


def test_each_nic_is_configured_for_systemd_networkd(tmp_path):
    files = configured(tmp_path, "usr/lib/systemd/systemd-networkd", NICS)
    read = {}
    for name, text in files.items():
        parser = configparser.ConfigParser()
        parser.optionxform = str
        parser.read_string(text)
        read[name] = {(section, key): value for section in parser.sections() for key, value in parser[section].items()}
    place = "systemd/network/90-sailloft-"
    assert read == {
        f"{place}52-54-00-aa-bb-01.network": {
            ("Match", "MACAddress"): MAC,
            ("Match", "Kind"): "!*",
            ("Network", "DHCP"): "ipv4",
            ("DHCPv4", "ClientIdentifier"): "mac",
        },
        f"{place}52-54-00-aa-bb-02.network": {
            ("Match", "MACAddress"): "52:54:00:aa:bb:02",
            ("Match", "Kind"): "!*",
            ("Link", "RequiredForOnline"): "no",
            ("Network", "Address"): "10.1.0.5/24",
            ("Network", "Gateway"): "10.1.0.1",
        },
        f"{place}ens3np0.network": {
            ("Match", "Name"): "ens3np0",
            ("Link", "RequiredForOnline"): "no",
            ("Network", "Address"): "fd00::5/64",
        },
    }
    wants = tmp_path / "below-run/systemd/system/multi-user.target.wants"
    assert os.listdir(wants) == ["systemd-networkd.service"]


def test_each_nic_is_configured_for_network_manager(tmp_path):
    files = configured(tmp_path, "usr/sbin/NetworkManager", NICS)
    place = "NetworkManager/system-connections/sailloft-"
    boot, fixed, named = (
        files[f"{place}{name}.nmconnection"] for name in (MAC.replace(":", "-"), "52-54-00-aa-bb-02", "ens3np0")
    )
    # Ubuntu 22.04's file of this name would leave the NICs without settings.
    assert files.pop("NetworkManager/conf.d/10-globally-managed-devices.conf") == ""
    assert len(files) == 3
    assert {f"mac-address={MAC}", "method=auto"} <= set(boot.splitlines())
    assert {"method=manual", "address1=10.1.0.5/24,10.1.0.1"} <= set(fixed.splitlines())
    assert {"interface-name=ens3np0", "address1=fd00::5/64", "method=disabled"} <= set(named.splitlines())


def test_an_image_without_a_network_service_is_warned_about(tmp_path):
    script = f"new_root={tmp_path} mac={MAC} nics='{MAC} dhcp'; configure_network; echo \"$warnings\""
    assert "neither NetworkManager nor systemd-networkd" in shell(tmp_path, script, BOOTIF)


def test_a_host_key_is_made_unless_the_node_has_an_identity(tmp_path):
    script = f"""
        new_root={tmp_path}/root
        chroot() {{ shift; program=$1; shift; "$program" "$@"; }}
        make_host_key
        echo "key=$host_key"
    """
    assert shell(tmp_path, script) == "key=\n"
    (tmp_path / "root/usr/bin").mkdir(parents=True)
    (tmp_path / "root/usr/bin/ssh-keygen").touch()
    (tmp_path / "root/usr/lib/sailloft").mkdir(parents=True)
    (tmp_path / "root/usr/lib/sailloft/identity").touch()
    assert shell(tmp_path, script) == "key=\n"
