"""What moves throughput where several factors are crossed: correlations, importance, panels."""
