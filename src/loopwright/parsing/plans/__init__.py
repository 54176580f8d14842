"""Plans as text: their dialects, their graph, their calls, and the results that are passed on."""
