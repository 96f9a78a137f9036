# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bundles that are bound to the site's signed policies: a TPM opens them only after a boot of one of its images."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from identity_site import TOKEN, power_on
from programs import boot_program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identities
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import policy
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot

IMAGES = ("1" * 64, "2" * 64)


def pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a Secure Boot key and its certificate, as docs/how-to/secure-boot.md says."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    command = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


def predicted(site, image: str, key: Path, certificate: Path) -> None:
    """Put the image's prediction with signed policies into the store."""
    found = SecureBoot(certificate, key, (), None).predict(image, boot_program(image))
    place = Path(site.store.place("images", image))
    place.mkdir(exist_ok=True)
    (place / "pcrs.json").write_bytes(found)


@pytest.fixture
def start(site, boot, serve, new_tpm, tmp_path):
    """start(image, program): boot bm01's machine and run its script; the bundle is published once, before."""
    tpm, url = new_tpm(), serve(site.store.path)
    key, certificate = pair(tmp_path, "site")
    predicted(site, IMAGES[0], key, certificate)
    site.nodes[:] = [{**site.nodes[0], "ek": tpm.ek, "measured": True}]
    bound = policy.secrets_policy(policy.public_key(certificate))
    nodes = identities.read_nodes(site.nodes, bound)
    assert identities.ensure(site.store, nodes, site.signer, False).written == ("bm01",)
    assert identities.ensure(site.store, nodes, site.signer, False).written == ()

    def run(image: str, program: bytes | None = None):
        power_on(tpm, image, program or boot_program(image))
        report = {"format": "sailloft-boot/1", "node": "bm01", "image": image, "name": "gpu-node", "servers": [url]}
        return boot("", tpm=tpm, before={"run/sailloft/boot.json": json.dumps(report)})

    run.sign = lambda image: predicted(site, image, key, certificate)
    run.pair = (key, certificate)
    run.site = site
    return run


def refused(node) -> str:
    assert node.status == 1
    assert not node.has("etc/site")
    return json.loads(node.read("run/sailloft/identity.json"))["reason"]


def test_a_new_image_opens_the_bundle_as_soon_as_the_site_has_built_it(start):
    first, second = IMAGES
    node = start(first)
    assert node.status == 0, node.output
    assert node.read("etc/site/token") == TOKEN
    assert f"what image {second} measures is not on" in refused(start(second))
    start.sign(second)
    assert start(second).status == 0


def test_a_boot_that_the_site_has_not_signed_does_not_open_the_bundle(start):
    image = IMAGES[0]
    altered = boot_program(image, cmdline=b"init=/bin/sh sailloft.signed=1")
    assert "the site has signed no policy" in refused(start(image, altered))


def test_a_policy_that_another_key_has_signed_does_not_open_the_bundle(start, tmp_path):
    """An attacker with a boot server signs a policy for the system that they boot, with a key of their own."""
    other = pair(tmp_path, "other")
    predicted(start.site, IMAGES[0], *other)
    assert "the TPM does not open the credential" in refused(start(IMAGES[0]))
    # The site's key is named, and the signature is the other one's.
    place = Path(start.site.store.place("images", IMAGES[0], "pcrs.json"))
    data = json.loads(place.read_bytes())
    start.sign(IMAGES[0])
    data["policy_key"] = json.loads(place.read_bytes())["policy_key"]
    place.write_text(json.dumps(data, indent=2, sort_keys=True))
    assert "the signature of the policy does not hold" in refused(start(IMAGES[0]))
