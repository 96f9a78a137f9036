# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each link of a boot that an attacker on the boot network can alter, altered alone: refused, proven or without effect.

The table "Who is protected from whom by what" in docs/background/images.md has a row for each. Programs that firmware
refuses are in test_secure_boot.py, secrets and quotes in tests/identity.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import secure_boot
import shown_boots
from boot_images import Parts, sign, state
from boot_network import MAC, OVMF, SERVER, HttpServer, Network, Node, SoftwareTpm
from boot_reports import BOOT_S
from shown_boots import UP, SignedImage, failures

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.issue import CHANGE_S
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
    pytest.mark.skipif(not shutil.which("virt-fw-vars"), reason="no virt-fw-vars (requirements-dev.txt)"),
]
FIRMWARE_BOOT_S = 300 + BOOT_S
ATTACKER = "10.9.0.66"
OTHER_IMAGE = "0" * 64
DAY_S = 86400


@pytest.fixture(scope="module")
def made(parts: Parts, stage: Path, tmp_path_factory: pytest.TempPathFactory) -> SignedImage:
    return shown_boots.made(parts, stage, tmp_path_factory.mktemp("signed"))


@pytest.fixture
def signed(made: SignedImage, tmp_path: Path) -> SignedImage:
    """The image, in a store that the test may alter."""
    return made.copied(tmp_path / "store")


@pytest.fixture
def server(signed: SignedImage, network: Network) -> HttpServer:
    return HttpServer(network, Path(signed.image.store.path), 8001)


def altered_files(signed: SignedImage, server: HttpServer, older: bytes) -> Iterator[tuple[str, Path, bytes, str]]:
    """Yield each link, its file in the store, what an attacker puts there, and why the first stage refuses it.

    The first stage keeps the highest statement whose signature holds: those without come first, the right one is the
    last. Reasons that follow each other differ.
    """
    image, store, keys = signed.image, signed.image.store, signed.image.keys
    folder = image.parts.folder
    statement, manifest = Path(store.place("nodes", "statement")), image.file("manifest.json")
    seen = statement.read_bytes()
    node = {"digest": image.digest, "servers": [server.url], "report": f"{server.url}/report"}
    other_key = Signer(str(folder / "other.sec"), str(folder / "other.pub"))
    now_s = time.time()
    expired = state(store, keys, node, now_s - 91 * DAY_S)
    foreign = state(store, other_key, node)
    # For an hour, a statement also names the image before.
    other = state(store, keys, {**node, "digest": OTHER_IMAGE}, now_s - 2 * CHANGE_S)
    signed.follow(server, secure_boot=True)
    signature = manifest.with_name("manifest.json.minisig")
    yield "a byte of the statement", statement, seen.replace(b"10.9.0.1", b"10.9.0.9"), "the signature does not hold"
    yield "no statement", statement, b"", "no answer"
    yield "a statement of another key", statement, foreign, "the signature does not hold"
    yield "an older statement", statement, older, "which this node has seen"
    yield "an expired statement", statement, expired, "has expired at"
    yield "a statement of another image", statement, other, f"the signed kernel is that of image {image.digest}, but"
    data = manifest.read_bytes()
    yield (
        "a byte of the manifest",
        manifest,
        data.replace(b'"writable_mib": 64', b'"writable_mib": 65'),
        "sha256 wanted",
    )
    before = signature.read_bytes()
    # Otherwise, minisign would write into the file of all stores.
    signature.unlink()
    sign(image, "other")
    foreign = signature.read_bytes()
    write_atomic(signature, before)
    yield "a manifest of another key", signature, foreign, "the signature does not hold"
    layer = image.blob(image.manifest.layers[-1].sha256)
    data = layer.read_bytes()
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    yield "a byte of a layer", layer, changed, f"sha256 wanted {layer.name}"


def test_each_altered_file_is_refused_and_the_right_ones_boot(
    signed: SignedImage, server: HttpServer, network: Network
):
    """Two boots with a TPM, the second from a server whose files are altered one after the other."""
    image = signed.image
    node = {"digest": image.digest, "servers": [server.url], "report": f"{server.url}/report"}
    older = state(image.store, image.keys, node)
    signed.follow(server, secure_boot=True)
    network.dnsmasq([server.url], signed=Path(image.store.path))
    secure_boot.enrolled(network.folder / "variables.fd", signed.signer)
    tpm = SoftwareTpm(network)
    first = Node(network, tpm.options(), "secure")
    assert failures(first.wait_for(UP, FIRMWARE_BOOT_S), signed, server) == []
    first.stop()

    links = list(altered_files(signed, server, older))
    right = {path: path.read_bytes() for _link, path, _data, _reason in links}
    second, console, before = None, "", links[0][1]
    for link, path, data, reason in links:
        write_atomic(path, data)
        # Only now is the last file right again: the node asks for the next one at once.
        if before != path:
            write_atomic(before, right[before])
        second = second or Node(network, tpm.options(), "secure")
        assert second.wait_for(reason, FIRMWARE_BOOT_S, len(console)), link
        console, before = second.console, path
    assert "starting test-node" not in console
    write_atomic(before, right[before])
    assert failures(second.wait_for(UP, BOOT_S), signed, server) == []
    files = [report["file"] for report in server.reports() if report["event"] == "refused"]
    folder = f"images/{image.digest}"
    assert list(dict.fromkeys(files)) == [
        "nodes/statement",
        f"{folder}/manifest.json",
        f"{folder}/manifest.json.minisig",
        f"blobs/{image.manifest.layers[-1].sha256}",
    ]


# What an attacker's DHCP server says in place of texts of the site's.
DHCP = {
    "next server": {f",,{SERVER}\n": f",,{ATTACKER}\n"},
    "boot servers": {f'224,"http://{SERVER}:8001"': f'224,"http://{SERVER}:8002"'},
    "router and name servers": {
        "option:router\n": f"option:router,{ATTACKER}\n",
        "option:dns-server\n": f"option:dns-server,{ATTACKER}\n",
    },
}


@pytest.mark.parametrize("option", DHCP)
def test_no_answer_of_dhcp_changes_what_a_node_with_secure_boot_runs(
    signed: SignedImage, server: HttpServer, network: Network, tmp_path: Path, option: str
):
    signed.follow(server, secure_boot=True)
    secure_boot.enrolled(network.folder / "variables.fd", signed.signer)
    network.dnsmasq([server.url], signed=Path(signed.image.store.path), altered=DHCP[option])
    transfers = network.tftp(ATTACKER, network.folder / "tftp")
    attacker = attackers_server(signed, network, tmp_path)
    console = Node(network, [], "secure").wait_for(UP, FIRMWARE_BOOT_S)
    assert failures(console, signed, server) == []
    # The attacker was asked, for the program that the firmware verifies, or for the signed statement.
    assert ("sent " in transfers.read_text()) == (option == "next server")
    asked = [line.split()[6] for line in attacker.requests().splitlines()]
    assert asked == (["/nodes/statement"] if option == "boot servers" else [])


def attackers_server(signed: SignedImage, network: Network, folder: Path) -> HttpServer:
    """Start a server that has the site's statement and scripts, and layers that nobody has signed."""
    theirs = signed.copied(folder / "attacker")
    for layer in signed.image.manifest.layers:
        write_atomic(theirs.image.blob(layer.sha256), b"not the layer")
    return HttpServer(network, Path(theirs.image.store.path), 8002)


def test_the_same_program_boots_without_secure_boot_and_only_the_proof_says_so(
    signed: SignedImage, server: HttpServer, network: Network
):
    """So a node may be switched before its firmware is, and who turns Secure Boot off is seen."""
    signed.follow(server, secure_boot=True)
    shutil.copy(OVMF / "OVMF_VARS_4M.fd", network.folder / "variables.fd")
    network.dnsmasq([server.url], signed=Path(signed.image.store.path))
    console = Node(network, [], "secure").wait_for(UP, FIRMWARE_BOOT_S)
    assert failures(console, signed, server) == [f"{boot_claims.VERIFIED}: False"]


ARGUMENTS_CLAIM = "the kernel arguments are those of the image, then those of the node"
WORDS_CLAIM = "the command line has no other words of the boot than its script writes"
WARNINGS_CLAIM = "the first stage has warned of nothing"
# A node's script, or with a digest that of its image: what is altered, and the claims that do not hold.
SCRIPTS = {
    "another word": (" from_the_node=1", " from_the_node=1 module.x=1", {ARGUMENTS_CLAIM}),
    "other servers": (f"set servers http://{SERVER}:8001", f"set servers http://{SERVER}:8002", {WORDS_CLAIM}),
    "another node": ("set node bm01", "set node bm02", {WORDS_CLAIM, WARNINGS_CLAIM}),
    "another URL for reports": (f":8001/report{chr(10)}", f":8002/report{chr(10)}", {WORDS_CLAIM}),
    "another image": ("sailloft.image={digest}", f"sailloft.image={OTHER_IMAGE}", {WORDS_CLAIM, WARNINGS_CLAIM}),
}


@pytest.mark.parametrize("change", SCRIPTS)
def test_an_altered_script_of_ipxe_boots_the_right_image_and_the_proof_names_the_change(
    signed: SignedImage, server: HttpServer, network: Network, tmp_path: Path, change: str
):
    """With BIOS. What the script says in place of the kernel or of the first stage, no proof can see."""
    image = signed.image
    signed.follow(server, secure_boot=False)
    ours, theirs, claims = SCRIPTS[change]
    ours = ours.format(digest=image.digest)
    script = (
        image.file("boot.ipxe")
        if image.digest in ours
        else Path(image.store.place("nodes", f"{MAC.replace(':', '-')}.ipxe"))
    )
    text = script.read_text()
    assert ours in text
    write_atomic(script, text.replace(ours, theirs).encode())
    network.dnsmasq([server.url])
    attackers_server(signed, network, tmp_path)
    console = Node(network, []).wait_for(UP, BOOT_S)
    assert {failure.partition(": ")[0] for failure in failures(console, signed, server, secure_boot=False)} == claims
