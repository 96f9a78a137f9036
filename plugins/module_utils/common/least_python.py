# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refuse a Python that is too old for the library, before the rest of a module is imported.

Every package of the library imports this file first. ansible-core 2.20 and later refuses such a host itself; before,
the library's first import fails with an error that names neither Python nor a remedy. This file must run on Python 3.6.
"""

import json
import platform
import sys

LEAST = (3, 9)  # RHEL 9's and Debian 11's

if sys.version_info < LEAST:
    MESSAGE = (
        "{}: Sailloft needs Python {}.{} or later on a host, but {} is Python {}; install a later one, and name it in "
        "the host's ansible_python_interpreter"
    ).format(platform.node(), *LEAST, sys.executable, platform.python_version())
    # A module's result. An exception would be reported with the whole traceback.
    sys.stdout.write(json.dumps({"failed": True, "msg": MESSAGE}) + "\n")
    raise SystemExit(1)
