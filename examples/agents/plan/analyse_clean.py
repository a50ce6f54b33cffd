import collections, json

rows = json.load(open("rows.json"))  # the step that failed has left it
known = [row for row in rows if row["quantity"].isdigit()]
sales = collections.Counter()
for row in known:
    sales[row["product"]] += int(row["quantity"]) * round(float(row["price"]) * 100)
result = {
    "left_out": [int(row["order"]) for row in rows if row not in known],
    "orders": len(known),
    "sales": {product: cents / 100 for product, cents in sorted(sales.items())},
}
json.dump(result, open("result.json", "w"), sort_keys=True)
print(f"sold for {sum(sales.values()) / 100:.2f}, without {len(result['left_out'])} orders of unknown quantity")
