# must: of two requests in one the second is read like the first, or neither is sent
# status: succeeded
# stdout: both lengths 400\ntwo lengths 400\na list of lengths 400\na signed length 400\na negative length 400\na hidden chunked 400\na tab before chunked 400\ntwo codings 400\na size of letters 502\na chunk with an extension 502\nno length 200
hidden = f"GET {OPEN}/shut HTTP/1.1\r\nHost: {HERE}\r\n\r\n"
size = len(hidden)
for name, headers, body in (
    ("both lengths", (f"Content-Length: {size + 5}", "Transfer-Encoding: chunked"), "0\r\n\r\n" + hidden),
    ("two lengths", ("Content-Length: 0", f"Content-Length: {size}"), hidden),
    ("a list of lengths", (f"Content-Length: 0, {size}",), hidden),
    ("a signed length", (f"Content-Length: +{size}",), hidden),
    ("a negative length", ("Content-Length: -1",), hidden),
    ("a hidden chunked", ("Transfer-Encoding: xchunked",), "0\r\n\r\n" + hidden),
    ("a tab before chunked", ("Transfer-Encoding:\tchunked", "Content-Length: 3"), "0\r\n\r\n" + hidden),
    ("two codings", ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), "0\r\n\r\n" + hidden),
    ("a size of letters", ("Transfer-Encoding: chunked",), "0x5\r\n12345\r\n0\r\n\r\n" + hidden),
    ("a chunk with an extension", ("Transfer-Encoding: chunked",), "1;a=\n\r\nx\r\n0\r\n\r\n" + hidden),
    ("no length", (), hidden),
):
    statuses, said = way_out(f"GET {OPEN}/open/a HTTP/1.1", "Host: " + HERE, *headers, body=body)
    print(name, *statuses, *(["of the shut one"] if "of the shut" in said else []))
