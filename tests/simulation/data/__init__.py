"""Several processes on one warehouse, with their rows: a seed decides who runs, who stops, who dies, and a
model says what each may see.

Each process is a real ``Database`` in a thread of its own, but only the one that holds the baton runs
(``baton``). It may lose it wherever others could come in between: before and after a catalog transaction,
before every look at a file and every change of the disk, in every pause (``processes``). There it may also
die, or be held until others have got in its way (``actions``), for longer than its lease if need be.

What became durable is seen where the catalog is written (``witness``), and the model applies it in the order
of steps (``model``). What a statement answers must be what the model held at a moment between its beginning
and its end (``judge``); what is left in the end must be what the model holds (``rest``). What each safeguard
of the library is for is shown by taking it out (``without``)."""
