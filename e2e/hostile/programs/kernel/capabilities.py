# must: no capability can be had, nor the ban on new privileges lifted
# status: succeeded
# stdout: capset EPERM\nambient EPERM\nprivileges EINVAL\nkeep .*\neffective 0+ permitted 0+ bounding 0+ privileges 1
import re

attempt("capset", syscall, "capset", (0x20080522).to_bytes(4, "little") + bytes(4), b"\xff" * 24)
attempt("ambient", syscall, "prctl", 47, 2, 21, 0, 0)
attempt("privileges", syscall, "prctl", 38, 0, 0, 0, 0)
attempt("keep", syscall, "prctl", 8, 1, 0, 0, 0)
status = dict(re.findall(r"(\w+):\t(.*)", open("/proc/self/status").read()))
print("effective", status["CapEff"], "permitted", status["CapPrm"], "bounding", status["CapBnd"], "privileges", status["NoNewPrivs"])
