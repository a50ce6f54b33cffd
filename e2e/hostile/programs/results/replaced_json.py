# must: who replaces what makes JSON of his result only changes his own
# status: succeeded
# stdout: ()
# result: {"mine": 1}
# arguments: {}
import json


def main():
    json.loads = json.load = None
    os._exit = sys.exit = None
    return {"mine": 1}
