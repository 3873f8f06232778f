"""A benchmark that `build` made of any document: the folder is the data."""
