# must: a redirect leads to nothing that is not allowed by itself
# status: succeeded
# stdout: shut 403 True\nmethod 403 True\nmetadata 403 True\nfile 302 False
import urllib.error, urllib.request

for to in ("shut", "method", "metadata", "file"):
    try:
        print(to, urllib.request.urlopen(f"{OPEN}/open/redirect-{to}", timeout=20).status)
    except urllib.error.HTTPError as e:
        print(to, e.code, "sandbox broker" in e.read().decode())
    except urllib.error.URLError as e:
        print(to, type(e.reason).__name__)
