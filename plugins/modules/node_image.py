#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Build and publish stateless images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image
short_description: Build stateless images and publish them in a store
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.signer]
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Builds images from layers and publishes them by digest. Each layer is a squashfs with its dm-verity tree. The same
    settings give the same bytes, on any machine and at any time.
  - A layer is built again only if it, a layer below it, or one of its archives changed. A run without changes takes
    seconds, and needs the network only for the archives' release files.
  - Builds as root, on a host with overlayfs and user namespaces. A build that fails or is killed leaves no mount, and
    nothing in the store.
  - Scripts of packages, and roles, run in a room without network, from which they reach nothing of the host; see
    docs/background/images.md.
  - Its action plugin shows the progress during the build.
options:
  layers:
    description: The layers by name; see docs/how-to/node-images.md, and the role's argument specification.
    type: dict
    required: true
  images:
    description: The images by name, each with its topmost layer.
    type: dict
    required: true
  store:
    description: The directory of the store; it is created if it is missing.
    type: path
    default: /srv/sailloft
  cache:
    description: >-
      The directory of built layers, downloaded packages, first stages, temporary files and, until the next build of the
      layer, the log of a layer that failed. Its file system must support a writable overlayfs, such as ext4 or xfs.
    type: path
    default: /var/cache/sailloft/images
  secure_boot:
    description: >-
      How images are signed for firmware with Secure Boot. With it, each image also has C(boot.efi): kernel, first stage
      and command line in one signed program (a unified kernel image). See docs/how-to/secure-boot.md.
    type: dict
    suboptions:
      certificate:
        description: The certificate that nodes have in db, a PEM file on this host. Without it, nothing is signed.
        type: path
      key:
        description: The certificate's RSA key, a PEM file without password on this host.
        type: path
      signing_command:
        description: >-
          A command of the site that signs, with its arguments, in the place of O(secure_boot.key). It gets the
          program on its standard input and prints it signed.
        type: list
        elements: str
      policy_signing_command:
        description: >-
          A command of the site that signs TPM policies with the certificate's key, RSA of 2048 bits, for secrets that
          are bound to what was booted. It gets 32 bytes on its standard input and prints their signature
          (RSASSA-PKCS1-v1_5 with SHA-256). O(secure_boot.key) signs policies by itself.
        type: list
        elements: str
      archive:
        description: >-
          The archive of ukify and systemd's stub, version 257 or later, as an archive of a layer; the settings that are
          left out are those of Debian 13. The packages are unpacked in the cache.
        type: dict
  first_stage:
    description: The text of the first stage's script. The action plugin sets it to that of the collection.
    type: str
  ansible_configuration:
    description:
      - The build host's ansible.cfg, which has the paths of the layers' roles. The default is the file that Ansible
        finds there; if the build host is the controller, the action plugin sets it to the one in use.
    type: path
  progress:
    description: A file to which progress is appended, in lines; the action plugin reads it.
    type: path
requirements:
  - bubblewrap, mmdebstrap, squashfs-tools, cryptsetup-bin, minisign, zstd
  - dnf, rpm, busybox-static and dmsetup for images of RPM packages
  - skopeo and umoci for layers that begin with a container image
  - osslsigncode with O(secure_boot)
  - cyclonedx-python-lib (Python)
attributes:
  check_mode:
    description: >-
      Can run in check mode and return changed status prediction without modifying target. Layers that changed are built
      into the cache, so that the difference is the one that the run then publishes; the store stays as it is.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Build one image of two layers
  sailloft.fleet.node_image:
    signing_key: /etc/sailloft/image.key
    public_key: /etc/sailloft/image.pub
    layers:
      base:
        distribution: debian
        suite: bookworm
        architecture: amd64
        archives:
          - url: http://deb.debian.org/debian
            suites: [bookworm]
            components: [main]
            keyring: /usr/share/keyrings/debian-archive-keyring.gpg
        packages: [linux-image-amd64, systemd-sysv, udev, dbus, iproute2, openssh-server]
      site:
        parent: base
        packages: [rdma-core]
        files:
          - {path: /etc/motd, content: "GPU node\n"}
    images:
      gpu-node: {layer: site}
"""

RETURN = r"""
images:
  description: The result for each image.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    digest:
      description: Its digest; in check mode, the expected one.
      type: str
    changed:
      description: Whether the store had another current image of this name.
      type: bool
    built:
      description: The layers that were not in the cache.
      type: list
      elements: str
    size_bytes:
      description: Bytes that a node fetches to boot it.
      type: int
"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.common.progress import to_file
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import build
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.secure_boot import read_secure_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign

SECURE_BOOT = {
    "certificate": {"type": "path"},
    "key": {"type": "path", "no_log": False},
    "signing_command": {"type": "list", "elements": "str"},
    "policy_signing_command": {"type": "list", "elements": "str"},
    "archive": {"type": "dict"},
}


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "layers": {"type": "dict", "required": True},
            "images": {"type": "dict", "required": True},
            "store": {"type": "path", "default": "/srv/sailloft"},
            "cache": {"type": "path", "default": "/var/cache/sailloft/images"},
            **sign.OPTIONS,
            "secure_boot": {"type": "dict", "options": SECURE_BOOT},
            "first_stage": {"type": "str"},
            "ansible_configuration": {"type": "path"},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    os.umask(0o022)
    if params["ansible_configuration"]:
        os.environ["ANSIBLE_CONFIG"] = params["ansible_configuration"]

    def work() -> dict[str, Any]:
        signer = sign.Signer.of_options(params)
        if not params["first_stage"]:
            raise ImageError(
                "no script was given",
                "use the module through its action plugin, or give its text",
                subject="first_stage",
            )
        setting = BuildEnvironment(
            # systemctl --root does not accept ".." in the path of its root.
            store=Path(params["store"]).resolve(),
            cache=Path(params["cache"]).resolve(),
            signer=signer,
            secure_boot=read_secure_boot(params["secure_boot"]),
            init=params["first_stage"],
            check=module.check_mode,
            open_url=open_url,
        )
        try:
            outcomes = build.build(
                read_images(params["images"], params["layers"]), setting, to_file(params["progress"])
            )
        except OSError as error:
            place = str(error.filename or params["cache"])
            raise ImageError(str(error.strerror), "check the disk, and run again", subject=place) from error
        return {
            "changed": any(outcome.changed for outcome in outcomes),
            "images": [
                {name: value for name, value in asdict(outcome).items() if name != "diff"} for outcome in outcomes
            ],
            "diff": [{"prepared": "\n".join(outcome.diff) + "\n"} for outcome in outcomes if outcome.diff],
        }

    finish(module, work)


if __name__ == "__main__":
    main()
