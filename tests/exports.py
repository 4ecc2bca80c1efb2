"""Exports as shop systems and analytics write them, made up from a seed, with what is true of them."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

START = datetime(2024, 1, 1, 8, tzinfo=UTC)


def purchases(seed=0, n_users=60, n_items=40, n_orders=400):
    """Order lines: order, user, item, time and quantity; users prefer some items and repeat them."""
    rng = np.random.default_rng(seed)
    liked = [rng.choice(n_items, 8, replace=False) for _ in range(n_users)]
    rows = []
    for order in range(n_orders):
        user = int(rng.integers(n_users))
        when = START + timedelta(minutes=int(order * 1000 + rng.integers(900)))
        items = rng.choice(liked[user], int(rng.integers(1, 5)), replace=False)
        rows += [(order, user, int(item), when, int(rng.integers(1, 4))) for item in items]
    return pd.DataFrame(rows, columns=["order", "user", "item", "when", "quantity"])


def shopify(path, seed=0):
    """Orders of Shopify: only the first line of an order has its state."""
    rows = purchases(seed)
    rng = np.random.default_rng(seed + 1)
    orders = rows["order"].unique()
    state = dict(
        zip(
            orders,
            rng.choice(["paid", "cancelled", "refunded", "test"], orders.size, p=[0.7, 0.15, 0.1, 0.05]),
            strict=True,
        )
    )
    guest = set(rng.choice(orders, 12, replace=False).tolist())
    first = ~rows["order"].duplicated()
    kind = rows["order"].map(state)
    stamp = rows["when"].dt.strftime("%Y-%m-%d %H:%M:%S +0000")
    status = kind.map({"paid": "paid", "cancelled": "voided", "refunded": "refunded", "test": "paid"})
    table = pd.DataFrame(
        {
            "Name": "#" + (1001 + rows["order"]).astype(str),
            "Email": [
                "" if order in guest else f"user{user}@example.org"
                for order, user in zip(rows["order"], rows["user"], strict=True)
            ],
            "Financial Status": status.where(first),
            "Paid at": stamp.where(first & (kind == "paid")),
            "Fulfillment Status": pd.Series("fulfilled", rows.index).where(first),
            "Currency": pd.Series("EUR", rows.index).where(first),
            "Created at": stamp,
            "Lineitem quantity": rows["quantity"],
            "Lineitem name": "Product " + rows["item"].astype(str),
            "Lineitem price": "9.90",
            "Lineitem sku": ["" if item == 3 else f"SKU-{item}" for item in rows["item"]],
            "Billing Name": "somebody",
            "Cancelled at": stamp.where(first & (kind == "cancelled")),
            "Payment Method": kind.map(
                lambda name: "(for testing) Bogus Gateway" if name == "test" else "card"
            ).where(first),
            "Tags": "",
        }
    )
    table.to_csv(path, index=False)
    bought = rows[(kind == "paid") & ~rows["order"].isin(guest)]
    return bought.assign(dropped=len(rows) - len(bought))


def german_excel(path, seed=0, encoding="cp1252", preamble=""):
    """Order lines as German Excel saves them: semicolons, cp1252, decimal commas, day first; with returns."""
    rows = purchases(seed).drop_duplicates(["user", "item", "order"])
    rng = np.random.default_rng(seed + 1)
    returned = rows.loc[rng.choice(rows.index, 40, replace=False)].assign(quantity=-1)
    returned["when"] += timedelta(days=3)
    returned["order"] += 10_000
    lines = pd.concat([rows, returned]).sort_values("when", kind="stable")
    table = pd.DataFrame(
        {
            "Bestellnummer": lines["order"] + 70_000,
            "Bestelldatum": lines["when"].dt.strftime("%d.%m.%Y %H:%M"),
            "Kundennummer": lines["user"] + 100,
            "Käufer-Ort": "Köln",
            "Artikelnummer": "A" + lines["item"].astype(str),
            "Bezeichnung": "Tüte " + lines["item"].astype(str),
            "Menge": [f"{quantity},00" for quantity in lines["quantity"]],
            "Preis": "1.234,50",
        }
    )
    path.write_bytes((preamble + table.to_csv(index=False, sep=";")).encode(encoding))
    left = rows.set_index(rows.index).copy()
    for _, row in returned.sort_values("when", kind="stable").iterrows():  # the rule, written plainly
        earlier = left[
            (left["user"] == row["user"]) & (left["item"] == row["item"]) & (left["when"] <= row["when"])
        ]
        earlier = earlier[earlier["quantity"] > 0]
        if len(earlier):
            last = earlier.sort_values(["when", "order"]).index[-1]
            left.loc[last, "quantity"] -= 1
    return left[left["quantity"] > 0].assign(n_returns=len(returned))


def clickstream(path, seed=0):
    """Nested events with times in milliseconds: views, carts and purchases of one session."""
    rows = purchases(seed)
    rng = np.random.default_rng(seed + 1)
    lines = []
    for order, session in rows.groupby("order"):
        when = int(session["when"].iloc[0].timestamp() * 1000)
        user = {"id": f"u{session['user'].iloc[0]}", "country": "DE"}
        seen = [(item, "purchase") for item in session["item"]]
        seen += [(item, "cart") for item in session["item"]]
        seen += [(int(item), "view") for item in rng.integers(0, 40, 6)]
        for number, (item, event) in enumerate(reversed(seen)):
            body = {"session": f"s{order}", "user": user, "event": event, "ts": when + number * 1371}
            lines.append(body | {"item": {"id": f"i{item}", "price": 9.9}, "page": f"/p/{number}"})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return rows.assign(n_events=len(lines))


def ga4(path, seed=0):
    """Events of Google Analytics 4 as BigQuery exports them: integers are strings, items are a list."""
    rows = purchases(seed)
    lines = []
    for order, basket in rows.groupby("order"):
        micros = int(basket["when"].iloc[0].timestamp() * 1_000_000)
        user = int(basket["user"].iloc[0])
        head = {
            "user_pseudo_id": f"{user}.17",
            "user_id": f"u{user}" if user % 2 else None,
            "platform": "WEB",
        }
        items = [
            {"item_id": f"sku{item}", "item_name": f"Thing {item}", "quantity": str(quantity), "price": 9.9}
            for item, quantity in zip(basket["item"], basket["quantity"], strict=True)
        ]
        sale = {"transaction_id": f"T{order}", "purchase_revenue": 1.0}
        nothing = {"transaction_id": None, "purchase_revenue": None}
        lines.append(
            head
            | {
                "event_name": "page_view",
                "event_timestamp": str(micros - 9_000_000),
                "items": [],
                "ecommerce": nothing,
            }
        )
        lines.append(
            head
            | {
                "event_name": "view_item",
                "event_timestamp": str(micros - 5_000_000),
                "items": items[:1],
                "ecommerce": nothing,
            }
        )
        lines.append(
            head
            | {"event_name": "purchase", "event_timestamp": str(micros), "items": items, "ecommerce": sale}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return rows


def woocommerce(path, seed=0):
    """Order lines of WooCommerce's CSV exports: guests have customer 0, items may be refunded in part."""
    rows = purchases(seed)
    rng = np.random.default_rng(seed + 1)
    orders = rows["order"].unique()
    words = ["completed", "processing", "cancelled", "refunded", "failed", "pending"]
    state = dict(
        zip(orders, rng.choice(words, orders.size, p=[0.6, 0.15, 0.1, 0.05, 0.05, 0.05]), strict=True)
    )
    status = rows["order"].map(state)
    refunded = np.where(rng.random(len(rows)) < 0.05, rows["quantity"], 0)
    table = pd.DataFrame(
        {
            "order_id": rows["order"] + 500,
            "order_number": rows["order"] + 500,
            "order_date": rows["when"].dt.strftime("%Y-%m-%d %H:%M:%S"),
            "status": status,
            "customer_id": np.where(rows["user"] % 3 == 0, 0, rows["user"]),
            "billing_email": "user" + rows["user"].astype(str) + "@example.org",
            "item_product_id": rows["item"] + 900,
            "item_name": "Thing " + rows["item"].astype(str),
            "item_quantity": rows["quantity"],
            "item_refunded_qty": refunded,
        }
    )
    table.to_csv(path, index=False)
    return rows[status.isin(["completed", "processing"]) & (refunded < rows["quantity"])]


def matomo(path, seed=0):
    """Visits of Matomo's Live API: a JSON array, actions in a list, items in a list of these."""
    rows = purchases(seed)
    visits = []
    for order, basket in rows.groupby("order"):
        seconds = int(basket["when"].iloc[0].timestamp())
        items = [
            {"itemSKU": f"sku{item}", "itemName": f"Thing {item}", "price": "9.9", "quantity": int(quantity)}
            for item, quantity in zip(basket["item"], basket["quantity"], strict=True)
        ]
        view = {
            "type": "action",
            "url": "https://shop.example/x",
            "timestamp": seconds - 60,
            "orderId": None,
            "itemDetails": None,
        }
        cart = {
            "type": "ecommerceAbandonedCart",
            "url": None,
            "timestamp": seconds - 30,
            "orderId": None,
            "itemDetails": items,
        }
        sale = {
            "type": "ecommerceOrder",
            "url": None,
            "timestamp": seconds,
            "orderId": f"o{order}",
            "itemDetails": items,
        }
        visits.append(
            {
                "idVisit": order,
                "visitorId": f"v{basket['user'].iloc[0]}",
                "userId": None,
                "serverTimestamp": seconds,
                "actionDetails": [view, cart, sale],
            }
        )
    path.write_text(json.dumps(visits))
    return rows


def amazon_seller(path, seed=0):
    """An order report of Amazon's Seller Central: tabs, cancelled orders and items."""
    rows = purchases(seed)
    rng = np.random.default_rng(seed + 1)
    orders = rows["order"].unique()
    state = dict(zip(orders, rng.choice(["Shipped", "Cancelled"], orders.size, p=[0.85, 0.15]), strict=True))
    status = rows["order"].map(state)
    quantity = np.where(rng.random(len(rows)) < 0.05, 0, rows["quantity"])
    table = pd.DataFrame(
        {
            "amazon-order-id": "302-" + rows["order"].astype(str),
            "purchase-date": rows["when"].dt.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
            "order-status": status,
            "buyer-email": "b" + rows["user"].astype(str) + "@marketplace.example",
            "product-name": "Thing " + rows["item"].astype(str),
            "sku": "S" + rows["item"].astype(str),
            "asin": "B00" + rows["item"].astype(str),
            "item-status": status,
            "quantity": quantity,
            "item-price": "9.90",
        }
    )
    table.to_csv(path, index=False, sep="\t")
    return rows[(status == "Shipped") & (quantity > 0)]


def magento(path, seed=0):
    """Order items of Magento with semicolons: `item_id` is the line, a variant repeats its product."""
    rows = purchases(seed)
    rng = np.random.default_rng(seed + 1)
    words = ["complete", "processing", "canceled", "closed", "pending_payment"]
    status = rows["order"].map(dict(enumerate(rng.choice(words, 400, p=[0.7, 0.1, 0.1, 0.05, 0.05]))))
    refunded = np.where(rng.random(len(rows)) < 0.05, rows["quantity"], 0)
    table = pd.DataFrame(
        {
            "item_id": np.arange(len(rows)) + 1,
            "parent_item_id": "NULL",
            "order_id": rows["order"] + 1,
            "increment_id": [f"{order:09d}" for order in rows["order"]],
            "status": status,
            "created_at": rows["when"].dt.strftime("%Y-%m-%d %H:%M:%S"),
            "customer_id": np.where(rows["user"] % 3 == 0, "", rows["user"].astype(str)),
            "customer_email": "user" + rows["user"].astype(str) + "@example.org",
            "product_id": rows["item"] + 500,
            "sku": "MG-" + rows["item"].astype(str),
            "name": "Thing",
            "qty_ordered": [f"{quantity}.0000" for quantity in rows["quantity"]],
            "qty_refunded": [f"{quantity}.0000" for quantity in refunded],
        }
    )
    parts = table.head(50).assign(parent_item_id=table["item_id"].head(50).astype(str), product_id=9)
    pd.concat([table, parts]).to_csv(path, index=False, sep=";")
    return rows[status.isin(["complete", "processing"]) & (refunded < rows["quantity"])]


def prestashop(path, seed=0):
    """Order details of PrestaShop: states are numbers."""
    rows = purchases(seed)
    state = rows["order"].map(dict(enumerate(np.random.default_rng(seed).choice([2, 4, 5, 6, 7], 400))))
    pd.DataFrame(
        {
            "id_order": rows["order"] + 1,
            "reference": "XKB" + rows["order"].astype(str),
            "id_customer": rows["user"] + 1,
            "current_state": state,
            "product_id": rows["item"] + 10,
            "product_reference": "demo_" + rows["item"].astype(str),
            "product_quantity": rows["quantity"],
            "date_add": rows["when"].dt.strftime("%Y-%m-%d %H:%M:%S"),
        }
    ).to_csv(path, index=False, sep=";")
    return rows[state < 6]


def etsy(path, seed=0):
    """Sold items of Etsy: a transaction is a line, the SKU is often empty, months come first."""
    rows = purchases(seed)
    pd.DataFrame(
        {
            "Sale Date": rows["when"].dt.strftime("%m/%d/%y"),
            "Item Name": "Thing " + rows["item"].astype(str),
            "Buyer": "b" + rows["user"].astype(str),
            "Quantity": rows["quantity"],
            "Transaction ID": np.arange(len(rows)) + 4_000,
            "Listing ID": rows["item"] + 1_000,
            "Date Paid": rows["when"].dt.strftime("%m/%d/%Y"),
            "Order ID": rows["order"] + 3_000,
            "SKU": "",
        }
    ).to_csv(path, index=False)
    return rows


def with_states(path, language, encoding, seed=0):
    """Order lines with accents and the states of orders in French or Spanish."""
    rows = purchases(seed)
    names, words = {
        "french": (
            ("N° commande", "Date de commande", "Code client", "Réf. article", "Qté", "État"),
            ("Livrée", "Annulée", "Remboursée"),
        ),
        "spanish": (
            ("Nº pedido", "Fecha pedido", "Cliente", "Artículo", "Unidades", "Estado del pedido"),
            ("Enviado", "Cancelado", "Devuelto"),
        ),
    }[language]
    state = rows["order"].map(dict(enumerate(np.random.default_rng(seed).choice(3, 400, p=[0.8, 0.1, 0.1]))))
    columns = (
        rows["order"] + 9_000,
        rows["when"].dt.strftime("%d/%m/%Y %H:%M"),
        "C" + rows["user"].astype(str),
        "Thé " + rows["item"].astype(str),
        [f"{quantity},0" for quantity in rows["quantity"]],
        [words[number] for number in state],
    )
    table = pd.DataFrame(dict(zip(names, columns, strict=True)))
    table.to_csv(path, index=False, sep=";", encoding=encoding)
    return rows[state == 0]


def mongo(path, seed=0):
    """Orders as mongoexport writes them: objects for ids and dates, lines in a list."""
    rows = purchases(seed)
    lines = []
    for order, basket in rows.groupby("order"):
        order_lines = [
            {"product": {"sku": f"M{item}"}, "qty": int(quantity), "price": {"$numberDecimal": "9.90"}}
            for item, quantity in zip(basket["item"], basket["quantity"], strict=True)
        ]
        body = {
            "_id": {"$oid": f"{order:024x}"},
            "customer": {"_id": {"$oid": "0"}, "email": f"c{basket['user'].iloc[0]}@example.org"},
            "createdAt": {"$date": basket["when"].iloc[0].strftime("%Y-%m-%dT%H:%M:%S.000Z")},
            "status": "cancelled" if order % 9 == 0 else "paid",
            "lines": order_lines,
        }
        lines.append(json.dumps(body) + "\n")
    path.write_text("".join(lines))
    return rows[rows["order"] % 9 != 0]
