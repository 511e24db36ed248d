"""Measures qframe beside a bare loop, on the same machine and in the same run."""
