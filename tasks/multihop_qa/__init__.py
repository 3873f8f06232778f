"""Multi-hop question answering with search inside the reasoning (R1-Searcher and its sets)."""
