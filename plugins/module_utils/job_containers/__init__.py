# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refuse a Python that is too old."""

import ansible_collections.sailloft.fleet.plugins.module_utils.common.least_python  # noqa: F401
