# must: a secret that a server sends back is not seen, however it is read
# status: succeeded
# stdout: /reflect b'\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*'\n/reflect Accept-Encoding b'\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*'\n/reflect Range b'\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*'\n/reflect-header b'' \*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\n/reflect-header Accept-Encoding b'' \*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\n/reflect-header Range b'' \*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\n/reflect-slowly b'\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*'\n/reflect-slowly Accept-Encoding b'\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*'\n/reflect-slowly Range b'\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*\*'\n/reflect-zipped 502\n/reflect-zipped Accept-Encoding 502\n/reflect-zipped Range 502
import urllib.error, urllib.request

url = f"https://read.example.com:{SECURE}"
for path in ("/reflect", "/reflect-header", "/reflect-slowly", "/reflect-zipped"):
    for headers in ({}, {"Accept-Encoding": "gzip"}, {"Range": "bytes=3-"}):
        request = urllib.request.Request(url + path, headers={"Authorization": "sandbox-secret-key", **headers})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                print(path, *headers, answer.read(), *(v for k, v in answer.headers.items() if k.startswith("X-")))
        except urllib.error.HTTPError as e:
            print(path, *headers, e.code)
