package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// get is a request to a proxy.
func get(host, path string, headers ...string) string {
	return "GET http://" + host + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(headers, "") + "\r\n"
}

// attack is what a program in a sandbox sends to the proxy, by the kind of what it is after.
type attack struct {
	kind, name, text string
	// names are the addresses of hosts, if they are not public ones.
	names map[string][]string
	// once means that the first request in the text is harmless and may go out.
	once bool
}

func attacks() []attack {
	const ok = "open.example.com"
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: open.example.com\r\n\r\n"
	post := func(headers, body string) string {
		return "POST http://" + ok + "/ HTTP/1.1\r\nHost: " + ok + "\r\n" + headers + "\r\n" + body
	}
	all := []attack{
		// Hosts that nobody allowed.
		{kind: "host", name: "another name", text: get("evil.example.com", "/")},
		{kind: "host", name: "the end of an allowed name", text: get("open.example.com.evil.net", "/")},
		{kind: "host", name: "an allowed name at the end of another", text: get("notopen.example.com", "/")},
		{kind: "host", name: "the parent of a pattern", text: get("sub.example.com", "/")},
		{kind: "host", name: "a name that looks like the end of a pattern", text: get("xsub.example.com", "/")},
		{kind: "host", name: "letters of another alphabet", text: get("\u043epen.example.com", "/")},
		{kind: "host", name: "a name with a zero byte", text: get("open.example.com\x00.evil.net", "/")},
		{kind: "host", name: "a name with an escape", text: get("open%2eexample.com", "/")},
		{kind: "host", name: "credentials before it", text: "GET http://open.example.com@evil.net/ HTTP/1.1\r\nHost: evil.net\r\n\r\n"},
		{kind: "host", name: "a backslash", text: get("open.example.com\\@evil.net", "/")},
		{kind: "host", name: "a fragment", text: "GET http://evil.net#open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\n\r\n"},
		{kind: "host", name: "an empty name", text: get("", "/")},
		{kind: "host", name: "another port", text: get("open.example.com:22", "/")},
		{kind: "host", name: "port 0", text: get("open.example.com:0", "/")},
		{kind: "host", name: "a port that is too large", text: get("open.example.com:65616", "/")},
		{kind: "host", name: "a port with a sign", text: get("open.example.com:+80", "/")},
		{kind: "host", name: "another scheme", text: "GET ftp://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\n\r\n"},
		{kind: "host", name: "https without TLS", text: "GET https://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\n\r\n"},
		// Addresses, however they are written.
		{kind: "address", name: "IPv4", text: get("93.184.215.14", "/")},
		{kind: "address", name: "IPv6", text: get("[2606:2800:21f::1]", "/")},
		{kind: "address", name: "loopback", text: get("127.0.0.1", "/")},
		{kind: "address", name: "localhost", text: get("localhost", "/")},
		{kind: "address", name: "a number", text: get("2130706433", "/")},
		{kind: "address", name: "octal", text: get("0177.0.0.1", "/")},
		{kind: "address", name: "hexadecimal", text: get("0x7f.0.0.1", "/")},
		{kind: "address", name: "hexadecimal in one", text: get("0x7f000001", "/")},
		{kind: "address", name: "short", text: get("127.1", "/")},
		{kind: "address", name: "nowhere", text: get("0.0.0.0", "/")},
		{kind: "address", name: "IPv4 in IPv6", text: get("[::ffff:127.0.0.1]", "/")},
		{kind: "address", name: "with a zone", text: get("[fe80::1%25eth0]", "/")},
		// Metadata of clouds.
		{kind: "metadata", name: "by its address", text: get("169.254.169.254", "/latest/meta-data/")},
		{kind: "metadata", name: "by its name", text: get("metadata.google.internal", "/computeMetadata/v1/", "Metadata-Flavor: Google\r\n")},
		{kind: "metadata", name: "in IPv6", text: get("[fd00:ec2::254]", "/")},
		// Smuggling.
		{kind: "smuggling", name: "two lengths", text: post("Content-Length: 0\r\nContent-Length: 60\r\n", smuggled)},
		{kind: "smuggling", name: "a list of lengths", text: post("Content-Length: 0, 60\r\n", smuggled)},
		{kind: "smuggling", name: "a length with a sign", text: post("Content-Length: +0\r\n", smuggled)},
		{kind: "smuggling", name: "a length and chunks", text: post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
		{kind: "smuggling", name: "chunks and a length", text: post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"+smuggled)},
		{kind: "smuggling", name: "chunks twice", text: post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"+smuggled)},
		{kind: "smuggling", name: "another coding", text: post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"+smuggled)},
		{kind: "smuggling", name: "a coding with a tab", text: post("Transfer-Encoding:\tchunked, identity\r\n", "0\r\n\r\n"+smuggled)},
		{kind: "smuggling", name: "a space before the colon", text: post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"+smuggled)},
		{kind: "smuggling", name: "a folded line", text: post("X: a\r\n Transfer-Encoding: chunked\r\n", smuggled)},
		{kind: "smuggling", name: "a line without CR", text: post("X: a\nTransfer-Encoding: chunked\r\n", smuggled)},
		{kind: "smuggling", name: "a CR alone", text: post("X: a\rTransfer-Encoding: chunked\r\n", smuggled)},
		{kind: "smuggling", name: "lines without CR", text: "GET http://" + ok + "/ HTTP/1.1\nHost: " + ok + "\n\n"},
		{kind: "smuggling", name: "a zero byte in a header", text: get(ok, "/", "X: a\x00b\r\n")},
		{kind: "smuggling", name: "two hosts", text: get(ok, "/", "Host: evil.example.com\r\n")},
		{kind: "smuggling", name: "another host in the header", text: "GET http://" + ok + "/ HTTP/1.1\r\nHost: evil.example.com\r\n\r\n"},
		{kind: "smuggling", name: "no host in the header", text: "GET http://" + ok + "/ HTTP/1.1\r\n\r\n"},
		{kind: "smuggling", name: "HTTP/0.9", text: "GET http://" + ok + "/\r\n\r\n"},
		{kind: "smuggling", name: "HTTP/2 without TLS", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{kind: "smuggling", name: "a space too many", text: "GET  http://" + ok + "/ HTTP/1.1\r\nHost: " + ok + "\r\n\r\n"},
		{kind: "smuggling", name: "chunks of HTTP/1.0", text: "POST http://" + ok + "/ HTTP/1.0\r\nHost: " + ok + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled},
		{kind: "smuggling", name: "the next request is for others", text: get(ok, "/first") + get("evil.example.com", "/"), once: true},
		// Methods and paths.
		{kind: "path", name: "another method", text: strings.Replace(get("read.example.com", "/pub/a"), "GET", "DELETE", 1)},
		{kind: "path", name: "a method in small letters", text: strings.Replace(get("read.example.com", "/pub/a"), "GET", "get", 1)},
		{kind: "path", name: "another path", text: get("read.example.com", "/private")},
		{kind: "path", name: "upwards", text: get("read.example.com", "/pub/../private")},
		{kind: "path", name: "upwards, encoded", text: get("read.example.com", "/pub/%2e%2e/private")},
		{kind: "path", name: "upwards, encoded twice", text: get("read.example.com", "/pub/%252e%252e/private")},
		{kind: "path", name: "upwards with a backslash", text: get("read.example.com", "/pub/..\\private")},
		{kind: "path", name: "an encoded slash", text: get("read.example.com", "/pub/..%2fprivate")},
		{kind: "path", name: "a parameter", text: get("read.example.com", "/pub/..;/private")},
		{kind: "path", name: "two slashes", text: get("read.example.com", "//private")},
		{kind: "path", name: "the path of a pattern without its slash", text: get("read.example.com", "/pub")},
		{kind: "path", name: "other letters", text: get("read.example.com", "/PUB/a")},
		{kind: "path", name: "a header for another method", text: get("read.example.com", "/pub/a", "X-HTTP-Method-Override: DELETE\r\n")},
		{kind: "path", name: "a header for another path", text: get("read.example.com", "/pub/a", "X-Original-URL: /private\r\n")},
		{kind: "path", name: "a header for another method, with underscores", text: get("read.example.com", "/pub/a", "X_HTTP_Method_Override: DELETE\r\n")},
		{kind: "path", name: "a header for another path, with underscores", text: get("read.example.com", "/pub/a", "X-Original_url: /private\r\n")},
		{kind: "path", name: "a header of proxies for another path", text: get("read.example.com", "/pub/a", "X-Forwarded-Uri: /private\r\n")},
		{kind: "path", name: "another header for another path", text: get("read.example.com", "/pub/a", "X-Original-Path: /private\r\n")},
		{kind: "path", name: "upwards, in too many bytes", text: get("read.example.com", "/pub/%c0%ae%c0%ae/private")},
		{kind: "path", name: "upwards, with an encoded parameter", text: get("read.example.com", "/pub/..%3b/private")},
		{kind: "path", name: "upwards, with an encoded tab", text: get("read.example.com", "/pub/.%09./private")},
		{kind: "path", name: "upwards, with an encoded end of line", text: get("read.example.com", "/pub/..%0d%0a/private")},
		{kind: "path", name: "upwards, with a character that is deleted", text: get("read.example.com", "/pub/.%7f./private")},
		{kind: "path", name: "what shows requests", text: strings.Replace(get(ok, "/"), "GET", "TRACE", 1)},
		// Other protocols.
		{kind: "protocol", name: "a WebSocket where none is allowed", text: get("read.example.com", "/pub/a", "Connection: Upgrade\r\n", "Upgrade: websocket\r\n")},
		{kind: "protocol", name: "another upgrade", text: get("ws.example.com", "/", "Connection: Upgrade\r\n", "Upgrade: tcp\r\n")},
		{kind: "protocol", name: "CONNECT to a host that is not allowed", text: "CONNECT evil.example.com:443 HTTP/1.1\r\nHost: evil.example.com:443\r\n\r\n"},
		{kind: "protocol", name: "CONNECT to mail", text: "CONNECT open.example.com:25 HTTP/1.1\r\nHost: open.example.com:25\r\n\r\n"},
		{kind: "protocol", name: "CONNECT to an address", text: "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n"},
		{kind: "protocol", name: "CONNECT with two hosts", text: "CONNECT open.example.com:443 HTTP/1.1\r\nHost: evil.example.com:443\r\n\r\n"},
		{kind: "protocol", name: "CONNECT without a host", text: "CONNECT open.example.com:443 HTTP/1.1\r\n\r\n"},
		{kind: "protocol", name: "CONNECT of HTTP/1.0 with two hosts", text: "CONNECT open.example.com:443 HTTP/1.0\r\nHost: evil.example.com:443\r\n\r\n"},
		{kind: "protocol", name: "CONNECT of HTTP/1.0 to a host that is not allowed", text: "CONNECT evil.example.com:443 HTTP/1.0\r\n\r\n"},
		{kind: "protocol", name: "a request of HTTP/1.0 without a host", text: "GET http://open.example.com/ HTTP/1.0\r\n\r\n"},
		{kind: "protocol", name: "CONNECT with a body", text: "CONNECT open.example.com:443 HTTP/1.1\r\nHost: open.example.com:443\r\nContent-Length: 3\r\n\r\nabc"},
		{kind: "protocol", name: "no proxy's request", text: "GET / HTTP/1.1\r\nHost: open.example.com\r\n\r\n"},
		{kind: "protocol", name: "SOCKS", text: "\x05\x01\x00\r\n\r\n"},
		// Exhaustion.
		{kind: "bounds", name: "a head without end", text: get(ok, "/", "X: "+strings.Repeat("a", 70<<10)+"\r\n")},
		{kind: "bounds", name: "headers without end", text: get(ok, "/", strings.Repeat("X: a\r\n", 1000))},
		{kind: "bounds", name: "a name without end", text: get(strings.Repeat("a.", 200)+"example.com", "/")},
		// Secrets.
		{kind: "secret", name: "without TLS", text: get("key.example.com", "/", "Authorization: Bearer sandbox-secret-key\r\n")},
	}
	// Names that lead elsewhere than it seems.
	for name, address := range map[string]string{
		"a private network": "10.0.0.1", "another": "172.16.0.1", "a third": "192.168.0.1", "this machine": "127.0.0.1", "in IPv6": "::1",
		"metadata": "169.254.169.254", "metadata in IPv6": "fd00:ec2::254", "another cloud's": "fd20:ce::254", "a third cloud's": "100.100.100.200", "a fourth's": "168.63.129.16",
		"nowhere": "0.0.0.0", "nowhere in IPv6": "::", "shared addresses": "100.64.0.1", "many": "224.0.0.1", "all": "255.255.255.255",
		"IPv4 in IPv6": "::ffff:10.0.0.1", "IPv4 behind NAT64": "64:ff9b::7f00:1", "IPv4 in 6to4": "2002:7f00:1::", "compatible": "::7f00:1", "translated": "::ffff:0:127.0.0.1", "what nobody has": "4000::1", "a link": "fe80::1", "a site": "fec0::1", "a unique local one": "fd12:3456::1",
		"documentation": "192.0.2.1", "benchmarks": "198.18.0.1", "several, all of them inside": "10.0.0.1 127.0.0.1 ::1",
	} {
		all = append(all, attack{kind: "resolution", name: name, text: get(ok, "/"), names: map[string][]string{ok: {address}}})
	}
	for name, address := range map[string]string{"a link, where private networks are allowed": "169.254.169.254", "metadata, there": "fd00:ec2::254", "another cloud's, there": "fd00:c1::a9fe:a9fe", "a third cloud's, there": "fd00:42::42", "nowhere, there": "0.0.0.0", "shared addresses, there": "100.100.100.200"} {
		all = append(all, attack{kind: "resolution", name: name, text: get("inner.example.com", "/"), names: map[string][]string{"inner.example.com": {address}}})
	}
	return all
}

func TestWhatAttacksGetsNothing(t *testing.T) {
	s := newScene(t, theRules())
	kinds := map[string]int{}
	for _, a := range attacks() {
		kinds[a.kind]++
		t.Run(a.kind+"/"+a.name, func(t *testing.T) {
			s.mu.Lock()
			s.names, s.requests, s.dialed = map[string][]string{}, nil, nil
			for name, addresses := range a.names {
				s.names[name] = addresses
			}
			s.mu.Unlock()
			assert.NilError(t, s.instance.SetPolicy(theRules())) // no connection is left from before
			status, body := s.send(t, a.text)
			if a.once {
				assert.Equal(t, status, http.StatusOK)
				assert.Check(t, is.Len(s.seen(), 1))
				return
			}
			assert.Check(t, status == 0 || status >= 400, "%d %s", status, body)
			assert.Check(t, is.Len(s.seen(), 0))
			assert.Check(t, is.Len(s.addresses(), 0), "nothing is dialled")
			assert.Check(t, !strings.Contains(body, secretValue))
		})
	}
	t.Log(kinds)
}

func TestWhatIsAllowedGoesOut(t *testing.T) {
	const ok = "open.example.com"
	s := newScene(t, theRules())
	for name, test := range map[string]struct {
		text string
		want string // what the server was asked
	}{
		"a request":                        {get(ok, "/a?b=c"), "GET open.example.com/a?b=c  auth="},
		"with its port":                    {get(ok+":80", "/"), "GET open.example.com/  auth="},
		"in other letters, and with a dot": {get("Open.Example.COM.", "/"), "GET open.example.com/  auth="},
		"with a body":                      {"POST http://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\nContent-Length: 3\r\n\r\nabc", "POST open.example.com/ abc auth="},
		"with chunks":                      {"PUT http://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "PUT open.example.com/ abc auth="},
		"that waits to be asked for it":    {"POST http://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n", "POST open.example.com/  auth="},
		"of HTTP/1.0":                      {"GET http://open.example.com/ HTTP/1.0\r\nHost: open.example.com\r\n\r\n", "GET open.example.com/  auth="},
		"a path with escapes":              {get(ok, "/a%20b/%2e%2e/c"), "GET open.example.com/a%20b/%2e%2e/c  auth="},
		"below a pattern":                  {get("a.b.sub.example.com", "/"), "GET a.b.sub.example.com/  auth="},
		"a path that is allowed":           {get("read.example.com", "/pub/a/b.txt?x=%2e%2e"), "GET read.example.com/pub/a/b.txt?x=%2e%2e  auth="},
		"a path in another alphabet":       {get("read.example.com", "/pub/%c3%a9"), "GET read.example.com/pub/%c3%a9  auth="},
		"the one path":                     {get("read.example.com", "/one"), "GET read.example.com/one  auth="},
		"an offer of HTTP/2":               {get(ok, "/", "Connection: Upgrade, HTTP2-Settings\r\n", "Upgrade: h2c\r\n", "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "GET open.example.com/  auth="},
		"authorization of its own":         {get(ok, "/", "Authorization: Basic eDp5\r\n"), "GET open.example.com/  auth=Basic eDp5"},
		"a placeholder for another host":   {get(ok, "/", "Authorization: sandbox-secret-key\r\n"), "GET open.example.com/  auth=sandbox-secret-key"},
		"the proxy's own headers stay":     {get(ok, "/", "Proxy-Authorization: Basic eDp5\r\n", "Proxy-Connection: keep-alive\r\n"), "GET open.example.com/  auth="},
		"a header that is of a connection": {get(ok, "/", "Connection: Authorization\r\n", "Authorization: x\r\n"), "GET open.example.com/  auth="},
		"on a private network":             {get("inner.example.com", "/"), "GET inner.example.com/  auth="},
		"where one address is open":        {get("both.sub.example.com", "/"), "GET both.sub.example.com/  auth="},
		"a redirect is the program's":      {get(ok, "/redirect"), "GET open.example.com/redirect  auth="},
	} {
		t.Run(name, func(t *testing.T) {
			s.mu.Lock()
			s.requests, s.dialed = nil, nil
			s.names = map[string][]string{"inner.example.com": {"10.1.2.3"}, "both.sub.example.com": {"192.168.0.1 " + public}}
			s.mu.Unlock()
			assert.NilError(t, s.instance.SetPolicy(theRules()))
			status, body := s.send(t, test.text)
			assert.Check(t, status < 400, "%d %s", status, body)
			assert.DeepEqual(t, s.seen(), []string{test.want})
			for _, address := range s.addresses() {
				assert.Check(t, address == public+":80" || address == "10.1.2.3:80", address)
			}
		})
	}
}

// A name that is bound anew leads where it was looked at, or nowhere.
func TestTheAddressThatWasLookedAtIsTheOneThatIsDialled(t *testing.T) {
	s := newScene(t, theRules())
	s.names["open.example.com"] = []string{public, "127.0.0.1"}
	status, _ := s.send(t, get("open.example.com", "/", "Connection: close\r\n"))
	assert.Equal(t, status, http.StatusOK)
	assert.NilError(t, s.instance.SetPolicy(theRules())) // no connection is left for the next
	status, body := s.send(t, get("open.example.com", "/"))
	assert.Check(t, is.Equal(status, http.StatusForbidden))
	assert.Check(t, is.Contains(body, "not on the open Internet"))
	assert.DeepEqual(t, s.addresses(), []string{public + ":80"})
}

func TestAWebSocketWhereItIsAllowed(t *testing.T) {
	s := newScene(t, theRules())
	conn := s.proxy(t)
	_, err := fmt.Fprint(conn, get("ws.example.com", "/chat", "Connection: Upgrade\r\n", "Upgrade: websocket\r\n"))
	assert.NilError(t, err)
	head := make([]byte, 512)
	n, err := conn.Read(head)
	assert.NilError(t, err)
	assert.Check(t, strings.HasPrefix(string(head[:n]), "HTTP/1.1 101 "), string(head[:n]))
	_, err = conn.Write([]byte("ping"))
	assert.NilError(t, err)
	n, err = conn.Read(head)
	assert.NilError(t, err)
	assert.Equal(t, string(head[:n]), "ping")
	assert.NilError(t, s.instance.SetPolicy(sdk.NetworkPolicy{}))
	_, err = conn.Read(head)
	assert.Check(t, err != nil)
	told := s.reports(t, 1)
	assert.Equal(t, told[0].Protocol, "websocket")
	assert.Equal(t, told[0].Verdict, sdk.NetworkCut)
	assert.Equal(t, told[0].Sent, int64(4))
}

// A host that takes nothing and says nothing keeps nobody from ending its WebSocket.
func TestAWebSocketEndsWhoseHostDoesNotRead(t *testing.T) {
	s := newScene(t, theRules())
	host, theirs := net.Pipe()
	defer host.Close()
	s.connect = func(context.Context, string) (net.Conn, error) { return theirs, nil }
	conn := s.proxy(t)
	_, err := fmt.Fprint(conn, get("ws.example.com", "/chat", "Connection: Upgrade\r\n", "Upgrade: websocket\r\n"))
	assert.NilError(t, err)
	_, err = http.ReadRequest(bufio.NewReader(host))
	assert.NilError(t, err)
	_, err = io.WriteString(host, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	assert.NilError(t, err)
	_, err = http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // what follows is the WebSocket
	assert.NilError(t, err)
	_, err = conn.Write([]byte("ping"))
	assert.NilError(t, err)
	_, err = host.Read(make([]byte, 1)) // the rest of it waits to be read
	assert.NilError(t, err)
	assert.NilError(t, s.instance.SetPolicy(sdk.NetworkPolicy{}))
}
