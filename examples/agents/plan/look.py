import csv

rows = list(csv.DictReader(open("orders.csv")))
print(f"{len(rows)} rows of {', '.join(rows[0])}")
