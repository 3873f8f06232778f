"""Building a benchmark from a document: pages, questions, checks, splits, training rows.

`documents` makes page chunks of a file, `ask` has a model behind an endpoint propose questions,
`checks` accepts them or says why not, `split` makes test, SFT, RL and Zero sets, `folder` is what
is on disk and how a killed build goes on, and `builder` is one build of all of these.
"""
