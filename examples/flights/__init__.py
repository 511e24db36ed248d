"""Every departure from New York in 2013, through two decorated handlers, counted exactly."""
