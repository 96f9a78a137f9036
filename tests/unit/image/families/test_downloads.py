# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The minimum rate of apt's downloads, measured by the growth of the file."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.downloads import (
    LEAST_BYTES_PER_S,
    WINDOW_S,
    Downloads,
)

DEB = "linux-image_6.1_amd64.deb"


class Apt:
    """A simulated apt: the bytes that it has received, and the time."""

    def __init__(self, folder):
        self.now_s = 0.0
        self.partial = folder / "archives" / "partial"
        self.partial.mkdir(parents=True)
        self.judge = Downloads("layer base", [folder / "archives", folder / "lists"], lambda: self.now_s)

    def passes(self, seconds, received=0, name=DEB):
        """Let time pass in which ``received`` bytes of a file arrive; return the error, if there is one."""
        with (self.partial / name).open("ab") as file:
            file.truncate(file.tell() + received)
        self.now_s += seconds
        return self.judge()


@pytest.fixture
def apt(tmp_path):
    return Apt(tmp_path)


def test_a_slow_download_is_refused_with_its_name_and_rate(apt):
    assert apt.passes(WINDOW_S, 1000) is None  # the download began in this window
    assert apt.passes(WINDOW_S / 2, 600) is None
    error = apt.passes(WINDOW_S / 2, 600)
    assert str(error) == Mentions("base", DEB, "20", "60", "65536")


def test_a_download_at_the_minimum_rate_is_accepted(apt):
    for _second in range(3):
        assert apt.passes(WINDOW_S, LEAST_BYTES_PER_S * WINDOW_S) is None


def test_a_file_that_does_not_grow_is_ignored(apt):
    """The file is left over from another run, or waits to be verified, or apt's own timeout ends its download."""
    for _second in range(3):
        assert apt.passes(WINDOW_S) is None


def test_consecutive_downloads_of_small_files_are_accepted(apt):
    for number in range(3):
        assert apt.passes(WINDOW_S, 10, f"{number}.deb") is None
        (apt.partial / f"{number}.deb").rename(apt.partial.parent / f"{number}.deb")


def test_a_missing_folder_has_no_downloads(tmp_path):
    now = iter([0.0, 2.0 * WINDOW_S])
    assert Downloads("layer base", [tmp_path / "none"], lambda: next(now))() is None
