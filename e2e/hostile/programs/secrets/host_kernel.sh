# must: the kernel that answers is gVisor's, and its command line not the host's
# status: succeeded
# stdout: .*gvisor.*\nclean
uname -r
found $(grep -oE 'root=|init=|ip=|console=' /proc/cmdline 2>/dev/null)
