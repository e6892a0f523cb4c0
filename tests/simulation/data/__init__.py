"""Several processes on one warehouse with rows: a seed decides which runs, waits or dies.

A model says what each process may see.

Each process is a real ``Database`` in its own thread, but only the one that holds the baton runs (``baton``).
It may lose the baton at every point where other processes could run: before and after a catalog transaction,
before every read of a file and every change of the disk, in every pause (``processes``). There it may also
die, or be held until other processes have interfered (``actions``), for longer than its lease if needed.

The writes of the catalog show what became durable (``witness``), and the model applies it in the order of
steps (``model``). The result of a statement must match the model at a time between its beginning and its end
(``judge``). The final content must match the model (``rest``). For each safeguard of the library, ``without``
shows what happens if it is disabled.
"""
