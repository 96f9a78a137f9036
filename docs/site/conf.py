# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Sphinx configuration of the documentation site; `docs/site/build` runs it on a copy of the tracked files."""

from __future__ import annotations

project = "Sailloft"
copyright = "the Sailloft maintainers"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
# Code blocks that are indented have no language.
highlight_language = "none"
# "{{ variable }}" and half a configuration file are no valid YAML or console output: they are shown as they are.
suppress_warnings = ["misc.highlighting_failure", "config.cache"]

root_doc = "docs/site/index"
include_patterns = [
    "docs/*.md",
    "docs/**/*.md",
    "reference/**.rst",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "inventories/vela/README.md",
    "inventories/blue_vela/README.md",
    "tests/recordings/README.md",
]
nitpicky = True
# Pages of Ansible and of other collections are on other servers, which are not asked.
nitpick_ignore_regex = [
    (
        "(std:)?ref",
        r"common_return_values|(action|callback|inventory|cache)_plugins?|ansible_configuration_settings|ansible_collections\.(ansible|community)\..*",
    ),
    ("envvar", r"ANSIBLE_.*"),
]
default_role = "any"

html_theme = "sphinx_rtd_theme"
html_theme_options = {"vcs_pageview_mode": "edit", "navigation_depth": 2}
html_short_title = "Sailloft"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_smartypants = False
