"""The benchmark: the raw database loop beside ours, in the same run, interleaved; medians, and ratios to quote.

Absolute figures say what this machine did at this hour. The ratio says what the queue costs.
"""
