"""The active database: tables, and triggers that react to changes.

`orders` and `stock` depend on the order of transactions within a category. `customers`, `audit` and
`alerts` are kept by triggers over all categories that a replica holds, so they are equal only if
the order is the same across categories. Every trigger stands aside while transactions are undone.
What must happen in a certain order stands in one trigger: SQLite does not order triggers.
"""

from __future__ import annotations

LOW_STOCK = 10

TABLES = ("stock", "orders", "customers", "audit", "alerts")
# How the rows of a category are found: what replicas of different sets may be compared by.
CATEGORY_TABLES = ("stock", "orders")

_TABLES = """
CREATE TABLE stock (
    category TEXT NOT NULL, item TEXT NOT NULL, quantity INTEGER NOT NULL,
    PRIMARY KEY (category, item)
);
CREATE TABLE orders (
    id TEXT PRIMARY KEY, category TEXT NOT NULL, item TEXT NOT NULL, customer TEXT NOT NULL,
    quantity INTEGER NOT NULL, accepted INTEGER NOT NULL
);
CREATE TABLE customers (name TEXT PRIMARY KEY, ordered INTEGER NOT NULL, refused INTEGER NOT NULL);
CREATE TABLE audit (
    number INTEGER PRIMARY KEY, -- given NULL, SQLite takes the greatest and one more
    category TEXT NOT NULL, item TEXT NOT NULL,
    before INTEGER NOT NULL, after INTEGER NOT NULL
);
CREATE TABLE alerts (
    category TEXT NOT NULL, item TEXT NOT NULL, since INTEGER NOT NULL,
    PRIMARY KEY (category, item)
);
CREATE TABLE undoing (yes INTEGER NOT NULL);
INSERT INTO undoing VALUES (0);
"""

_ACTIVE = "(SELECT yes FROM undoing) = 0"

_TRIGGERS = f"""
CREATE TRIGGER order_accepted AFTER INSERT ON orders WHEN new.accepted AND {_ACTIVE} BEGIN
    UPDATE stock SET quantity = quantity - new.quantity
        WHERE category = new.category AND item = new.item;
END;
CREATE TRIGGER order_counted AFTER INSERT ON orders WHEN {_ACTIVE} BEGIN
    INSERT INTO customers
        VALUES (new.customer, new.accepted * new.quantity, NOT new.accepted)
        ON CONFLICT (name) DO UPDATE SET
            ordered = ordered + excluded.ordered, refused = refused + excluded.refused;
END;
CREATE TRIGGER stock_changed AFTER UPDATE OF quantity ON stock WHEN {_ACTIVE} BEGIN
    INSERT INTO audit VALUES (NULL, new.category, new.item, old.quantity, new.quantity);
    DELETE FROM alerts
        WHERE category = new.category AND item = new.item AND new.quantity >= {LOW_STOCK};
    INSERT OR IGNORE INTO alerts
        SELECT new.category, new.item, (SELECT max(number) FROM audit)
        WHERE new.quantity < {LOW_STOCK};
END;
"""

SCHEMA = _TABLES + _TRIGGERS
