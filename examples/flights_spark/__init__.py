"""The flights of 2013, from Spark through decorated handlers and back into Spark, to the row."""
