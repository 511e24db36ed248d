"""Orders are paid by transfers between accounts, while everything that can be killed is killed.

A shop's backend in five small files: `ledger` (the tables), `orders` (placing one: a row and a
message, together), `handlers` (moving the money, sending the receipt), `proof` (what must be true
in the end) and `storm` (what kills workers, connections and the database meanwhile).
"""
