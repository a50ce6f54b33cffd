# must: a forged type that is too long is no artifact
# status: succeeded
# stdout: an hour of work
# artifacts: ()
import json

os.write(4, json.dumps({"kind": "display", "mime": "x" * 199 + "é", "group": 1, "length": 0}).encode() + b"\n")
print("an hour of work")
