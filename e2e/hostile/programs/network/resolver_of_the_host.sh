# must: which name servers the host asks is not told
# status: succeeded
# stdout: looks\nclean
printf 'nameserver 192.0.2.1\n' > /tmp/resolv
told() { grep -hE '^(nameserver|search|domain)' "$1" 2>/dev/null | grep -vE '127\.0\.0\.1|^search \.$'; }
[ -n "$(told /tmp/resolv)" ] && echo looks
rm /tmp/resolv
found $(told /etc/resolv.conf)
