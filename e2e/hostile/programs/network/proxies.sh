# must: no proxy of the host is in the environment
# status: succeeded
# stdout: looks\nclean
[ -n "$(http_proxy=x env | grep -i proxy)" ] && echo looks
found $(env | grep -i proxy)
