# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception of this package."""


class TopologyError(ValueError):
    """A topology that cannot be read or contradicts itself; the message names the place and the next step."""
