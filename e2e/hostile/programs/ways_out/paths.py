# must: whatever a server could take for another path is refused
# status: succeeded
# stdout: /shut 403\n/ 403\n/open 403\n/open/\.\./shut 403\n/open/%2e%2e/shut 403\n/open/\.\.%2fshut 403\n/open/%252e%252e/shut 403\n//shut 403\n/open//\.\./\.\./shut 403\n/open/\.\.;/shut 403\n/open/\.\.\\shut 403\n/OPEN/a 403\n/open/a#/\.\./shut 403\n/open/%00 403
for path in ("/shut", "/", "/open", "/open/../shut", "/open/%2e%2e/shut", "/open/..%2fshut", "/open/%252e%252e/shut",
             "//shut", "/open//../../shut", "/open/..;/shut", "/open/..\\shut", "/OPEN/a", "/open/a#/../shut", "/open/%00"):
    print(path, *way_out(f"GET {OPEN}{path} HTTP/1.1")[0])
