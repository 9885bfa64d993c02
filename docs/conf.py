"""Sphinx configuration. The pages under reference/ are made from the code by `python -m docs.generate`."""

project = "querist"
author = "The querist developers"
copyright = "The querist developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "querist"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
