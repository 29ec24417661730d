"""Analyses of graphs and programs: digest, diff, slices, numbers, and the history of nodes."""
