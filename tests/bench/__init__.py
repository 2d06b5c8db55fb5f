"""What the product costs over what it cannot avoid, as ratios inside one run: `python -m tests.bench`.

Times of one machine say little on another, and a busy machine doubles them. So every figure is the product's time over the
time of the bare calls that the same work needs, measured in turns (A B A B), and the median of those pairs. Nothing here is
a test of pytest: a timed test that fails on a busy machine teaches everybody to ignore it.
"""
