# must: a forged type with line ends and NUL reaches no header and no terminal
# status: succeeded
# stdout: an hour of work
# artifacts: display "" application/octet-stream
import json

os.write(4, json.dumps({"kind": "display", "mime": "text/html\r\nSet-Cookie: a=b\0", "group": 1, "length": 1}).encode() + b"\nx")
print("an hour of work")
