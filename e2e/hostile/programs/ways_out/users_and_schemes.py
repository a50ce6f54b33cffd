# must: what stands before a name, and other schemes, lead nowhere else
# status: succeeded
# stdout: http://open@shut/open/a 400 400\nhttp://shut#@open/open/a 400 400\nhttp://shut\\@open/open/a 400 400\nhttp://u:p@shut/open/a 400 400\nhttps://open/open/a 400 400\nftp://open/open/a 400 400\nfile:///etc/passwd 400 400\ngopher://shut/_GET 400 400\nunix:/run/docker\.sock 400 400\n//shut/open/a 400 400\n/open/a 400 400\n\* 400 400
for target in (f"http://{HERE}@{SHUT}/open/a", f"http://{SHUT}#@{HERE}/open/a", f"http://{SHUT}\\@{HERE}/open/a", f"http://u:p@{SHUT}/open/a",
               f"https://{HERE}/open/a", f"ftp://{HERE}/open/a", "file:///etc/passwd", f"gopher://{SHUT}/_GET", f"unix:/run/docker.sock", f"//{SHUT}/open/a", "/open/a", "*"):
    print(target.replace(HERE, "open").replace(SHUT, "shut"), *(way_out(f"GET {target} HTTP/1.1", "Host: " + host)[0][0] for host in (HERE, SHUT)))
