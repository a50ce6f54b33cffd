package proxies

import (
	"fmt"
	"strings"
)

// attack is one connection's worth of bytes.
type attack struct {
	name  string
	bytes string
}

const path = "/api/v1/execute"

// smuggled is a request that no proxy shall have passed on as a part of another. Its
// body is not complete: whose bytes come next become a part of it.
const smuggled = "POST " + path + " HTTP/1.1\r\nHost: x\r\nX-API-Key: token-of-rival\r\nX-Request-Id: smuggled\r\n" +
	"Content-Type: application/json\r\nContent-Length: 400\r\n\r\n{\"language\": \"mock\", \"code\": \""

// whole is one that is complete.
const whole = "GET /api/v1/instances HTTP/1.1\r\nHost: x\r\nX-API-Key: token-of-rival\r\nX-Request-Id: smuggled\r\n\r\n"

// request writes a request of the attacker's. The lines frame its body.
func request(lines, body string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nX-API-Key: token-of-rival\r\nContent-Type: application/json\r\n" + lines + "\r\n" + body
}

// lengths are ways to write a length, each a field without the end of its line.
var lengths = []string{
	"Content-Length : %d", "Content-Length\t: %d", "Content-Length:%d", "Content-Length:\t%d", "Content-Length: +%d", "Content-Length: -%d",
	"Content-Length: 0%d", "Content-Length: %d ", "Content-Length: %d,", "Content-Length: %d, %[1]d", "Content-Length: \"%d\"", "Content-Length: 0x%x",
	"Content-Length: %d\v", "Content-Length: %d\x00", "Content-Length: %d;a=b", "Content-Length: %d.0", "Content-Length: %d_0", "Content_Length: %d",
	"content-length: %d", "Content-Length\r: %d", "\vContent-Length: %d", " Content-Length: %d", "\tContent-Length: %d", "X: y\r\n Content-Length: %d",
	"X: y\nContent-Length: %d", "X: y\rContent-Length: %d", "Content-Length:\r\n %d", "Content-Length: %d\r\nContent-Length: 0",
	"Content-Length: 0\r\nContent-Length: %d", "Content-Length: %d\r\nContent-Length: %[1]d", "Content-Length: 1e2\r\nX: %d",
	"Content-Length: 18446744073709551616\r\nX: %d", "Content-Length: \r\nX: %d", "Content-Length\r\nX: %d", "Content-Length;: %d", "Content\x00-Length: %d",
	"\xefContent-Length: %d", "Connection: Content-Length\r\nContent-Length: %d", "Connection: X-API-Key\r\nContent-Length: %d",
	"Expect: 100-continue\r\nContent-Length: %d", "Expect: 100-continue, x\r\nContent-Length: %d", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: %d",
	"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: %d",
}

// encodings are ways to say that a body comes in chunks.
var encodings = []string{
	"Transfer-Encoding: chunked", "Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked", "Transfer-Encoding:chunked", "Transfer-Encoding:\tchunked",
	"Transfer-Encoding: chunked ", "Transfer-Encoding: chunked\t", "Transfer-Encoding: chunked\v", "Transfer-Encoding: \vchunked", "Transfer-Encoding: chunked\x00",
	"Transfer-Encoding: xchunked", "Transfer-Encoding: chunkedx", "Transfer-Encoding: CHUNKED", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: 'chunked'",
	"Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked",
	"Transfer-Encoding: chunked;q=1", "Transfer-Encoding: ,chunked", "Transfer-Encoding: identity", "Transfer-Encoding: chunk", "Transfer_Encoding: chunked",
	"transfer-encoding: chunked", " Transfer-Encoding: chunked", "\tTransfer-Encoding: chunked", "X: y\r\n Transfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked",
	"X: y\rTransfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "Transfer-Encoding:\r\n\tchunked", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
	"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer\x00-Encoding: chunked",
	"Transfer-Encoding\r: chunked", "Transfer-Encoding\x01: chunked", "\xffTransfer-Encoding: chunked", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
	"Connection: close, Transfer-Encoding\r\nTransfer-Encoding: chunked", "TE: trailers\r\nTransfer-Encoding: chunked", "X-Transfer-Encoding: y\r\nTransfer-Encoding: \xc2\xa0chunked",
}

// chunks are bodies in chunks, each with a further request behind it in one reading.
var chunks = []string{
	"0\r\n\r\n", "00000000\r\n\r\n", "0;a=b\r\n\r\n", "0;a=\"b\r\n\r\n\"\r\n\r\n", "0;\n\r\n", "0;a\nb\r\n\r\n", "0 \r\n\r\n", " 0\r\n\r\n", "0\t\r\n\r\n", "0x0\r\n\r\n",
	"-0\r\n\r\n", "+0\r\n\r\n", "0\n\n", "0\n\r\n", "0\r\n\n", "0\r\r\n\r\n", "0_0\r\n\r\n", "0\r\nX: y\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n",
	"0\r\nX-API-Key: token-of-acme\r\n\r\n", "0\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\n X: folded\r\n\r\n", "0\r\nno colon\r\n\r\n", "0\r\nX : y\r\n\r\n",
	"1\r\nxx\r\n0\r\n\r\n", "1\r\nx0\r\n\r\n", "1\r\nx\n0\r\n\r\n", "1\nx\r\n0\r\n\r\n", "1;" + strings.Repeat("a", 9000) + "\r\nx\r\n0\r\n\r\n",
	"10000000000000000\r\n", "ffffffffffffffff\r\n", "8000000000000000\r\n", "100000000\r\n", "\r\n0\r\n\r\n", "g\r\n\r\n", "\x00\r\n\r\n", "0\x00\r\n\r\n", "2\r\n{}\r\n0\r\n\r\n",
}

// heads are whole requests, but for the end of their headers, whose first line or
// fields may be read in two ways.
var heads = []string{
	"POST http://other" + path + " HTTP/1.1\r\nHost: x", "POST " + path + " HTTP/1.1\r\nHost: x\r\nHost: y", "POST " + path + " HTTP/1.1", "POST " + path + " HTTP/1.0",
	"POST " + path + " HTTP/1.0\r\nTransfer-Encoding: chunked", "POST " + path + " HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked", "POST " + path,
	"POST " + path + " HTTP/0.9", "POST " + path + " HTTP/2.0\r\nHost: x", "POST " + path + " HTTP/1.1 \r\nHost: x", "POST  " + path + " HTTP/1.1\r\nHost: x",
	"POST\t" + path + "\tHTTP/1.1\r\nHost: x", "POST " + path + " http/1.1\r\nHost: x", "POST " + path + "\x00 HTTP/1.1\r\nHost: x", "\r\nPOST " + path + " HTTP/1.1\r\nHost: x",
	"GET " + path + " HTTP/1.1\r\nHost: x", "HEAD /healthz HTTP/1.1\r\nHost: x", "TRACE " + path + " HTTP/1.1\r\nHost: x", "CONNECT x:1 HTTP/1.1\r\nHost: x",
	"PRI * HTTP/2.0", "OPTIONS * HTTP/1.1\r\nHost: x", "POST " + path + "?a=\r\nX: HTTP/1.1\r\nHost: x", "POST " + path + " HTTP/1.1\r\nHost: x\r\n: y", "POST " + path + "#f HTTP/1.1\r\nHost: x",
	"POST " + path + " HTTP/1.1\r\nHost: x\r\nX-API-Key: token-of-rival\r\nX-API-Key: token-of-acme", "POST " + path + " HTTP/1.1\nHost: x", "POST " + path + " HTTP/1.1\r\nHost : x",
	"POST " + path + " HTTP/1.1\r\nHost: x y", "POST " + path + " HTTP/1.1\r\n Host: x",
}

// corpus is all of it.
func corpus() []attack {
	var all []attack
	add := func(name, text string) { all = append(all, attack{name: name, bytes: text}) }
	for _, line := range lengths {
		// Who does not see the length finds a request behind the headers.
		add("length "+line, request(fmt.Sprintf(line, len(whole))+"\r\n", whole))
		add("length and a half "+line, request(fmt.Sprintf(line, len(smuggled))+"\r\n", smuggled))
	}
	for _, line := range encodings {
		// Who believes the length passes the rest on as a body; who believes the
		// encoding finds a request behind the last chunk.
		body := "0\r\n\r\n" + smuggled
		add("length hides from "+line, request(fmt.Sprintf("Content-Length: %d\r\n%s\r\n", len(body), line), body))
		add("encoding first "+line, request(fmt.Sprintf("%s\r\nContent-Length: %d\r\n", line, len(body)), body))
		// The other way round.
		chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)
		add("chunk hides from "+line, request(fmt.Sprintf("%s\r\nContent-Length: %d\r\n", line, strings.Index(chunk, "\n")+1), chunk))
		add("no length "+line, request(line+"\r\n", body))
	}
	for _, body := range chunks {
		add("chunks "+body, request("Transfer-Encoding: chunked\r\n", body+whole))
	}
	for _, head := range heads {
		add("head "+head, head+"\r\nX-API-Key: token-of-rival\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"+smuggled)
		add("head with a body "+head, head+fmt.Sprintf("\r\nX-API-Key: token-of-rival\r\nContent-Length: %d\r\n\r\n%s", len(whole), whole))
	}
	return all
}
