"""What qframe does per second, beside a bare loop on the same machine in the same run."""
