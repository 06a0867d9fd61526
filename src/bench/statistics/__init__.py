"""Arrays in, numbers with intervals out: nothing here knows a column, a study or a record."""
