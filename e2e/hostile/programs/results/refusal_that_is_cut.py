# must: a forged refusal that is cut amid a character costs nothing
# status: succeeded
# stdout: an hour of work
# artifacts: display "" text/plain x{199}
import json

os.write(4, json.dumps({"kind": "display", "mime": "text/plain", "group": 1, "length": 0, "refused": "x" * 199 + "é"}).encode() + b"\n")
print("an hour of work")
