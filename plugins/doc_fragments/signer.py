# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules share that sign what nodes accept."""

from __future__ import annotations


class ModuleDocFragment:
    """The options for the site's signer."""

    DOCUMENTATION = r"""
options:
  signing_key:
    description: minisign's secret key, a file on this host. Needed without O(signing_command).
    type: path
  signing_password:
    description: The secret key's password, if it has one.
    type: str
  signing_command:
    description:
      - A command of the site that signs, with its arguments, in the place of a key file.
      - It gets the data on its standard input and prints the signature as C(minisign -S) writes it. The environment
        variable C(TRUSTED_COMMENT) has the trusted comment, which bundles of secrets need.
    type: list
    elements: str
    default: []
  public_key:
    description: The public key of the pair, a file on this host. Images have it in their first stage.
    type: path
    required: true
"""
