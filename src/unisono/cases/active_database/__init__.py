"""A replicated active database: data centres of SQLite replicas kept equal by events.

Thesis chapter 4. A write anywhere is a transaction; it travels as an event on the topic of its
category; every replica that holds the category applies it. What arrives too late is put in its
place: the replica rolls back to before it and replays. docs/active-database.md says how to copy it.

    transactions.py  what may be asked of the database, as typed messages
    schema.py        tables and triggers: the active database itself
    database.py      one SQLite database that can undo its latest transactions
    journal.py       the order of transactions, and the place of a late one in it
    replica.py       a replica: deliveries in, transactions applied, rolled back, replayed
    workload.py      clients that ask for things at random
    windows.py       for how long replicas contradicted each other
    simulate.py      data centres in the simulator, under each protocol, measured
    __main__.py      replicas over a real bus: python -m unisono.cases.active_database
"""
