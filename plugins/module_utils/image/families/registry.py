# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The distributions, each with its family. A family is the one file that knows a package system.

The contract of a family's file:

=============================  =========================================================================================
``ARCHITECTURES``              the architectures, by the distribution's own names
``PACKAGE``                    the pattern of one entry of a layer's ``packages``
``PURL_TYPE``                  the package-url type of its packages (package-url's "purl-types")
``BUILD_PACKAGES``             Debian packages that the build host needs
``TOOLS``                      programs of those packages that a build runs
``read_archive``               settings -> Archive; raises ImageError
``archive_inputs``             archive -> the parts of its request that only this family's images depend on
``release_digests``            layer, fetch -> the digest of each archive's list, by a name that the family chooses
``source_date_epoch``          layer, fetch -> the time stamp of the layer's files, s since 1970
``caches``                     layer, digests -> image directory -> directory of the builder's cache to mount there
``install``                    root, layer, run, digests, ``Caches``: fetch and install the layer's packages, in rooms
``script_failure``             root, output -> the package whose script failed, with its last lines; "" if none did
``packages``                   root, run -> name, version, architecture of each installed package
``packaged_files``             root, paths, run -> those of the paths that are as in the archive of an installed package
``clean``                      root, run: remove what the package system leaves that differs from build to build
``first_stage_digest``         -> the digest of the first stage's programs; empty if they are in the layer's digests
``first_stage_caches``         layer, digests -> as ``caches``, for ``first_stage_tree``
``first_stage_tree``           into, layer, digests, run, ``Caches`` -> the tree that has the first stage's programs
=============================  =========================================================================================

A new distribution of a known family needs a row here, a new release needs none; a new family needs a file in this
directory, and its rows. A name is the vendor's name in package URLs.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian, rpm

DISTRIBUTIONS = MappingProxyType({"debian": debian, "ubuntu": debian, "rhel": rpm, "rocky": rpm})


def family_of(distribution: str) -> Any:
    """Return the family's module for a distribution that ``spec`` has accepted."""
    return DISTRIBUTIONS[distribution]
