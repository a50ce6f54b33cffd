# must: no startup file of bash is read, and no program of an earlier execution found
# status: succeeded
# stdout: planted
for f in .bashrc .bash_profile .profile .bash_login .bash_logout .inputrc .bash_env; do echo 'echo loaded' > ~/$f; done
mkdir -p ~/bin ~/.local/bin /tmp/bin
for d in . ~/bin ~/.local/bin /tmp/bin; do for c in cat ls python3 node; do echo 'echo loaded' > "$d/$c"; chmod +x "$d/$c"; done; done
echo planted
sleep 0.3
# --- next execution
# status: succeeded
# stdout: ran [0-9]+
echo ran $(ls / | cat | wc -l)
