"""Drawing for all parts of Zeus: shapes, axes, labels, colors, units.

Other packages describe a plot as a `Picture`; this one renders it as SVG without any library, as
PNG by matplotlib, or into a page, in light and dark mode. `frontier` draws frontiers; the rest is
independent of energy.
"""
