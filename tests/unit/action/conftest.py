# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An action of a real task, without a host to connect to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.template import Templar


@pytest.fixture
def make():
    """Return a function that makes an action plugin's object for a task with these arguments."""

    def made(module, check_mode=False, diff=False, **arguments):
        name = module.__name__.rpartition(".")[2]
        task = Task.load({"action": f"sailloft.fleet.{name}", "args": arguments})
        task.check_mode, task.diff = check_mode, diff
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir="/nowhere"))
        loader = DataLoader()
        return module.ActionModule(task, connection, PlayContext(), loader, Templar(loader), None)

    return made
