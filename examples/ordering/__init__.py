"""Payment events that come twice and in any order, brought to the right end in three ways."""
