"""GPQA-Diamond: graduate questions in biology, physics and chemistry."""
