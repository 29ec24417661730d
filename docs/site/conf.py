"""How Sphinx makes the site (``make docs``).

Its source folder is the repository and the pages keep their places, so a link that works between the files works on the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "purefx"
extensions = ["myst_parser", "sphinx.ext.autodoc", "extension", "sphinx.ext.linkcode"]

root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
exclude_patterns = ["docs/site", ".*", "build", "dist"]

html_theme = "furo"
html_title = "purefx"
html_copy_source = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = False

myst_heading_anchors = 4

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100

nitpicky = True
nitpick_ignore_regex = [
    # Libraries whose sites cannot be asked without a network.
    (
        "py:.*",
        r"(torch|collections|enum|os|pathlib|typing)\..*|ExportedProgram|FlatArgsAdapter|UnflattenedModule",
    ),
    ("py:.*", r"PipelineStage|ProcessGroup"),
    # What is inside: a signature or a field names it, and nobody writes it.
    (
        "py:.*",
        r"purefx\.(transforms\.rules|lowering\.calls|laws\.strategies|ir\.persistent|ir\.inference)\..*|Scope|Through|Origin|_Written",
    ),
]
