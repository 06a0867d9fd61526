"""How anything is shown: what a figure is and how it is drawn, answers, notes. No finding is known here by name."""
