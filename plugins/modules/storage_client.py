#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Bring a node to its storage, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_client
short_description: Give a node its storage, local drives, NFS and S3 with their caches
version_added: 0.1.0
description:
  - Makes XFS on local NVMe drives, single or striped by md, mounts them by label, mounts NFS (over RDMA, cached by
    cachefilesd) and S3 buckets (with rclone's cache), and reads back what is mounted.
  - A drive is written only if it is blank and nothing uses it, or if its only signature is that of a file system or
    array of O(local). Every other drive is refused before anything is changed.
  - A service makes file systems that are missing before they are mounted at boot, so that the module works in an image,
    whose root is a chroot on the host that builds it. There it writes and enables units only.
  - What is left out is unmounted and its units are removed; the data stays.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  local:
    description:
      - File systems on local drives. Each has a C(name), its label, of 1 to 10 small letters and digits, the last a
        letter; and either C(drives), a list of PCI addresses, or C(numa_node) with C(count), the number of drives to
        choose of those that are blank or have its label.
      - "C(layout): C(stripe) (the default) joins the drives to one file system; C(single) makes one on each, with the
        labels and paths C(NAME0), C(NAME1)."
      - "C(path), by default C(/NAME). C(purpose): C(scratch) (mode 1777), C(cache) (0700) or C(checkpoints) (0755);
        C(mode), C(owner) and C(group) of the directory."
      - "C(keep): true, the default, uses a file system that has the label on, also on a node that was imaged again;
        false makes it anew in a system that did not make it."
    type: list
    elements: dict
    default: []
  nfs:
    description:
      - "NFS exports: C(source) (SERVER:/PATH), C(path), C(rdma) (with port 20049), C(cache), the name in O(local) where
        cachefilesd keeps what was read, and C(options), a list of those of nfs(5)."
    type: list
    elements: dict
    default: []
  s3:
    description:
      - "S3 buckets as files: C(name), C(endpoint), C(bucket) (or BUCKET/PREFIX), C(path), C(cache), the name in
        O(local) for rclone's cache, its C(size_gib), and optionally C(min_free_gib) (rclone 1.62 or newer),
        C(read_only), C(provider) (rclone's name of it) and C(region)."
      - All users of the node can write to a bucket that is not C(read_only).
    type: list
    elements: dict
    default: []
  s3_keys:
    description:
      - "The keys by name of O(s3): C(access_key_id) and C(secret_access_key). They are written to
        C(/etc/sailloft/s3_NAME.env), which only root can read. Without them, the file is left as it is."
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Stripe four drives, and cache the home directories there
  sailloft.fleet.storage_client:
    local:
      - name: cache
        numa_node: 0
        count: 4
        purpose: cache
    nfs:
      - source: nas1:/home
        path: /home
        rdma: true
        cache: cache
"""

RETURN = r"""
file_systems:
  description: >-
    The file systems of local drives as they were read back, in check mode as they are; C(stripe_unit_bytes) and
    C(stripe_width_bytes) are those in the superblock.
  returned: success
  type: list
  elements: dict
  sample:
    - label: cache
      path: /cache
      device: /dev/md127
      drives: ["0000:5e:00.0", "0000:5f:00.0"]
      uuid: 6dec2661-f816-421c-9c0d-6822e4b5be6f
      stripe_unit_bytes: 524288
      stripe_width_bytes: 1048576
pending:
  description: Always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.ensure import ensure, options


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=options(), supports_check_mode=True)
    finish_on_host(module, lambda: ensure(System(), module.params, in_chroot(), module.check_mode), live=False)


if __name__ == "__main__":
    main()
