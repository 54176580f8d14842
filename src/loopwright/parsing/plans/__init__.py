"""Plans as text: their graph, their calls, the formats models write them in, and results that are passed on."""
