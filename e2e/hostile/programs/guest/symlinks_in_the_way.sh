# must: links in places where the runner writes are not followed
# status: succeeded
# stdout: planted
ln -s /etc/passwd main.js
ln -s /etc/passwd main.py
ln -s /nowhere .main-0.mjs
mkdir __pycache__ && chmod 0 __pycache__
echo planted
# --- next execution
# status: succeeded
# stdout: kept
[ -L main.js ] && [ -L main.py ] && echo kept
