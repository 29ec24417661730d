"""Compare and trace programs: digest, diff, the history of nodes, and the numbers (sizes, shapes) that a graph computes."""
