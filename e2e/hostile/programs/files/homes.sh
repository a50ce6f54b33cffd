# must: no home, no key, no state of the host's services is there
# status: succeeded
# stdout: looks\nworkspace\nclean
present() { for path; do [ -n "$(ls -A "$path" 2>/dev/null)" ] && echo "$path"; done; }
[ "$(present /usr /nowhere)" = /usr ] && echo looks
# The workspace goes by a name in each of these, and nothing else is there.
[ "$(cd / && echo home/* mnt/*)" = "home/user mnt/user-data" ] && echo workspace
found $(ls -A /home /mnt | grep "^\.") $(present /root /boot /media /srv /etc/ssh /etc/shadow /etc/sudoers /etc/kubernetes /var/lib/docker /var/run/docker.sock /run/docker.sock /run/secrets)
