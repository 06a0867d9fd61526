"""How long anything here waits for another program, and how often it looks at one."""

LOOK_S = 1.0  # time between two looks at what another program does (s); convention
SOON_S = 5.0  # time within which a program that is well answers a small question: after it its user hears of it (s); convention
PATIENCE_S = 60.0  # longest wait for an answer, or for an end, before it is given up (s); convention
