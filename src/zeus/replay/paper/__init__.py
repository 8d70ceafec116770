"""The Zeus paper (NSDI '23), recomputed from its traces: every figure and table that they allow.

`lab.py` runs the policies, each family of figures has a module of its own that makes `Exhibit`s,
`style.py` draws and `page.py` sets the published numbers beside ours. `catalogue.py` lists all.
"""
