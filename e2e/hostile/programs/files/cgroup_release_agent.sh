# must: there is no cgroup with a release agent to run a program on the host (CVE-2022-0492)
# status: succeeded
# stdout: agents 0\nwritable 0\nmount .*(permission denied|not permitted|must be superuser to use mount|Operation not permitted).*
echo agents $(find /sys /proc -name release_agent 2>/dev/null | wc -l)
echo writable $(find /sys/fs/cgroup -writable -type f 2>/dev/null | wc -l)
mkdir -p /tmp/cg
attempt mount mount -t cgroup -o rdma cgroup /tmp/cg
rmdir /tmp/cg
