import json

sales = json.load(open("result.json"))["sales"]
most = max(sales.values())
bars = "".join(
    f'<text x="0" y="{30 * i + 20}">{product}</text>'
    f'<rect x="80" y="{30 * i + 5}" width="{300 * value / most:.0f}" height="20" fill="teal"/>\n'
    for i, (product, value) in enumerate(sales.items())
)
with open("chart.svg", "w") as chart:
    chart.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="400" height="{30 * len(sales)}">\n{bars}</svg>\n')
print(f"drew {len(sales)} bars")
