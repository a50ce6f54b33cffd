import csv, json

rows = list(csv.DictReader(open("orders.csv")))
json.dump(rows, open("rows.json", "w"))  # for the steps that follow
sales = sum(int(row["quantity"]) * float(row["price"]) for row in rows)
print(f"sold for {sales:.2f}")
