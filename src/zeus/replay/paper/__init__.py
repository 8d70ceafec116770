"""The Zeus paper (NSDI '23), recomputed from its traces: every figure and table that they allow.

`lab.py` runs the policies, each family of figures has its own module that builds `Exhibit`s,
`style.py` defines the drawing style, and `page.py` compares the published numbers with ours.
`catalogue.py` lists all exhibits.
"""
