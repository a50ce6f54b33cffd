package rest_test

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// doorProblem is the media type of what the door refuses.
const doorProblem = "application/door+json"

// addDoor adds an API that Mount puts somewhere. It tells what it has got.
func addDoor(s *rest.Server, tenants rest.Tenants) *rest.API {
	a := s.NewAPI(rest.APIOptions{
		Name:  "door",
		Hosts: func(host string) bool { return host == "door.boxes" },
		Problem: func(err error, requestID string) rest.Problem {
			r := rest.RefusalOf(err, requestID)
			return r.As(doorProblem, r)
		},
		Authenticate: func(_ context.Context, h rest.Header) (tenant.Tenant, error) {
			if strings.HasPrefix(h.Target(), "/secret/") {
				return tenant.Tenant{Name: "by path"}, nil
			}
			if who, ok := tenants.Authenticate(rest.OnlyOne(h.Values("Door-Key"))); ok {
				return who, nil
			}
			return tenant.Tenant{}, sdk.Errorf(sdk.CodeNotFound, "who are you?")
		},
	})
	told := func(_ context.Context, c rest.Call[rest.Raw]) (int, map[string]string, error) {
		c.SetHeader("Door", "open")
		return http.StatusAccepted, map[string]string{"body": string(c.Body), "tenant": c.Tenant.Name, "at": c.Mounted(), "id": c.Path["id"], "query": c.RawQuery}, nil
	}
	rest.Register(a, rest.Operation{Method: http.MethodPost, Path: ""}, told)
	rest.Register(a, rest.Operation{Method: http.MethodPost, Path: "/things/{id}", AnyQuery: true}, told)
	rest.Register(a, rest.Operation{Method: http.MethodPost, Path: "/secret/{id}"}, told)
	rest.Stream(a, rest.Operation{Method: http.MethodPost, Path: "/things/{id}/at/here"}, func(w http.ResponseWriter, _ *http.Request, c rest.Call[rest.Raw]) error {
		_, err := io.WriteString(w, "here "+string(c.Body))
		return err
	})
	rest.Stream(a, rest.Operation{Method: http.MethodPost, Path: "/things/{id}/at/*", AnyQuery: true}, func(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
		before, rest, _ := c.SplitPath("/things/{id}/at/*", rest.PathAsSent(r))
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, before+"|"+rest+"|"+string(body))
		return err
	})
	return a
}

func TestADoorIsWhereItIsMounted(t *testing.T) {
	tenants := tenant.NewDirectory([]tenant.Credentials{{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}}})
	counted := make(meter, 100)
	s := rest.NewServer(rest.Options{
		Tenants: tenants, Meter: counted, Logger: hclog.NewNullLogger(),
		Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	door := addDoor(s, tenants)
	(&greeter{}).add(s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		assert.Check(t, s.Shutdown(context.Background()))
		assert.Check(t, <-served)
	})
	ask := func(path, key, body string) (int, string) {
		status, _, text := post(t, client, "http://"+listener.Addr().String()+path, key, body)
		return status, text
	}
	const key = "Door-Key"
	for _, test := range []struct {
		name, mounted, path, key, body string
		status                         int
		answer, counted                string
	}{
		{"nowhere at first", "", "/door/things/1", key, "x", 404, "SB013", "POST  404 SB013"},
		{"with a prefix", "/door", "/door/things/1?a=b", key, "x", 202, `{"at":"/door","body":"x","id":"1","query":"a=b","tenant":"acme"}`, "POST /door/things/{id} 202 "},
		{"its prefix alone", "/door", "/door", key, "x", 202, `"id":""`, "POST /door 202 "},
		{"with an escaped part", "/door", "/door/things/a%3Ab", key, "x", 202, `"id":"a:b"`, "POST /door/things/{id} 202 "},
		{"with a longer prefix", "/a/b", "/a/b/things/1", key, "", 202, `"at":"/a/b"`, "POST /door/things/{id} 202 "},
		{"and not where it was", "/a/b", "/door/things/1", key, "x", 404, "SB013", "POST  404 SB013"},
		{"nor at what only begins so", "/door", "/doors/things/1", key, "x", 404, "SB013", "POST  404 SB013"},
		{"nor with an escaped prefix", "/door", "/%64oor/things/1", key, "x", 404, "SB013", "POST  404 SB013"},
		{"who is not known hears the door's refusal", "/door", "/door/things/1", "X-API-Key", "x", 404, "who are you?", "POST /door/things/{id} 404 SB013"},
		{"a path can be a credential", "/door", "/door/secret/1", "X-API-Key", "x", 202, `"tenant":"by path"`, "POST /door/secret/{id} 202 "},
		{"a body that is read before", "/door", "/door/things/1/at/here", key, "body", 200, "here body", "POST /door/things/{id}/at/here 200 "},
		{"what streams is told its path", "/door", "/door/things/1/at/p%2Fq/r", key, "body", 200, "/door/things/1/at|/p%2Fq/r|body", "POST /door/things/{id}/at/* 200 "},
		{"above the other one's", "/greeter/door", "/greeter/door/things/1", key, "x", 202, `"at":"/greeter/door"`, "POST /door/things/{id} 202 "},
		{"a body that is too large", "/door", "/door/things/1", key, strings.Repeat("x", 64<<10+1), 413, "SB010", "POST  413 SB010"},
	} {
		t.Run(test.name, func(t *testing.T) {
			door.Mount(test.mounted)
			status, text := ask(test.path, test.key, test.body)
			assert.Equal(t, status, test.status, text)
			assert.Assert(t, cmp.Contains(text, test.answer))
			assert.Equal(t, <-counted, test.counted)
		})
	}
}

// A program that is told to end while it starts does end.
func TestAServerThatHasEndedListensToNobody(t *testing.T) {
	s := rest.NewServer(rest.Options{Logger: hclog.NewNullLogger(), Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute}})
	assert.NilError(t, s.Shutdown(t.Context()))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	assert.NilError(t, s.Serve(listener))
	_, err = listener.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}
