# must: the table of mounts tells no path of the host
# status: succeeded
# stdout: read\nclean
grep -q ' /workspace ' /proc/mounts && echo read
# The workspace's second name is the sandbox's own.
found $(cat /proc/self/mountinfo /proc/mounts | sed 's, /home/user , ,' | grep -E '/tmp/[a-z]|/home/|/root|/var/lib/docker|overlay2|/dev/vd|/dev/sd|/dev/nvme' | head -n 1)
