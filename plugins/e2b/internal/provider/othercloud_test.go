package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Clouds that speak the protocol have IDs of other forms, such as a namespace and a name.
func TestIDsOfOtherCloudsAreTakenAsTheyAre(t *testing.T) {
	var mu sync.Mutex
	there := map[string]bool{"default--box-1": true}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !there["default--box-1"] {
			_, _ = fmt.Fprint(w, "[]")
			return
		}
		_, _ = fmt.Fprint(w, `[{"sandboxID":"default--box-1","state":"running","metadata":{"sandbox_broker":"b"},"endAt":"2100-01-01T00:00:00Z"}]`)
	})
	mux.HandleFunc("/sandboxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch id := r.PathValue("id"); {
		case !there[id]:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `{"code":400,"message":"Invalid sandbox ID"}`)
		case r.Method == http.MethodDelete:
			delete(there, id)
			w.WriteHeader(http.StatusNoContent)
		default:
			http.Error(w, "", http.StatusInternalServerError)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	p := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
	defer func() { assert.Check(t, p.Close(t.Context())) }()
	settings, mistakes := p.Describe().Schema.Resolve(map[string]any{"api_key": "e2b_0", "api_url": server.URL, "sandbox_url": server.URL})
	assert.Equal(t, len(mistakes), 0)
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{BrokerID: "b", StateDir: t.TempDir(), Settings: settings}))

	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.Equal(t, list[0].ID, "default--box-1")
	for range 2 {
		assert.NilError(t, p.Destroy(t.Context(), "default--box-1"), "one that is gone is a success")
	}
	list, err = p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	_, err = p.Execute(t.Context(), request("default--box-2", sdk.Bash, "true"), &heard{})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}
