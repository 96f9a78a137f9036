# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that this package raises."""

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

READ_AGAIN = "read or record the host again"


class TopologyError(SailloftError):
    """A topology that cannot be read or contradicts itself; the message names the place and the next step.

    The default remedy is for a file that no reader understands, whether the kernel or a recording wrote it.
    """

    def __init__(self, cause: str, remedy: str = READ_AGAIN, *, subject: str = "") -> None:
        super().__init__(cause, remedy, subject=subject)
