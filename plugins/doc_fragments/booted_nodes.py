# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules of nodes' scripts and statements share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options for the nodes."""

    DOCUMENTATION = r"""
options:
  channels_to_come:
    description:
      - Channels that the boot servers need not have yet, for example before their first rollout.
      - A node that follows such a channel gets its script and its line after that.
    type: list
    elements: str
    default: []
  removed:
    description: Names of nodes that have left the site. What the store has about them is removed.
    type: list
    elements: str
    default: []
  nodes:
    description: The nodes of the run. A list of names stands for the variables C(node_boot_*) of each.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The node's name.
        type: str
        required: true
      mac:
        description: The MAC address of the NIC that it boots from.
        type: str
        required: true
      channel:
        description: The channel that it follows.
        type: str
      digest:
        description: The image that it is pinned to.
        type: str
      kernel_arguments:
        description: Its own kernel arguments, after the image's.
        type: list
        elements: str
        default: []
      servers:
        description:
          - Its boot servers, each C(http://ADDRESS). Use an address and not a name, because the first stage has no
            resolver. The servers have the same images and channels. Nodes of different racks may have different
            servers.
        type: list
        elements: str
        required: true
      caches:
        description:
          - The URLs from which its first stage fetches layers before it asks O(nodes[].servers), such as a cache of its
            rack. They need nothing but C(blobs/). One that fails or sends other bytes is asked for nothing more in that
            boot.
        type: list
        elements: str
        default: []
      report:
        description: The URL for its reports of refusals and boots, C(http://ADDRESS/report); empty for none.
        type: str
        default: ""
      nics:
        description:
          - The NICs that the booted node configures, in addition to the NIC that it boots from, which uses DHCP unless
            it is listed.
        type: list
        elements: dict
        default: []
        suboptions:
          mac:
            description: Its MAC address. Either this or the name is required.
            type: str
          name:
            description: Its name on the booted node.
            type: str
          address:
            description: Its address with the prefix length, or V(dhcp).
            type: str
            required: true
          gateway:
            description: The router of the default route.
            type: str
      secure_boot:
        description:
          - Whether its firmware starts only signed programs. It gets a link to the signed kernel of its image, which
            must have one, and cannot have kernel arguments of its own.
        type: bool
        default: false
"""
