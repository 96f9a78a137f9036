# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands of the builder: their output is passed on as it arrives, and a fault ends them."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import process
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

SLOW = ImageError("too slow", "give another", subject="layer base")


def test_output_is_shown_line_by_line_and_returned_with_the_status():
    lines: list[str] = []
    done = process.run(["sh", "-c", "echo one; echo two >&2; exit 3"], show=lines.append)
    assert (done.returncode, done.stdout, lines) == (3, "one\ntwo\n", ["one", "two"])


def test_a_missing_program_is_named():
    with raises(ImageError, "no-such-tool", "installed"):
        process.run(["/usr/bin/no-such-tool"])


def test_a_fault_ends_the_command_and_its_child_processes(monkeypatch):
    """The children of the command have the pipe open, too, and would keep it open for a minute."""
    monkeypatch.setattr(process, "CHECK_S", 0.01)
    answers = iter([None, None, SLOW])
    with pytest.raises(ImageError) as error:
        process.run(["sh", "-c", "sleep 60 & sleep 60"], fault=lambda: next(answers))
    assert error.value is SLOW


def test_a_command_that_ends_before_the_check_for_faults_succeeds(monkeypatch):
    monkeypatch.setattr(process, "CHECK_S", 30)
    assert process.run(["echo", "done"], fault=lambda: SLOW).stdout == "done\n"


@pytest.mark.parametrize("secret", ["ops:s3cret", "token", "ops:s3@cr:et"])
def test_user_and_password_of_a_url_are_in_no_output(secret):
    lines = []
    script = f"echo proxy http://{secret}@proxy.example:3128/ and root@host"
    done = process.run(["sh", "-c", script], show=lines.append)
    assert done.stdout.splitlines() == lines == ["proxy http://***@proxy.example:3128/ and root@host"]
