"""The embedded demo: an English high-speed-rail emergency plan written for this project."""
