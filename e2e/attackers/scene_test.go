package attackers

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
)

const (
	adminToken = "token-of-an-administrator"
	adminAPI   = "/api/admin/sandbox"
	// patience is how long any answer may take. What hangs is not answered within it.
	patience = 25 * time.Second
)

// scene is what the attackers find.
type scene struct {
	b *harness.Broker
	// victim is the path of an instance of acme's; program that of another, in which a
	// server does what the attacker tells it to.
	victim, program string
	// link is the path of a preview of that server, host its host.
	link, host string
	left       func() left
}

// server answers /say/BASE64 with these bytes, and everything else with what it was
// asked.
const server = `
import base64, socket, threading
listener = socket.create_server(('127.0.0.1', 8000), backlog=64)
print('listening', flush=True)
def serve(conn):
    head = b''
    while b'\r\n\r\n' not in head:
        piece = conn.recv(65536)
        if not piece: return
        head += piece
    path = head.split(b' ')[1]
    if b'/say/' in path:
        conn.sendall(base64.urlsafe_b64decode(path.rpartition(b'/')[2]))
    else:
        conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n' % len(head) + head)
    conn.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
`

func start(t *testing.T) *scene {
	t.Helper()
	index := packageindex.Start(t)
	index.AddWheel("greeting", "1.2", "def greet(name): return f'Hello {name}!'")
	s := &scene{b: harness.Start(t, harness.Options{
		Config: "key_file = \"sealing.keys\"\n" + harness.Tenants + fmt.Sprintf(`
admin { token_sha256 = ["%x"] }
connections { total = 200 }
previews { address = "http://*.preview.test" }
limits { create_timeout = "5m" }
provider "self_managed" {
  runsc         = %q
  pool_size     = 3
  memory_mb     = 256
  packages      = "on"
  package_index = %q
}
`, sha256.Sum256([]byte(adminToken)), binaries.Runsc(t), index.Simple()),
		Prepare: func(dir string) {
			icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "keygen", filepath.Join(dir, "sealing.keys")).Assert(t, icmd.Success)
		},
	})}
	s.victim, s.program = s.instance(t, harness.Token), s.instance(t, harness.Token)
	for _, name := range []string{"aaaaaab", "aaaaaaaab"} { // almost what the globs without end name
		answer := s.b.Do(http.MethodPut, s.victim+"/files/content?path="+name, harness.Token, []byte("x"))
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	}
	answer := s.b.Do(http.MethodPost, s.program+"/commands", harness.Token, map[string]any{"argv": []string{"python3", "-c", server}, "background": true})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(s.b.Do(http.MethodGet, s.program+"/ports/8000/", harness.Token, nil).Status, http.StatusOK))
	}, poll.WithTimeout(2*time.Minute))
	answer = s.b.Do(http.MethodPost, s.program+"/commands", harness.Token, map[string]any{"argv": []string{"cat"}, "background": true, "terminal": map[string]any{"rows": 24, "columns": 80}})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var preview struct {
		Path    string
		HostURL string `json:"host_url"`
	}
	s.b.Do(http.MethodPost, s.program+"/ports/8000/preview", harness.Token, map[string]any{}).Into(t, &preview)
	at, err := url.Parse(preview.HostURL)
	assert.NilError(t, err)
	s.link, s.host = strings.TrimSuffix(preview.Path, "/"), at.Host
	s.left = sync.OnceValue(func() left { return s.comeBack(t) })
	return s
}

func (s *scene) instance(t *testing.T, token string) string {
	t.Helper()
	answer := s.b.Do(http.MethodPost, "/api/v1/instances", token, map[string]any{"language": "python", "ttl": 600})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var made struct{ ID string }
	answer.Into(t, &made)
	return "/api/v1/instances/" + made.ID
}

// left is what a tenant of the same name has left behind: its instance, a key, and a
// link; and token, that of the next tenant of that name.
type left struct{ instance, session, link, token string }

func (s *scene) comeBack(t *testing.T) left {
	t.Helper()
	add := func() (token string) {
		var added struct{ Token string }
		s.b.Do(http.MethodPost, adminAPI+"/tenants", adminToken, map[string]any{"name": "comer"}).Into(t, &added)
		assert.Assert(t, added.Token != "")
		return added.Token
	}
	first := add()
	l := left{session: "work"}
	answer := s.b.DoWith(http.MethodPost, "/api/v1/instances", first, map[string]any{"language": "python", "session_id": l.session}, map[string]string{"Idempotency-Key": "key"})
	var made struct{ ID string }
	answer.Into(t, &made)
	l.instance = "/api/v1/instances/" + made.ID
	var preview struct{ Path string }
	s.b.Do(http.MethodPost, l.instance+"/ports/8000/preview", first, map[string]any{}).Into(t, &preview)
	l.link = preview.Path
	answer = s.b.Do(http.MethodDelete, adminAPI+"/tenants/comer", adminToken, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	l.token = add()
	return l
}

// attack is one request, or what stands for one.
type attack struct {
	name string
	// request is "METHOD target" of a request with acme's token, and lines and body are
	// the rest of it. {victim}, {program}, {link} and {host} stand for those of the scene.
	request, lines, body string
	// raw is sent as it is in place of that, and then nothing more.
	raw string
	// does is done in place of a request.
	does func(t *testing.T, s *scene)
	// status is what the answer must have: one of these. 0 is for none at all.
	status []int
	// says is a part of the answer: a refusal for another reason shows nothing.
	says string
	// holds says what else must hold of an answer.
	holds func(t *testing.T, s *scene, a harness.Answer)
}

func (s *scene) fill(text string) string {
	return strings.NewReplacer("{victim}", s.victim, "{program}", s.program, "{link}", s.link, "{host}", s.host).Replace(text)
}

func (s *scene) carryOut(t *testing.T, a attack) {
	if a.does != nil {
		a.does(t, s)
		return
	}
	text := s.fill(a.raw)
	if a.raw == "" {
		lines := s.fill(a.lines)
		if !strings.Contains(strings.ToLower(lines), "\nhost:") && !strings.HasPrefix(lines, "Host:") {
			lines = "Host: x\r\n" + lines
		}
		if !strings.Contains(lines, "X-API-Key:") {
			lines += "X-API-Key: " + harness.Token + "\r\n"
		}
		if a.body != "" && !strings.Contains(lines, "Content-Type:") {
			lines += "Content-Type: application/json\r\n"
		}
		text = s.fill(a.request) + " HTTP/1.1\r\n" + lines + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(a.body)) + a.body
	}
	answer := s.send(t, text, a.raw != "")
	assert.Check(t, is.Contains(a.status, answer.Status), "%s", answer.Body)
	assert.Check(t, bytes.Contains(answer.Body, []byte(a.says)), "%s", answer.Body)
	assert.Check(t, !bytes.Contains(answer.Body, []byte("SB000")), "%s", answer.Body)
	if a.holds != nil {
		a.holds(t, s, answer)
	}
}

// send sends bytes over a connection of their own. ends says that no more of them will
// come.
func (s *scene) send(t *testing.T, text string, ends bool) harness.Answer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.b.URL, "http://"))
	assert.NilError(t, err)
	defer conn.Close()
	assert.NilError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, text)
	assert.NilError(t, err)
	if ends {
		assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		assert.Assert(t, !isTimeout(err), "no answer within %s", patience)
		return harness.Answer{Body: []byte(err.Error())}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.Assert(t, !isTimeout(err), "no end of the answer within %s", patience)
	for name, values := range resp.Trailer {
		resp.Header["Trailer-"+name] = values
	}
	return harness.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Err: err}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // ReadResponse and ReadAll do not wrap
	return ok && timeout.Timeout()
}

// serves expects the victim's instance to be well, and to answer at once.
func (s *scene) serves(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var e harness.Execution
	s.b.DoContext(ctx, http.MethodPost, s.victim+"/execute", harness.Token, map[string]any{"language": "python", "code": "print('well')"}).Into(t, &e)
	assert.Check(t, is.Equal(e.Stdout, "well\n"), "%+v", e)
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	assert.NilError(t, err)
	return string(text)
}

// saying is the target of a request that the server answers with these bytes.
func saying(base, answer string) string {
	return "GET " + base + "/say/" + base64.URLEncoding.EncodeToString([]byte(answer))
}
