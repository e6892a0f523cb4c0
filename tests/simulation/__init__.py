"""Two simulations of several processes on one warehouse, in which a seed decides everything.

    python -m tests.simulation --seeds 10000            # rows: the first 10,000 seeds
    python -m tests.simulation --seed 17                # one of them again, with all that happens
    python -m tests.simulation --without moment         # one safeguard is taken out: it must be missed
    python -m tests.simulation --versions --seeds 1000  # versions: the same
    python -m tests.simulation --versions --eager       # parts publish at once: it must be seen

The one with rows (``data``) runs real databases, each statement of which can be interrupted wherever others
may come in between. The one with versions (``history``) has no rows: processes start copies, create and drop
streams, tables and indexes, write and read, step the operations they own, cancel others, die after a
transaction and are replaced; those thought dead come back; publications reach each process late and in any
order. After every action all visible versions must agree. In the end everything is brought to rest: nothing
may be left over, and every copy holds what its source held at the step of the cut."""
