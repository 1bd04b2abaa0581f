-- What the doors of all nodes answer to an authority while one of them orders.

alter table certificates add column order_proof text; -- JSON; null: none is looked for
