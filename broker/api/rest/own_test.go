package rest_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// building is a server with a door and its own listener.
type building struct {
	t         *testing.T
	door      *rest.API
	own       *rest.Own
	main, app string // addresses of the server, and of the door alone
}

// serveDoor serves the door with what add, if it is given, adds to it.
func serveDoor(t *testing.T, answers rest.Answers, add ...func(door *rest.API)) *building {
	t.Helper()
	tenants := tenant.NewDirectory([]tenant.Credentials{{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}}})
	s := rest.NewServer(rest.Options{
		Tenants: tenants, Answers: answers, Logger: hclog.NewNullLogger(),
		Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	b := &building{t: t, door: addDoor(s, tenants)}
	addHost((&greeter{}).add(s), "programs")
	addHost(b.door, "boxes")
	for _, add := range add {
		add(b.door)
	}
	b.own = s.Own("door")
	assert.Assert(t, s.Own("") == nil && s.Own("greeter") == nil)
	b.own.Open(true)
	listen := func(serve func(net.Listener) error) string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		assert.NilError(t, err)
		served := make(chan error, 1)
		go func() { served <- serve(listener) }()
		t.Cleanup(func() { assert.Check(t, <-served) })
		return listener.Addr().String()
	}
	b.main, b.app = listen(s.Serve), listen(b.own.Serve)
	t.Cleanup(func() { assert.Check(t, s.Shutdown(context.Background())) })
	return b
}

// addHost adds the hosts below a domain to an API. They tell the path that has come.
func addHost(a *rest.API, domain string) {
	a.AddHost(rest.Host{
		Route: domain,
		Match: func(host string) (string, bool) {
			label, ok := strings.CutSuffix(host, "."+domain)
			return label, ok && label != "door"
		},
		MatchFields: func(h rest.Header) (string, bool) {
			label := rest.OnlyOne(h.Values("Box"))
			return "box " + label, label != "" && domain == "boxes"
		},
		Open: func(_ context.Context, asked rest.Asked) (string, rest.StreamHandler, error) {
			if asked.Prefix != "" || strings.HasPrefix(asked.Label, "box ") {
				return "acme", func(w http.ResponseWriter, r *http.Request) error {
					body, err := io.ReadAll(r.Body)
					if err == nil {
						_, err = fmt.Fprintf(w, "%s of %s: %q %q %s", asked.Label, asked.Header.Host(), asked.Prefix, asked.Path, body)
					}
					return err
				}, nil
			}
			return "acme", func(w http.ResponseWriter, r *http.Request) error {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(w, asked.Label, " ", r.RequestURI, " ", string(body))
				return err
			}, nil
		},
	})
}

// told is an answer.
type told struct {
	status     int
	head       http.Header
	text       string
	connection *bufio.ReadWriter
}

// post sends a request whose first line is written as it is.
func (b *building) post(address, host, target, body string, headers ...string) told {
	b.t.Helper()
	conn, err := net.Dial("tcp", address)
	assert.NilError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	assert.NilError(b.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return b.on(bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), host, target, body, headers...)
}

// on is post on a connection that there is.
func (b *building) on(conn *bufio.ReadWriter, host, target, body string, headers ...string) told {
	b.t.Helper()
	headers = append([]string{"Host: " + host, "Door-Key: acme-token", "Content-Type: application/json", fmt.Sprint("Content-Length: ", len(body))}, headers...)
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\n%s\r\n\r\n%s", target, strings.Join(headers, "\r\n"), body)
	assert.NilError(b.t, err)
	assert.NilError(b.t, conn.Flush())
	resp, err := http.ReadResponse(conn.Reader, nil)
	assert.NilError(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(b.t, err)
	return told{resp.StatusCode, resp.Header, string(text), conn}
}

func TestADoorStandsAtTheRootOfAListenerOfItsOwn(t *testing.T) {
	b := serveDoor(t, nil)
	b.door.Mount("/door")
	for _, test := range []struct {
		name, host, target string
		status             int
		answer             string
	}{
		{"an operation", "x", "/things/1?a=b", 202, `{"at":"","body":"x","id":"1","query":"a=b","tenant":"acme"}`},
		{"a path as it is sent to a proxy", "x", "http://x/things/1?a=b", 202, `"query":"a=b"`},
		{"a path with an escaped part", "x", "/things/a%3Ab", 202, `"id":"a:b"`},
		{"what streams", "x", "/things/1/at/p%2Fq/r", 200, "/things/1/at|/p%2Fq/r|x"},
		{"a credential in the path", "x", "/secret/1", 202, `"tenant":"by path"`},
		{"not below the path of the other listener", "x", "/door/things/1", 404, "no such route"},
		{"no other API", "x", "/greeter/hello", 404, "no such route"},
		{"none by dots either", "x", "/things/../../../greeter/hello", 404, "no such route"},
		{"nor by another host", "x", "//y/greeter/hello", 404, "no such route"},
		{"nor without a slash", "x", "greeter/hello", 404, "no such route"},
		{"nor by the path of its routes", "x", b.door.Prefix() + "/things/1", 404, "no such route"},
		{"a host of the door's", "1.boxes", "/things/1", 200, "1 /things/1 x"},
		{"no host of another API", "1.programs", "/things/1", 202, `"id":"1"`},
		{"what two may understand differently", "x", "http://y/things/1", 400, "not valid HTTP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := b.post(b.app, test.host, test.target, "x")
			assert.Equal(t, got.status, test.status, got.text)
			assert.Assert(t, cmp.Contains(got.text, test.answer))
			if test.status >= 400 {
				assert.Equal(t, got.head.Get("Content-Type"), doorProblem)
			}
		})
	}
	got := b.post(b.main, "x", "/door/things/1", "x")
	assert.Check(t, cmp.Contains(got.text, `"at":"/door"`), "it is below its path all the same")
	got = b.post(b.main, "x", "/things/1", "x")
	assert.Check(t, cmp.Equal(got.status, 404))

	b.door.Mount("")
	got = b.post(b.main, "x", "/door/things/1", "x")
	assert.Check(t, cmp.Equal(got.status, 404))
	kept := b.post(b.app, "x", "/secret/1", "x")
	assert.Check(t, cmp.Equal(kept.status, 202))
	b.own.Open(false)
	got = b.on(kept.connection, "x", "/secret/1", "x")
	assert.Check(t, cmp.Equal(got.status, 404), "a connection outlives its listener, and the door")
	assert.Check(t, cmp.Equal(got.head.Get("Content-Type"), doorProblem))
	_, err := kept.connection.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
}

// Who learns it could otherwise use a key at a door that is closed, or at the one that
// belongs to another address.
func TestTheSecretOfTheRoutesIsOfNoUse(t *testing.T) {
	b := serveDoor(t, nil)
	prefix := b.door.Prefix()
	escaped := fmt.Sprintf("/%%%x%s", prefix[1], prefix[2:])
	for _, mounted := range []string{"", "/door"} {
		b.door.Mount(mounted)
		for _, target := range []string{
			prefix + "/things/1", prefix, prefix + "/things/1/at/x", "http://x" + prefix + "/things/1", "//x" + prefix + "/things/1",
			escaped + "/things/1", "//x" + escaped + "/things/1", "/." + prefix + "/things/1", "/door" + prefix + "/things/1",
		} {
			got := b.post(b.main, "x", target, "x")
			assert.Check(t, cmp.Equal(got.status, 404), "%q mounted at %q: %s", target, mounted, got.text)
			assert.Check(t, !strings.Contains(got.text, prefix))
		}
	}
	got := b.post(b.main, "1.programs", prefix+"/things/1", "x")
	assert.Check(t, cmp.Equal(got.text, "1 /nowhere x"))
}

func TestAHostComesBeforeADoor(t *testing.T) {
	b := serveDoor(t, nil)
	b.door.Mount("/door")
	for _, target := range []string{"/door/things/1?a=b", "/door", "/door/things/1/at/here"} {
		got := b.post(b.main, "1.programs", target, "body")
		assert.Check(t, cmp.Equal(got.text, "1 "+target+" body"))
	}
	got := b.post(b.main, "x", "http://x/door/things/1", "x")
	assert.Check(t, cmp.Contains(got.text, `"at":"/door"`))
}

// In the next process, and where the door has moved, a key is that of the same request.
func TestAKeyOfADoorOutlivesTheProcess(t *testing.T) {
	kept, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kept.Close()) })
	var first string
	for _, mounted := range []string{"/door", "/moved"} {
		answers, err := idempotency.Open(kept)
		assert.NilError(t, err)
		b := serveDoor(t, answers)
		b.door.Mount(mounted)
		got := b.post(b.main, "x", mounted+"/secret/1", "x", "Idempotency-Key: k")
		assert.Equal(t, got.status, 202, got.text)
		assert.Equal(t, got.head.Get("Door"), "open", "the header that the handler has set")
		if first == "" {
			first = got.text
			continue
		}
		assert.Equal(t, got.text, first)
		assert.Equal(t, got.head.Get("Idempotency-Replayed"), "true")
		got = b.post(b.app, "x", "/secret/1", "x", "Idempotency-Key: k")
		assert.Equal(t, got.text, first)
		for _, other := range []string{"/secret/2", "/secret/1?a=b"} {
			got = b.post(b.main, "x", mounted+other, "x", "Idempotency-Key: k")
			assert.Check(t, got.status >= 400 && got.head.Get("Idempotency-Replayed") == "", "%s: %d %s", other, got.status, got.text)
		}
	}
}

// interrupted is a failure of something that may have had effects, or has had none.
type interrupted struct {
	error
	begun bool
}

func (i interrupted) HasBegun() bool { return i.begun }
func (i interrupted) Unwrap() error  { return i.error }

// What may have happened does not happen a second time for the same key.
func TestAFailureThatMayHaveHadEffectsIsTheAnswerOfItsKey(t *testing.T) {
	kept, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kept.Close()) })
	answers, err := idempotency.Open(kept)
	assert.NilError(t, err)
	var tries atomic.Int64
	b := serveDoor(t, answers, func(door *rest.API) {
		rest.Register(door, rest.Operation{Method: http.MethodPost, Path: "/failing/{begun}"}, func(_ context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
			gone := sdk.Errorf(sdk.CodeUnavailable, "try %d", tries.Add(1))
			return 0, rest.None{}, fmt.Errorf("in the middle: %w", interrupted{gone, c.Path["begun"] == "true"})
		})
	})
	b.door.Mount("/door")
	ask := func(path, key string) told {
		got := b.post(b.main, "x", path, "x", "Idempotency-Key: "+key)
		assert.Equal(t, got.status, http.StatusServiceUnavailable, got.text)
		assert.Equal(t, got.head.Get("Content-Type"), doorProblem)
		return got
	}
	first := ask("/door/failing/true", "a")
	again := ask("/door/failing/true", "a")
	assert.Equal(t, again.text, first.text)
	assert.Equal(t, again.head.Get("Idempotency-Replayed"), "true")
	assert.Equal(t, tries.Load(), int64(1))

	ask("/door/failing/false", "b")
	assert.Equal(t, ask("/door/failing/false", "b").head.Get("Idempotency-Replayed"), "")
	assert.Equal(t, tries.Load(), int64(3))
}

func TestADoorHasHostsOfItsOwnAndFieldsThatLeadElsewhere(t *testing.T) {
	b := serveDoor(t, nil)
	b.door.Mount("/door")
	for _, test := range []struct {
		name, address, host, target, field string
		status                             int
		answer                             string
	}{
		{"at the root of a host", b.main, "door.boxes", "/things/1?a=b", "", 202, `{"at":"","body":"x","id":"1","query":"a=b","tenant":"acme"}`},
		{"however that is written", b.main, "DOOR.Boxes.:80", "/things/1", "", 202, `"id":"1"`},
		{"and the path is told", b.main, "door.boxes", "/things/1/at/p%2Fq", "", 200, "/things/1/at|/p%2Fq|x"},
		{"and not below its path", b.main, "door.boxes", "/door/things/1", "", 404, "no such route"},
		{"where no other API is", b.main, "door.boxes", "/greeter/hello", "", 404, "no such route"},
		{"nor by the path of its routes", b.main, "door.boxes", b.door.Prefix() + "/things/1", "", 404, "no such route"},
		{"and below its path at all others", b.main, "x.door.example", "/door/things/1", "", 202, `"at":"/door"`},
		{"a field, below the path", b.main, "x", "/door/things/a%2Fb?c", "7", 200, `box 7 of x: "/door" "/things/a%2Fb" x`},
		{"a field, at the path alone", b.main, "x", "/door", "7", 200, `box 7 of x: "/door" "/" x`},
		{"a field, at its host", b.main, "door.boxes", "/things/1", "7", 200, `box 7 of door.boxes: "" "/things/1" x`},
		{"a field, at its listener", b.app, "x", "/things/1", "7", 200, `box 7 of x: "" "/things/1" x`},
		{"a host before a field", b.main, "1.boxes", "/door/things/1", "7", 200, "1 /door/things/1 x"},
		{"a field elsewhere", b.main, "x", "/things/1", "7", 404, "no such route"},
		{"a field, by the path of its routes", b.main, "x", b.door.Prefix() + "/things/1", "7", 404, "no such route"},
		{"that path at its listener", b.app, "x", b.door.Prefix() + "/things/1", "7", 200, fmt.Sprintf(`"" %q x`, b.door.Prefix()+"/things/1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := b.post(test.address, test.host, test.target, "x", "Box: "+test.field)
			assert.Equal(t, answer.status, test.status, answer.text)
			assert.Assert(t, cmp.Contains(answer.text, test.answer))
		})
	}
}
