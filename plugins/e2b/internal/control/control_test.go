package control_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
)

func client(t *testing.T, handler http.HandlerFunc) *control.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return control.New(server.URL+"/", "e2b_key", server.Client())
}

func TestAFilterIsEncodedAsE2BsOwnClientsDo(t *testing.T) {
	var query string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		_, _ = fmt.Fprint(w, "[]")
	})
	_, err := c.List(t.Context(), map[string]string{"a b": "c&d"})
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(query, "metadata=a%252520b%3Dc%252526d"), query)
}

func TestAListHasAllItsPages(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		page := r.URL.Query().Get("nextToken")
		if next := map[string]string{"": "two", "two": "three"}[page]; next != "" {
			w.Header().Set("X-Next-Token", next)
		}
		_, _ = fmt.Fprintf(w, `[{"sandboxID":"i%s","state":"running","unknown":1}]`, page)
	})
	all, err := c.List(t.Context(), nil)
	assert.NilError(t, err)
	assert.Equal(t, len(all), 3)
	assert.Equal(t, all[2].SandboxID, "ithree")
}

func TestAListWithoutAnEndEnds(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Next-Token", "again")
		_, _ = fmt.Fprint(w, "[]")
	})
	_, err := c.List(t.Context(), nil)
	assert.ErrorContains(t, err, "has no end")
}

func TestBothGenerationsOfRoutesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		lacks  string
		status int
		want   []string
	}{
		"a server with both":        {"", 0, []string{"/sandboxes", "/sandboxes"}},
		"one without the old (404)": {"/sandboxes", 404, []string{"/sandboxes", "/v2/sandboxes", "/v2/sandboxes"}},
		"one without the old (405)": {"/sandboxes", 405, []string{"/sandboxes", "/v2/sandboxes", "/v2/sandboxes"}},
		"one without the new":       {"/v2/sandboxes", 400, []string{"/sandboxes", "/sandboxes"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			api := client(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Check(t, r.Header.Get("X-API-Key") == "e2b_key")
				asked = append(asked, r.URL.Path)
				if r.URL.Path == c.lacks {
					w.WriteHeader(c.status)
					return
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprint(w, `{"sandboxID":"i1","trafficAccessToken":null,"domain":null}`)
			})
			for range 2 {
				made, err := api.Create(t.Context(), control.NewSandbox{TemplateID: "t", Timeout: 60, Secure: true})
				assert.NilError(t, err)
				assert.Equal(t, made.SandboxID, "i1")
			}
			assert.DeepEqual(t, asked, c.want)
		})
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, 1500 * time.Millisecond: 2} {
		assert.Equal(t, control.Seconds(d), want)
	}
}
