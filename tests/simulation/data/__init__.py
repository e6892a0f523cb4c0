"""Several processes on one warehouse, with their rows: a seed decides who runs, who stops, who dies, and a
model says what each may see.

Each process is a real ``Database`` in a thread of its own, but only the one that holds the baton runs
(``baton``). It may lose it wherever others could come in between: before and after a catalog transaction,
before every change of the disk, in every pause. There it may also die, or stop for longer than its lease.
What became durable is seen where the catalog is written (``witness``), and the model applies it in the order
of steps (``model``, ``changes``). What a statement answers must be what the model held at a moment between
its beginning and its end (``judge``); what is left in the end must be what the model holds (``rest``).
"""
