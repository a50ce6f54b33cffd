package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// portServer is what runs in the sandbox: it shows what it is asked, and has a
// path for each thing that a test wants of it.
const portServer = `
import http.server, json, base64, hashlib
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *args): pass
    def answer(self, body, status=200, headers=()):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(body)
    def any(self):
        path = self.path.partition('?')[0]
        if path == '/redirect': return self.answer(b'', 302, [('Location', 'http://localhost:8000/landed?x=1')])
        if path == '/cookie': return self.answer(b'', 200, [('Set-Cookie', 'visit=7; Path=/; Domain=localhost')])
        if path == '/origin': return self.answer(b'', 200, [('Strict-Transport-Security', 'max-age=1'), ('Service-Worker-Allowed', '/'), ('Clear-Site-Data', '"*"')])
        if path == '/hang': return self.rfile.read(1)
        if path == '/size':
            n, left = 0, int(self.headers['Content-Length'])
            while n < left: n += len(self.rfile.read(min(65536, left - n)))
            return self.answer(str(n).encode())
        if path == '/large':
            self.send_response(200)
            self.send_header('Content-Length', str(200 << 20))
            self.end_headers()
            for _ in range(200): self.wfile.write(bytes(1 << 20))
            return
        if path == '/stream':
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            for i in range(3):
                self.wfile.write(b'2\r\n%d\n\r\n' % i)
                self.wfile.flush()
                open('ready', 'w').close()
                import os, time
                while os.path.exists('ready'): time.sleep(0.01)
            return self.wfile.write(b'0\r\n\r\n')
        if path == '/go-on':
            import os; os.remove('ready')
            return self.answer(b'')
        if path == '/ws':
            key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
            self.send_response(101)
            for name, value in [('Upgrade', 'websocket'), ('Connection', 'Upgrade'), ('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())]: self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            while head := self.rfile.read(2):
                n = head[1] & 127
                if n == 126: n = int.from_bytes(self.rfile.read(2))
                mask, data = self.rfile.read(4), self.rfile.read(n)
                data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
                self.wfile.write(bytes([head[0]]) + (bytes([n]) if n < 126 else bytes([126]) + n.to_bytes(2)) + data)
            open('left', 'w').close()
            return
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        self.answer(json.dumps({'method': self.command, 'path': self.path, 'headers': self.headers.items(), 'body': body.decode()}).encode())
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = any
server = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Handler)
print('listening', flush=True)
server.serve_forever()
`

// seen is what portServer shows of a request.
type seen struct {
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Headers [][2]string `json:"headers"`
	Body    string      `json:"body"`
}

func (s seen) header(name string) string {
	for _, h := range s.Headers {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

// serveInSandbox runs portServer in a fresh instance and returns the path of its
// port. The code runs until the test ends.
func serveInSandbox(t *testing.T, b *harness.Broker) (instance, port string) {
	t.Helper()
	made := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"language": "python", "ttl": 600})
	assert.Equal(t, made.Status, http.StatusCreated, "%s", made.Body)
	var i struct{ ID string }
	made.Into(t, &i)
	instance = "/api/v1/instances/" + i.ID
	ended := make(chan harness.Answer, 1)
	go func() {
		ended <- b.Do(http.MethodPost, instance+"/execute", harness.Token, map[string]any{"language": "python", "code": portServer, "timeout": 300})
	}()
	t.Cleanup(func() {
		b.Do(http.MethodDelete, instance, harness.Token, nil)
		<-ended
	})
	port = instance + "/ports/8000"
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		select {
		case answer := <-ended:
			ended <- answer
			return poll.Error(fmt.Errorf("the server ended: %s", answer.Body))
		default:
		}
		return poll.Compare(is.Equal(b.Do(http.MethodGet, port+"/", harness.Token, nil).Status, http.StatusOK))
	}, poll.WithTimeout(2*time.Minute))
	return instance, port
}

func TestPorts(t *testing.T) {
	t.Parallel()
	startOnBothRuntimes(t, "", testPorts)
}

func testPorts(t *testing.T, b *harness.Broker) {
	instance, port := serveInSandbox(t, b)
	link := makeLink(t, b, port, map[string]any{})

	t.Run("requests arrive as they were sent, without the token", func(t *testing.T) {
		for _, base := range []string{port, link} {
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				req, err := http.NewRequest(method, b.URL+base+"/a%2Fb/../c?d=e;f", strings.NewReader("body of "+method))
				assert.NilError(t, err)
				req.Header.Set("Authorization", "Bearer "+harness.Token)
				req.Header.Set("X-API-Key", harness.Token)
				req.Header.Set("X-Own", "1")
				resp, err := http.DefaultClient.Do(req)
				assert.NilError(t, err)
				var got seen
				assert.NilError(t, json.NewDecoder(resp.Body).Decode(&got))
				assert.NilError(t, resp.Body.Close())
				assert.Check(t, is.Equal(got.Method+" "+got.Path, method+" /a%2Fb/../c?d=e;f"))
				assert.Check(t, is.Equal(got.Body, "body of "+method))
				assert.Check(t, is.Equal(got.header("Host"), "localhost:8000"))
				assert.Check(t, is.Equal(got.header("X-Own"), "1"))
				assert.Check(t, is.Equal(got.header("X-Forwarded-Prefix"), base))
				assert.Check(t, !strings.Contains(fmt.Sprint(got.Headers), harness.Token), "%v", got.Headers)
				assert.Check(t, is.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox"))
			}
		}
	})
	t.Run("redirects and cookies stay below the port", func(t *testing.T) {
		for _, base := range []string{port, link} {
			jar, err := cookiejar.New(nil)
			assert.NilError(t, err)
			client := &http.Client{Jar: jar}
			get := func(path string) (landed string, header http.Header, got seen) {
				req, err := http.NewRequest(http.MethodGet, b.URL+base+path, nil)
				assert.NilError(t, err)
				req.Header.Set("Authorization", "Bearer "+harness.Token)
				resp, err := client.Do(req)
				assert.NilError(t, err)
				defer resp.Body.Close()
				_ = json.NewDecoder(resp.Body).Decode(&got) // some have no body
				return resp.Request.URL.RequestURI(), resp.Header, got
			}
			landed, _, got := get("/redirect")
			assert.Check(t, is.Equal(landed, base+"/landed?x=1"))
			assert.Check(t, is.Equal(got.Path, "/landed?x=1"))
			_, header, _ := get("/cookie")
			assert.Check(t, is.Contains(header.Get("Set-Cookie"), "visit=7; Path="+base+"/"))
			assert.Check(t, !strings.Contains(header.Get("Set-Cookie"), "Domain"))
			_, _, got = get("/")
			assert.Check(t, is.Equal(got.header("Cookie"), "visit=7"))
			_, header, _ = get("/origin")
			for _, name := range []string{"Strict-Transport-Security", "Service-Worker-Allowed", "Clear-Site-Data"} {
				assert.Check(t, is.Equal(header.Get(name), ""), name)
			}
		}
	})
	t.Run("a large body passes both ways in little memory", func(t *testing.T) {
		const size = 200 << 20
		before := mostMemory(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, b.URL+port+"/size", io.LimitReader(nulls{}, size))
		assert.NilError(t, err)
		req.ContentLength = size
		req.Header.Set("Authorization", "Bearer "+harness.Token)
		resp, err := http.DefaultClient.Do(req)
		assert.NilError(t, err)
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, string(text), strconv.Itoa(size))

		resp, err = http.Get(b.URL + link + "/large")
		assert.NilError(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, n, int64(size))
		for process, grown := range mostMemory(t, b) {
			assert.Check(t, grown-before[process] < 64<<20, "%s grew by %d MiB", process, (grown-before[process])>>20)
		}
	})
	t.Run("what is flushed arrives at once", func(t *testing.T) {
		resp, err := http.Get(b.URL + link + "/stream")
		assert.NilError(t, err)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			assert.Assert(t, lines.Scan())
			assert.Equal(t, lines.Text(), strconv.Itoa(i))
			poll.WaitOn(t, func(poll.LogT) poll.Result { // the server goes on when it has made the file
				answer := b.Do(http.MethodGet, port+"/go-on", harness.Token, nil)
				return poll.Compare(is.Equal(answer.Status, http.StatusOK))
			}, poll.WithTimeout(2*time.Minute))
		}
		assert.Assert(t, !lines.Scan())
		assert.NilError(t, lines.Err())
	})
	t.Run("a WebSocket echoes", func(t *testing.T) {
		for base, token := range map[string]string{port: "Authorization: Bearer " + harness.Token + "\r\n", link: ""} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
			assert.NilError(t, err)
			_, err = fmt.Fprintf(conn, "GET %s/ws HTTP/1.1\r\nHost: x\r\n%sConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", base, token)
			assert.NilError(t, err)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			assert.NilError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, resp.StatusCode, http.StatusSwitchingProtocols)
			assert.Equal(t, resp.Header.Get("Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
			for _, text := range []string{"hello", strings.Repeat("long ", 1000)} {
				frame := []byte{0x81}
				if len(text) < 126 {
					frame = append(frame, 0x80|byte(len(text)))
				} else {
					frame = append(frame, 0x80|126, byte(len(text)>>8), byte(len(text)))
				}
				want := append([]byte{0x81}, frame[1]&0x7f)
				want = append(append(want, frame[2:]...), text...)
				frame = append(append(frame, 0, 0, 0, 0), text...) // a mask of zeros
				_, err := conn.Write(frame)
				assert.NilError(t, err)
				got := make([]byte, len(want))
				_, err = io.ReadFull(r, got)
				assert.NilError(t, err)
				assert.Assert(t, bytes.Equal(got, want))
			}
			assert.NilError(t, conn.Close())
			poll.WaitOn(t, func(poll.LogT) poll.Result { // the server hears of it
				answer := b.Do(http.MethodPost, instance+"/execute", harness.Token, map[string]any{"language": "bash", "code": "rm left"})
				return poll.Compare(is.Contains(string(answer.Body), `"exit_code":0`))
			}, poll.WithTimeout(2*time.Minute))
		}
	})
	t.Run("a client leaves a server that hangs", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer := b.DoContext(ctx, http.MethodGet, port+"/hang", harness.Token, nil)
		assert.ErrorIs(t, answer.Err, context.DeadlineExceeded)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Contains(b.Log(), `route="/api/v1/instances/{id}/ports/{port}/*" status=499`))
		}, poll.WithTimeout(2*time.Minute))
	})
	t.Run("what cannot be reached", func(t *testing.T) {
		for name, test := range map[string]struct {
			path, token string
			status      int
			code        string
		}{
			"a port that nobody listens on": {instance + "/ports/8001/", harness.Token, http.StatusBadGateway, "SB003"},
			"port 0":                        {instance + "/ports/0/", harness.Token, http.StatusUnprocessableEntity, "SB010"},
			"port 65536":                    {instance + "/ports/65536/", harness.Token, http.StatusUnprocessableEntity, "SB010"},
			"another tenant's":              {port + "/", harness.OtherToken, http.StatusNotFound, "SB013"},
			"without a token":               {port + "/", "", http.StatusUnauthorized, "SB011"},
			"a link that is forged":         {link[:len(link)-4] + "AAAA/", "", http.StatusForbidden, "SB012"},
		} {
			t.Run(name, func(t *testing.T) {
				harness.Refused(t, b.Do(http.MethodGet, test.path, test.token, nil), test.status, test.code)
			})
		}
		harness.Refused(t, b.Do(http.MethodPost, port+"/preview", harness.OtherToken, map[string]any{}), http.StatusNotFound, "SB013")
	})
	t.Run("a link ends with its time, and with its instance", func(t *testing.T) {
		short := makeLink(t, b, port, map[string]any{"ttl": 0.5})
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Equal(b.Do(http.MethodGet, short+"/", "", nil).Status, http.StatusForbidden))
		}, poll.WithTimeout(2*time.Minute))
		assert.Equal(t, b.Do(http.MethodGet, link+"/", "", nil).Status, http.StatusOK)
		assert.Equal(t, b.Do(http.MethodDelete, instance, harness.Token, nil).Status, http.StatusNoContent)
		harness.Refused(t, b.Do(http.MethodGet, link+"/", "", nil), http.StatusNotFound, "SB013")
	})
	token := strings.Split(link, "/")[2]
	assert.Check(t, !strings.Contains(b.Log(), token[:20]), "links are not logged")
	assert.Check(t, !strings.Contains(b.Log(), harness.Token))
}

// makeLink returns the path of a link, without its slash at the end.
func makeLink(t *testing.T, b *harness.Broker, port string, request map[string]any) string {
	t.Helper()
	made := b.Do(http.MethodPost, port+"/preview", harness.Token, request)
	assert.Equal(t, made.Status, http.StatusCreated, "%s", made.Body)
	var link struct{ URL, Path string }
	made.Into(t, &link)
	assert.Equal(t, link.URL, b.URL+link.Path)
	return strings.TrimSuffix(link.Path, "/")
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// mostMemory is the most memory that broker and plugin have had, in bytes.
func mostMemory(t *testing.T, b *harness.Broker) map[string]int64 {
	t.Helper()
	most := map[string]int64{}
	for name, pid := range map[string]int{"the broker": b.PID, "the plugin": b.Plugin("self_managed")} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		assert.NilError(t, err)
		found := highWater.FindSubmatch(text)
		assert.Assert(t, found != nil)
		kb, err := strconv.ParseInt(string(found[1]), 10, 64)
		assert.NilError(t, err)
		most[name] = kb << 10
	}
	return most
}

type nulls struct{}

func (nulls) Read(p []byte) (int, error) { clear(p); return len(p), nil }
