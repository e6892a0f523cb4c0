"""Two simulations: of versions, in this package, and of rows, in ``data``.

    python -m tests.simulation --seeds 10000             # of rows: the first 10,000 seeds
    python -m tests.simulation --seed 17                 # one of them again, with all that happens
    python -m tests.simulation --without moment          # take a safeguard out: it must be missed
    python -m tests.simulation --versions --seeds 1000   # of versions
    python -m tests.simulation --versions --eager        # parts publish what they did at once: it must be seen

Of versions: several processes on one catalog, in one thread: a seed decides what each of them does next, when
it dies, and when it hears of what. Processes start copies, create and drop streams, tables and indexes, write
and read, step the operations they own, cancel others, die after a transaction and are replaced; those thought
dead come back; publications reach each process late and in any order. After every action all visible versions
must agree. In the end everything is brought to rest: nothing may be left over, and every copy holds what its
source held at the step of the cut.
"""
