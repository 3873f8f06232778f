"""HumanEval: 164 functions to write, judged by running their tests."""
