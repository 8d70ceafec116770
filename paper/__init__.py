"""The Zeus paper (NSDI '23), recomputed from its traces: every figure and table that they allow.

`lab.py` replays the policies, each family of figures has its own module in `figures/` that builds
`Exhibit`s, `style.py` defines the drawing style, and `page.py` compares the published numbers with
ours. `drift/` has a job with real data drift. `product.py` lists what is used of Zeus.
"""
