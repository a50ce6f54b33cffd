# must: a secret is put in the header that it is of, for its host alone
# status: succeeded
# stdout: a key of 26 letters, and ""\na key of 0 letters, and "sandbox-secret-key"\na key of 20 letters, and ""\na key of 30 letters, and ""\na key of 18 letters, and ""
import ssl, urllib.request

def ask(host, **headers):
    request = urllib.request.Request(f"https://{host}.example.com:{SECURE}/", headers={k.replace("_", "-"): v for k, v in headers.items()})
    context = ssl.create_default_context()
    if host == "other":
        context = ssl._create_unverified_context()
    return urllib.request.urlopen(request, timeout=20, context=context).read().decode()

print(ask("read", Authorization="sandbox-secret-key"))
print(ask("read", X_Key="sandbox-secret-key"))
print(ask("read", Authorization="sandbox-secret-other"))
print(ask("read", Authorization="Basic c2FuZGJveC1zZWNyZXQta2V5"))
print(ask("other", Authorization="sandbox-secret-key"))
