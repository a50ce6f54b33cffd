# must: no home, no key, no state of the host's services is there
# status: succeeded
# stdout: looks\nclean
present() { for path; do [ -n "$(ls -A "$path" 2>/dev/null)" ] && echo "$path"; done; }
[ "$(present /usr /nowhere)" = /usr ] && echo looks
found $(present /root /home /boot /mnt /media /srv /etc/ssh /etc/shadow /etc/sudoers /etc/kubernetes /var/lib/docker /var/run/docker.sock /run/docker.sock /run/secrets)
