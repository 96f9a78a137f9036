# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules of a store of images share."""

from __future__ import annotations


class ModuleDocFragment:
    """The option for the store."""

    DOCUMENTATION = r"""
options:
  store:
    description:
      - The directory of the store, on the host that the module runs on.
      - It is created by the first image that is built or copied into it, not by this module.
    type: path
    required: true
author:
  - The Sailloft maintainers (@sailloft)
"""
