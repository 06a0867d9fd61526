"""How much of what others send is read, how long anything here waits for them, and how often it looks at them."""

# most bytes of an answer, or of a file of another's, that is read into the memory; convention: expositions of large servers have
# 0.1 MiB, locks with the hashes of all wheels 1 MiB
MOST_BYTES = 8 * 2**20
LOOK_S = 1.0  # time between two looks at what another program does (s); convention
SOON_S = 5.0  # time within which a program that is well answers a small question: after it its user hears of it (s); convention
PATIENCE_S = 60.0  # longest wait for an answer, or for an end, before it is given up (s); convention
