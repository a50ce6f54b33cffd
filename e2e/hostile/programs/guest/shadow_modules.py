# must: modules of the same name as the runner's do not take their place
# status: succeeded
# stdout: planted
for name in "ast", "atexit", "json", "os", "sys", "asyncio", "selectors", "ssl", "linecache", "traceback", "threading", "encodings", "code_policy", "types":
    with open(name + ".py", "w") as f:
        f.write("raise SystemExit('hostile')\n")
print("planted")
time.sleep(0.5)
# --- next execution
# status: succeeded
# stdout: ()
# result: "ran"
async def main():
    return "ran"
# --- next execution
# status: failed
# exit: 1
# stdout: before
# stderr: (?s)Traceback.*ValueError: mine
print("before")
raise ValueError("mine")
