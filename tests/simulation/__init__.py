"""Two simulations of several processes on one warehouse; a seed decides everything.

    python -m tests.simulation --seeds 10000            # rows: the first 10,000 seeds
    python -m tests.simulation --seed 17                # replay one seed, with a trace
    python -m tests.simulation --without moment         # disable one safeguard: violations must be found
    python -m tests.simulation --versions --seeds 1000  # versions: the same
    python -m tests.simulation --versions --eager       # parts publish at once: violations must be found

The simulation of rows (``data``) runs real databases. Each statement can be interrupted at every point where
other processes may run.

The simulation of versions (``history``) has no rows. Processes start copies, create and drop streams, tables
and indexes, write and read, run the operations they own, cancel others, die after a transaction and are
replaced. Processes taken for dead continue. Publications reach each process late and in any order. After
every action all visible versions must agree. At the end everything is completed: nothing may be left over,
and every copy holds what its source held at the step of the cut.
"""
