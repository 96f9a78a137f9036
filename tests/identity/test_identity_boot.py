# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's script with software TPMs: which nodes open a bundle, and how all others fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess

import pytest
from identity_site import SECRET, TOKEN, files, make_keys

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity


def refused(node, why):
    """Check that no secret is written, the reason is shown and reported, and the node has a temporary host key."""
    assert node.status == 1
    assert why in node.output, node.output
    report = json.loads(node.read("run/sailloft/identity.json"))
    assert report["opened"] is False
    assert why in report["reason"]
    assert not node.has("etc/site")
    assert "temporary" in node.read("etc/ssh/ssh_host_ed25519_key.pub")
    assert os.listdir(node.root / "run/sailloft") == ["identity.json"]
    return True


def test_a_node_writes_the_secret_files_of_its_bundle(site, boot, serve):
    site.publish()
    node = boot("bm01", serve(site.store.path))
    assert node.status == 0, node.output
    assert node.read("etc/site/host_key") == SECRET
    assert node.read("etc/site/token") == TOKEN
    assert node.read("etc/site/empty") == ""
    assert stat.S_IMODE((node.root / "etc/site/host_key").stat().st_mode) == 0o600
    assert stat.S_IMODE((node.root / "etc/site").stat().st_mode) == 0o755
    assert sorted(os.listdir(node.root / "etc/site")) == ["empty", "host_key", "token"]
    assert os.listdir(node.root / "etc/ssh") == []
    # No file of the opening is left behind.
    assert os.listdir(node.root / "run/sailloft") == ["identity.json"]
    report = json.loads(node.read("run/sailloft/identity.json"))
    bundle = identity.parse(site.bundle("bm01").read_bytes(), "bm01")[0]
    assert report == {
        "format": "sailloft-identity-report/1",
        "node": "bm01",
        "opened": True,
        "ek": bundle.ek,
        "digest": bundle.digest,
        "reason": "",
    }


def test_a_node_with_a_signed_command_line_finds_name_and_servers_in_the_first_stages_report(site, boot, serve, tpms):
    """The command line of a node with Secure Boot is the same for all nodes; that of iPXE may be forged."""
    site.publish()
    report = {"format": "sailloft-boot/1", "node": "bm01", "arguments": 'x "servers": ["http://127.0.0.1:9"]'}
    report |= {"servers": ["http://127.0.0.1:9", serve(site.store.path)], "nics": ["a dhcp"]}
    for line in ("", "bm02"):
        node = boot(line, tpm=tpms["bm01"], before={"run/sailloft/boot.json": json.dumps(report)})
        assert node.status == 0, node.output
        assert node.read("etc/site/token") == TOKEN


def test_no_secret_is_in_the_output_or_in_command_arguments(site, boot, serve):
    site.publish()
    node = boot("bm01", serve(site.store.path))
    assert "tpm2_activatecredential" in node.arguments
    for secret in (
        *SECRET.splitlines()[1:2],
        TOKEN,
        identity.payload(identity.read_secrets(files(t=TOKEN), "")).split()[-1],
    ):
        text = secret if isinstance(secret, str) else secret.decode()
        assert text not in node.output
        assert text not in node.arguments
    # The key that the TPM returned is not in the arguments, either.
    assert not re.search("[0-9a-f]{64}", node.arguments)


def test_a_bundle_opens_again_after_a_power_cycle(site, boot, serve, new_tpm):
    """The endorsement key is derived again from the TPM's seed, which survives a power cycle."""
    tpm = new_tpm()
    site.nodes[0]["ek"] = tpm.ek
    site.publish()
    tpm.stop()
    tpm.start()
    assert boot("bm01", serve(site.store.path), tpm=tpm).status == 0


def test_repeated_power_cuts_do_not_lock_the_tpm(site, boot, serve, new_tpm):
    """Repeated power cuts do not lock the TPM.

    If the script used an authorization with protection against dictionary attacks, the TPM would count each power cut
    as a wrong guess, and after a few of them refuse the authorization for a while (TPM 2.0 library, part 1). A re-image
    is a power cut.
    """
    tpm = new_tpm()
    site.nodes[0]["ek"] = tpm.ek
    site.publish()
    server = serve(site.store.path)
    for _cut in range(4):  # swtpm's TPM refuses after three
        node = boot("bm01", server, tpm=tpm)
        assert node.status == 0, node.output
        tpm.stop()
        tpm.start()
    assert b"TPM2_PT_LOCKOUT_COUNTER: 0x0\n" in tpm.run("tpm2_getcap", "properties-variable")


def test_a_bundle_for_another_tpm_is_refused(site, boot, serve, tpms):
    """A machine that claims bm01's name and address is refused: the bundle is for another TPM."""
    site.publish()
    node = boot("bm01", serve(site.store.path), tpm=tpms["bm02"])
    assert refused(node, "it is for the TPM with endorsement key")


def test_another_tpm_cannot_open_the_credential(site, boot, serve, tpms):
    """Even if the bundle names that machine's TPM, the credential itself does not open."""
    site.publish()
    bundle, _signed, _signature = identity.parse(site.bundle("bm01").read_bytes(), "bm01")
    other = identity.ek_digest(identity.read_ek(tpms["bm02"].ek, "bm02"))
    text = identity.render(identity.Bundle(bundle.node, other, bundle.digest, bundle.credential, bundle.secrets))
    site.bundle("bm01").write_bytes(text + site.signer.sign([text], identity.COMMENTS)[0])
    assert refused(boot("bm01", serve(site.store.path), tpm=tpms["bm02"]), "the TPM does not open the credential")


def test_a_bundle_of_another_node_is_refused(site, boot, serve):
    site.publish()
    shutil.copy(site.bundle("bm02"), site.bundle("bm01"))
    assert refused(boot("bm01", serve(site.store.path)), "it is of node bm02")


@pytest.mark.parametrize(
    "line", [line if line in (0, 2, 5, 8) else pytest.param(line, marks=pytest.mark.long) for line in range(9)]
)
def test_a_changed_byte_is_refused(site, boot, serve, line):
    """A change is refused in each line except the first line of the signature, a comment that is not signed."""
    site.publish()
    lines = site.bundle("bm01").read_bytes().split(b"\n")
    at = line if line < 6 else line + 1
    middle = len(lines[at]) - 4
    lines[at] = (
        lines[at][:middle] + (b"A" if lines[at][middle : middle + 1] != b"A" else b"B") + lines[at][middle + 1 :]
    )
    site.bundle("bm01").write_bytes(b"\n".join(lines))
    refused(
        boot("bm01", serve(site.store.path)), "it is no" if line == 0 else "it is not signed by the key of this image"
    )


def test_a_forged_bundle_is_refused(site, boot, serve, tmp_path):
    """Anyone who knows an endorsement key can encrypt to it, so the signature decides."""
    site.signer = make_keys(tmp_path, "other")
    site.publish()
    assert refused(boot("bm01", serve(site.store.path)), "it is not signed by the key of this image")


def test_a_signature_of_the_same_key_for_another_purpose_is_refused(site, boot, serve):
    """A signature of the same key for another purpose is refused: the key signs images, too."""
    site.publish()
    _bundle, signed, _signature = identity.parse(site.bundle("bm01").read_bytes(), "bm01")
    path = site.bundle("signed")
    path.write_bytes(signed)
    subprocess.run(
        ["minisign", "-S", "-s", site.signer.secret_key, "-t", "sailloft image manifest", "-m", path], check=True
    )
    site.bundle("bm01").write_bytes(signed + site.bundle("signed.minisig").read_bytes())
    assert refused(boot("bm01", serve(site.store.path)), "it is not signed by the key of this image")


def test_a_node_that_is_not_enrolled_does_not_wait(site, boot, serve):
    site.nodes = site.nodes[1:]
    site.publish()
    assert refused(boot("bm01", serve(site.store.path), wait_s=100), "no boot server has identity/bm01")


def test_an_unreachable_server_or_an_empty_server_list_is_reported(boot):
    assert refused(boot("bm01", "http://127.0.0.1:9"), "no boot server gave identity/bm01 in 1 s")
    assert refused(boot("bm01"), "sailloft.servers on the kernel's command line is empty")


def test_the_next_server_is_tried_after_an_unusable_one(site, boot, serve, tmp_path):
    """The node goes on to the third server if one is down and one has another node's bundle."""
    site.publish()
    bad = tmp_path / "bad" / "identity"
    bad.mkdir(parents=True)
    shutil.copy(site.bundle("bm02"), bad / "bm01")
    node = boot("bm01", "http://127.0.0.1:9", serve(bad.parent), serve(site.store.path), wait_s=100)
    assert node.status == 0, node.output


@pytest.mark.parametrize("name", ["../channels/stable.ipxe", ".bm01", "bm01$(reboot)", ""])
def test_an_invalid_node_name_is_refused_before_any_request(boot, tpms, name):
    node = boot(name, "http://127.0.0.1:9", tpm=tpms["bm01"])
    assert refused(node, "sailloft.node on the kernel's command line is no node's name")
    assert "curl" not in node.arguments


def test_no_file_is_written_if_one_file_has_an_unknown_owner(site, boot, serve):
    for secret in site.nodes[0]["secrets"]:
        if secret["path"].endswith("token"):
            secret["owner"] = "nobody-of-this-name"
    site.publish()
    assert refused(boot("bm01", serve(site.store.path)), "/etc/site/token")


def test_an_existing_host_key_is_kept_if_no_server_answers(site, boot, tmp_path):
    """The script runs again and no server answers: the host key of the first run is kept."""
    node = boot("bm01", "http://127.0.0.1:9", before={"etc/ssh/ssh_host_rsa_key": "its own"})
    assert node.status == 1
    assert os.listdir(node.root / "etc/ssh") == ["ssh_host_rsa_key"]


def test_a_temporary_host_key_is_replaced_by_the_key_of_the_bundle(site, boot, serve):
    me = site.nodes[0]["secrets"][0]
    site.nodes[0]["secrets"].append({**me, "path": "/etc/ssh/ssh_host_ed25519_key", "content": SECRET})
    site.publish()
    node = boot("bm01", serve(site.store.path), before={"etc/ssh/ssh_host_ed25519_key": "temporary"})
    assert node.status == 0, node.output
    assert node.read("etc/ssh/ssh_host_ed25519_key") == SECRET


def site_files(root):
    """Return the files in the directories of the node's secrets as {path: content}."""
    folders = (root / "etc/site", root / "etc/ssh")
    return {
        str(path.relative_to(root)): path.read_text()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "ssh_host" not in path.name
    }


OLD_KEY = {"etc/site/host_key": "the key before\n"}


@pytest.mark.parametrize(
    ("in_the_way", "why"),
    [
        ("etc/site/sub", "the directory of /etc/site/sub/token cannot be made"),
        ("etc/site/sub/token/x", "is a directory"),
    ],
)
def test_all_files_are_rolled_back_if_one_cannot_be_written(site, boot, serve, in_the_way, why):
    """The first file is rolled back if the second cannot be written.

    Either the directory of the second file cannot be created, or something else has its path.
    """
    site.nodes[0]["secrets"] = files(host_key=SECRET, **{"sub/token": TOKEN})
    site.publish()
    before = {**OLD_KEY, in_the_way: "in the way"}
    node = boot("bm01", serve(site.store.path), before=before)
    assert node.status == 1
    assert why in node.output
    assert json.loads(node.read("run/sailloft/identity.json"))["opened"] is False
    assert site_files(node.root) == before


@pytest.mark.long
def test_a_kill_at_any_point_leaves_either_all_new_or_all_previous_files(site, boot, serve, tpms, tmp_path):
    site.nodes[0]["secrets"] = files(host_key=SECRET, token=TOKEN)
    site.publish()
    server = serve(site.store.path)
    after = {"etc/site/host_key": SECRET, "etc/site/token": TOKEN}
    seen = []
    for count in range(1, 99):
        (tmp_path / "counting").unlink(missing_ok=True)
        (tmp_path / "kill").write_text(f"{count}\n")
        node = boot("bm01", server, before=OLD_KEY)
        (tmp_path / "kill").unlink()
        if node.status == 0:
            break
        assert node.status == -9, node.output
        # The next run fails at once, as it has no name of a node, but first it undoes what the killed run had begun.
        boot("", server, again=node.root, tpm=tpms["bm01"])
        assert site_files(node.root) in (OLD_KEY, after), count
        assert os.listdir(node.root / "run/sailloft") == ["identity.json"]
        seen.append(site_files(node.root))
    assert OLD_KEY in seen
    assert after in seen
    assert len(seen) >= 12
    # A run that was killed during the renames is completed by the next run.
    (tmp_path / "counting").unlink()
    (tmp_path / "kill").write_text(f"{seen.index(after) - 1}\n")
    node = boot("bm01", server, before=OLD_KEY)
    assert node.status == -9
    (tmp_path / "kill").unlink()
    assert boot("bm01", server, again=node.root).status == 0
    assert site_files(node.root) == after
