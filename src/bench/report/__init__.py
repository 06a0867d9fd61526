"""The figures and tables on one page that works offline."""
