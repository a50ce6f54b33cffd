"""Prints plan/orders.csv: orders as a shop exports them, with what goes wrong there."""
goods = [("tea", 4.5), ("coffee", 7.9), ("cocoa", 5.25), ("mate", 6.1)]
regions = ["north", "south", "east", "west"]
print("order,date,region,product,quantity,price")
draw = 20
for order in range(1, 361):
    draw = (draw * 1103515245 + 12345) % 2**31
    product, price = goods[(draw >> 8) % 4]
    quantity = "n/a" if order % 97 == 0 else (draw >> 16) % 9 + 1
    date = f"2026-{(order - 1) // 30 + 1:02}-{(order - 1) % 28 + 1:02}"
    print(order, date, regions[(draw >> 12) % 4], product, quantity, f"{price:.2f}", sep=",")
