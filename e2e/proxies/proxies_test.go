package proxies

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// mockPlugin is the path of the mock provider, built once.
var mockPlugin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var remove func()
		var err error
		if mockPlugin, remove, err = binaries.BuildMock(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer remove()
		return m.Run()
	}())
}

func startBroker(t *testing.T, more string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config:  harness.Tenants + "providers { active = \"mock\" }\nprovider \"mock\" {\n}\n" + more,
		Plugins: map[string]string{"mock": mockPlugin},
	})
}

// victim sends requests through a proxy that share its connections to the broker with
// those of the attacker, and wants its own answers.
type victim struct {
	address string
	client  *http.Client
	sent    int
}

func newVictim(address string) *victim {
	return &victim{address: address, client: &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}}
}

func (v *victim) ask() error {
	v.sent++
	word := fmt.Sprintf("victim-%d-", v.sent)
	body := fmt.Sprintf(`{"language": "mock", "code": "{\"stdout\": \"%s\"}"}`, word)
	req, err := http.NewRequest(http.MethodPost, "http://"+v.address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", harness.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct{ Stdout string }
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusOK || answer.Stdout != word {
		return fmt.Errorf("the answer to %s is %d %s", word, resp.StatusCode, text)
	}
	return nil
}

// send makes a connection of an attack and reads what comes, for a while: a proxy may
// wait for more.
func send(address, text string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = io.WriteString(conn, text); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

var (
	requestLine = regexp.MustCompile(`request: request_id=(\S+) tenant=(\S*) method=\S+ route=(\S+) status=(\d+)`)
	started     = regexp.MustCompile(`smuggled`)
)

func TestOneRequestForAProxyIsOneForTheBroker(t *testing.T) {
	attacks := corpus()
	assert.Assert(t, len(attacks) >= 150, "%d", len(attacks))
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			b := startBroker(t, "")
			f := p.start(t, b.URL)
			direct := len(requestLine.FindAllString(b.Log(), -1)) // of the harness, before the proxy was there
			v := newVictim(f.address)
			defer v.client.CloseIdleConnections()
			assert.NilError(t, v.ask())

			queue := make(chan attack)
			var attackers sync.WaitGroup
			for range 12 {
				attackers.Go(func() {
					for a := range queue {
						send(f.address, a.bytes)
					}
				})
			}
			for _, a := range attacks {
				queue <- a
				assert.NilError(t, v.ask(), "about %q", a.name)
			}
			close(queue)
			attackers.Wait()
			for range 20 {
				assert.NilError(t, v.ask())
			}
			check(t, b, direct, v.sent)
		})
	}
}

// check looks at what the broker has been asked.
func check(t *testing.T, b *harness.Broker, direct, sent int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result { // the line comes after the answer
		if n := strings.Count(b.Log(), "tenant=acme method=POST"); n < sent {
			return poll.Continue("%d of %d", n, sent)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
	seen, acme := map[string]bool{}, 0
	for _, line := range requestLine.FindAllStringSubmatch(b.Log(), -1)[direct:] {
		id, tenant, route, status := line[1], line[2], line[3], line[4]
		switch {
		case strings.HasPrefix(id, stamp):
			assert.Check(t, !seen[id], "the proxy's one request is two: %s", line[0])
			seen[id] = true
		default:
			// It was refused before its fields were looked at.
			assert.Check(t, tenant == `""` && route == `""` && strings.HasPrefix(status, "4"), "a request that the proxy knows nothing of: %s", line[0])
		}
		if tenant == "acme" {
			acme++
		}
	}
	assert.Check(t, is.Equal(acme, sent), "the victim's token was used for others' bytes")
	assert.Check(t, len(seen) >= sent)
	assert.Check(t, !started.MatchString(b.Log()), "a smuggled request was answered")
}

// hostileServer answers with what steers proxies, and with trailers.
const hostileServer = `
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        path = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip(): pass
        if path == '/trailers':
            self.wfile.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Set-Cookie, X-Accel-Redirect\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: stolen=1\r\nX-Accel-Redirect: /internal/secret\r\nClear-Site-Data: "*"\r\n\r\n')
            return
        if path == '/early':
            self.wfile.write(b'HTTP/1.1 103 Early Hints\r\nX-Accel-Redirect: /internal/secret\r\n\r\n')
        if path == '/low':
            self.wfile.write(b'HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nok')
            return
        if path == '/two':
            self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nX-Accel-Redirect: /internal/secret\r\nContent-Length: 2\r\n\r\nno')
            return
        if path == '/split':
            self.wfile.write(b'HTTP/1.1 200 OK\r\nX-A: b\rX-Accel-Redirect: /internal/secret\r\nContent-Length: 2\r\n\r\nok')
            return
        name = path.rsplit('/', 1)[1]
        value = b'/internal/secret' if 'nginx' in path or 'X-' in path else b'1'
        self.wfile.write(b'HTTP/1.1 200 OK\r\n' + name.encode() + b': ' + value + b'\r\nContent-Length: 2\r\n\r\nok')
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
print('listening', flush=True)
Server(('127.0.0.1', 8000), Handler).serve_forever()
`

func TestAProgramReachesNothingInternal(t *testing.T) {
	b := startBroker(t, fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n}\n", binaries.Runsc(t)))
	var instance struct{ ID string }
	b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s", "provider": "self_managed", "language": "python"}).Into(t, &instance)
	b.Do(http.MethodPost, "/api/v1/instances/"+instance.ID+"/commands", harness.Token, map[string]any{
		"argv": []string{"python3", "-c", hostileServer}, "background": true, "timeout": 600,
	})
	base := "/api/v1/instances/" + instance.ID + "/ports/8000"
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if a := b.Do(http.MethodGet, base+"/ready/X-Ready", harness.Token, nil); a.Status != http.StatusOK {
			return poll.Continue("%d %s", a.Status, a.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	var link struct{ Path string }
	b.Do(http.MethodPost, base+"/preview", harness.Token, map[string]any{}).Into(t, &link)

	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			f := p.start(t, b.URL)
			client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}
			defer client.CloseIdleConnections()
			for _, below := range []string{base, strings.TrimSuffix(link.Path, "/")} {
				for _, what := range []string{
					"/x/X-Accel-Redirect", "/x/x-accel-redirect", "/x/X-ACCEL-REDIRECT", "/x/X-Sendfile", "/x/X-Send-File", "/x/X-Lighttpd-Send-File",
					"/x/X-Reproxy-URL", "/x/X-Accel-Buffering", "/x/X-Accel-Expires", "/x/Surrogate-Control", "/x/WWW-Authenticate", "/x/Set-Login",
					"/trailers", "/early", "/low", "/two", "/split",
				} {
					req, err := http.NewRequest(http.MethodGet, "http://"+f.address+below+what, nil)
					assert.NilError(t, err)
					req.Header.Set("X-API-Key", harness.Token)
					resp, err := client.Do(req)
					assert.NilError(t, err, what)
					text, err := io.ReadAll(resp.Body)
					assert.NilError(t, err, what)
					assert.NilError(t, resp.Body.Close())
					assert.Check(t, !strings.Contains(string(text), secret), "%s reaches what is internal", what)
					assert.Check(t, is.Len(resp.Trailer, 0), what)
					want := http.StatusOK
					if what == "/low" || what == "/split" {
						want = http.StatusBadGateway
					}
					assert.Check(t, is.Equal(resp.StatusCode, want), "%s: %s", what, text)
					if _, name, ok := strings.Cut(what, "/x/"); ok && resp.Header.Get(name) != "" {
						t.Errorf("%s passes", name)
					}
				}
			}
			resp, err := client.Get("http://" + f.address + "/internal/secret")
			assert.NilError(t, err)
			assert.NilError(t, resp.Body.Close())
			assert.Equal(t, resp.StatusCode, http.StatusNotFound, "it is not reached from outside either")
		})
	}
}
