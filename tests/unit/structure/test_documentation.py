# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The roles' variables and the files that the documentation names exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if (path / "meta").is_dir())
NAME = re.compile(rf"\b(?:{'|'.join(sorted(ROLES, key=len, reverse=True))})_\w+")
# Variables of the site or its devices that are no role's options, a file, a group of hosts, a field of SONiC, and a
# misspelt name as an example.
OTHERS = {
    "gpu_guest_host",
    "gpu_host_before",
    "lab_boot_mode",
    "monitoring_host",
    "monitoring_servers",
    "node_image_build_host",
    "roce_switch_asic",
    "roce_switch_headroom",
    "roce_switch_queue_buffer_bytes",
    "roce_switch_headrom",
    "scheduler_logins",
    "scheduler_type",
}
# A path in the checkout, or in the library without its directory; NAME and SITE are placeholders.
FILE = re.compile(r"`((?:[a-z0-9_]+/)+[\w.-]+\.(?:py|yml|md))`")
PLACES = [ROOT, ROOT / "plugins", ROOT / "plugins/module_utils"]
# Files of other projects and of sites.
ELSEWHERE = {"config/main.py"}
MANUAL = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "site")
PAGES = [*MANUAL, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def known():
    """Return the names of options and results of roles, of plugins and of playbooks."""
    names = {
        path.stem for folder in ("modules", "filter", "action") for path in (ROOT / "plugins" / folder).glob("*.py")
    }
    names |= {path.stem for path in (ROOT / "playbooks").glob("*.yml")} | set(ROLES)
    for role in ROLES:
        entries = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
        for entry in entries.values():
            names |= set(entry.get("options", {}))
            for line in entry.get("description", []):
                names |= set(re.findall(r"C\((\w+)\)", line)) if line.startswith("Results") else set()
    return names


KNOWN = known()


def test_pages_name_variables_that_exist():
    unknown = {}
    for page in PAGES:
        # The first column of the table of release.md has the names that are gone.
        gone = r"^\| [^|]*\|" if page.name == "release.md" else r"^$"
        text = re.sub(gone, "", page.read_text(), flags=re.M)
        unknown[str(page.relative_to(ROOT))] = set(NAME.findall(text)) - KNOWN - OTHERS
    assert {page: names for page, names in unknown.items() if names} == {}


# What a command of a page runs, and its variables.
CALL = re.compile(r"playbooks/(\w+)\.yml|sailloft\.fleet\.(\w+)")
EXTRA = re.compile(r"""-e ['"{]*([a-z]\w+)["']?[=:]""")
PLACEHOLDERS = {"MODULE", "NAME", "ROLE"}


def test_commands_name_playbooks_plugins_and_variables_that_exist():
    plugins = KNOWN | {
        path.stem for folder in ("callback", "inventory") for path in (ROOT / "plugins" / folder).glob("*")
    }
    variables = KNOWN | OTHERS | set(yaml.safe_load((ROOT / "meta/run_specs.yml").read_text())["variables"])
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    calls = [(page, name) for page, text in texts.items() for call in CALL.findall(text) for name in call if name]
    extras = [(page, name) for page, text in texts.items() for name in EXTRA.findall(text)]
    assert len(calls) > 200
    assert len(extras) > 30
    assert [call for call in calls if call[1] not in plugins | PLACEHOLDERS] == []
    assert [extra for extra in extras if extra[1] not in variables] == []


def test_pages_name_files_that_exist():
    paths = {(page, path) for page in PAGES for path in set(FILE.findall(page.read_text())) - ELSEWHERE}
    assert {
        (str(page.relative_to(ROOT)), path)
        for page, path in paths
        if not re.search(r"NAME|SITE|(group|host)_vars", path) and not any((place / path).exists() for place in PLACES)
    } == set()


def test_files_beside_an_inventory_are_hidden():
    """Ansible reads every other file of a directory as an inventory: the lines of a key become hosts."""
    named = [
        (page.name, name) for page in PAGES for name in re.findall(r"inventory_dir }}/([\w.-]+)", page.read_text())
    ]
    assert len(named) > 3
    assert [place for place in named if not place[1].startswith(".") and not place[1].endswith(".yml")] == []


LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)")
# A page as code, roles and playbooks name it, with the anchor of a heading.
MENTION = re.compile(r"(?<![\w/])(docs/[\w/-]+\.md)(?:#([\w-]+))?")


@functools.cache
def anchors(page):
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#{1,4} (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-") for heading in headings}


def dead(page, anchor):
    return not page.exists() or bool(anchor and page.suffix == ".md" and anchor not in anchors(page))


def test_links_lead_to_pages_and_headings():
    links = [(page, *link) for page in PAGES for link in LINK.findall(page.read_text())]
    assert [
        (str(page.relative_to(ROOT)), link, anchor)
        for page, link, anchor in links
        if dead((page.parent / link).resolve() if link else page, anchor)
    ] == []


def test_a_page_that_code_names_exists_with_its_heading():
    named = [
        (str(path.relative_to(ROOT)), page, anchor)
        for folder in ("plugins", "roles", "playbooks", "inventories", "extensions", "molecule")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
        for page, anchor in MENTION.findall(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert len(named) > 50
    assert [mention for mention in named if dead(ROOT / mention[1], mention[2])] == []


def test_every_page_is_in_the_index():
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link).resolve() for link, _anchor in LINK.findall(index.read_text())}
    assert {str(page.relative_to(ROOT)) for page in set(MANUAL) - linked - {index}} == set()


def test_pages_of_the_manual_can_be_read_by_users():
    """A how-to has one job, lines fit an editor, and names of tests are for contributors."""
    for page in MANUAL:
        text = page.read_text()
        assert [(page, number) for number, line in enumerate(text.splitlines(), start=1) if len(line) > 300] == []
        if page.parent.name == "how-to":
            prose = re.sub(r"^ {4}.*$", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
            words = re.sub(r"[|]|---", " ", prose).split()
            # The way from an empty inventory to virtual machines is one page, and the first that most users read.
            assert len(words) <= (1500 if page.name == "gpu-vms.md" else 600), (page, len(words))
            assert re.search(r"^(```|    )", text, re.M), f"{page}: no example"
        if page.parent != ROOT / "docs":
            assert re.findall(r"\btest_\w+", text) == [], page


def test_the_tree_in_structure_md_lists_every_folder():
    tree = (ROOT / "docs/structure.md").read_text().split("\n    playbooks/")[1].split("\n    benchmarks/")[0]
    named = set(re.findall(r"([a-z0-9_]+)/", tree))
    library = ROOT / "plugins/module_utils"
    for place in (
        ROOT / "roles",
        ROOT / "plugins",
        library,
        *(path for path in library.iterdir() if path.is_dir()),
        ROOT / "tests",
    ):
        folders = {path.name for path in place.iterdir() if path.is_dir() and path.name != "__pycache__"}
        assert folders - named == set(), place.name


def test_rows_are_in_a_table():
    """A row below a paragraph is shown as text; a row with another number of cells than the head is cut."""
    rows = []
    for page in PAGES:
        for number, line in enumerate([*page.read_text().splitlines(), ""], start=1):
            if line.startswith("|"):
                rows.append((number, len(re.sub(r"`[^`]*`", "", line).strip("|").split("|")), line))
            elif rows:
                assert re.fullmatch(r"[|: -]+", rows[1][2] if len(rows) > 1 else ""), f"{page}: no table: {rows[0]}"
                assert [(page, number) for number, cells, _text in rows if cells != rows[1][1]] == []
                rows = []


@pytest.mark.parametrize("role", [role for role in ROLES if role != "lab"])
def test_a_role_begins_with_an_example_whose_variables_exist(role):
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    example = specs["main"]["examples"]
    assert yaml.safe_load(example)
    named = set(NAME.findall(example))
    assert named - KNOWN - OTHERS == set()
    required = {name for name, option in (specs["main"].get("options") or {}).items() if option.get("required")}
    assert role == "roce_switch" or required <= named
    assert (ROOT / "roles" / role / "README.md").read_text().index(example.strip()) < 400


def test_the_exceptions_are_needed():
    named = {name for page in PAGES for name in NAME.findall(page.read_text())}
    assert not OTHERS - named
    assert not OTHERS & KNOWN
    assert len(named & KNOWN) > 100


PLUGINS = sorted(path for path in (ROOT / "plugins").glob("*/*.py") if "DOCUMENTATION = " in path.read_text())


def lines(node):
    """Yield every line of the descriptions in a documentation, including those of options and suboptions."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "description":
            yield from value if isinstance(value, list) else [value]
        else:
            yield from lines(value)


def test_descriptions_are_text():
    """A colon turns a line into a mapping, and ansible-doc then shows nothing of the plugin."""
    for plugin in PLUGINS:
        text = re.search(r'^ *DOCUMENTATION = r?"""\n(.*?)"""', plugin.read_text(), re.M | re.S)
        assert text, f"{plugin}: DOCUMENTATION is not a literal"
        assert [(plugin, line) for line in lines(yaml.safe_load(text[1])) if not isinstance(line, str)] == []


def test_docstrings_begin_with_a_verb_or_the_thing():
    question = re.compile(r'^ *r?"""(How|What|When|Where|Whether|Which|Who|Why)\b', re.M)
    folders = ("benchmarks", "docs", "extensions", "molecule", "plugins", "roles", "tests")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [str(path.relative_to(ROOT)) for path in files if question.search(path.read_text())] == []
