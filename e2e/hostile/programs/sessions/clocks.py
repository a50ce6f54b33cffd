# must: uptime and process numbers tell one's own sandbox's, not those of others
# status: succeeded
# stdout: [0-9]+ [0-9]+
print(int(open("/proc/uptime").read().split(".")[0]), os.getpid())
# --- another session
# status: succeeded
# stdout: own True
with open("/proc/uptime") as f:
    print("own", float(f.read().split()[0]) < 600 and os.getpid() < 20)
