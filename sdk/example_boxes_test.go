package sdk_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cloud is the service that the example provider is written for.
func cloud(t *testing.T) *httptest.Server {
	boxes := map[string]box{}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { assert.Check(t, json.NewEncoder(w).Encode(v)) }
	mux.HandleFunc("GET /account", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("PUT /boxes/{key}", func(w http.ResponseWriter, r *http.Request) {
		var b box
		assert.Check(t, json.NewDecoder(r.Body).Decode(&b))
		b.ID = "box-" + r.PathValue("key")
		boxes[b.ID] = b
		answer(w, b)
	})
	mux.HandleFunc("GET /boxes", func(w http.ResponseWriter, r *http.Request) {
		var owned []box
		for _, b := range boxes {
			if b.Owner == r.URL.Query().Get("owner") {
				owned = append(owned, b)
			}
		}
		answer(w, owned)
	})
	mux.HandleFunc("GET /boxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		b, ok := boxes[r.PathValue("id")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answer(w, b)
	})
	mux.HandleFunc("PATCH /boxes/{id}", func(_ http.ResponseWriter, r *http.Request) {
		var b box
		assert.Check(t, json.NewDecoder(r.Body).Decode(&b))
		boxes[b.ID] = b
	})
	mux.HandleFunc("POST /boxes/{id}/runs", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := boxes[r.PathValue("id")]; !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		var run struct{ Code string }
		assert.Check(t, json.NewDecoder(r.Body).Decode(&run))
		answer(w, map[string]any{"stdout": []byte("ran " + run.Code), "exitcode": 3})
	})
	mux.HandleFunc("DELETE /boxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := boxes[r.PathValue("id")]; !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		delete(boxes, r.PathValue("id"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

type heard struct{ stdout string }

func (h *heard) Stdout(p []byte) error       { h.stdout += string(p); return nil }
func (h *heard) Stderr([]byte) error         { return nil }
func (h *heard) Artifact(sdk.Artifact) error { return nil }

func TestTheExampleProviderWorks(t *testing.T) {
	server := cloud(t)
	ctx := t.Context()
	settings := func(token string) sdk.Settings {
		s, mistakes := boxesSchema().Resolve(map[string]any{"endpoint": server.URL, "token": token})
		assert.Equal(t, len(mistakes), 0)
		return s
	}
	refused := newBoxes(hclog.NewNullLogger()).Configure(ctx, sdk.ConfigureRequest{Settings: settings("bad")})
	assert.Error(t, refused, "SB002: token: the service does not accept the token")

	p := newBoxes(hclog.NewNullLogger())
	assert.NilError(t, p.Configure(ctx, sdk.ConfigureRequest{BrokerID: "b", Settings: settings("good")}))
	health, err := p.Health(ctx)
	assert.NilError(t, err)
	assert.Assert(t, health.Healthy)

	labels := map[string]string{sdk.LabelInstance: "i"}
	made, err := p.Create(ctx, sdk.CreateRequest{Template: "python", Labels: labels, IdempotencyKey: "k"})
	assert.NilError(t, err)
	listed, err := p.List(ctx)
	assert.NilError(t, err)
	assert.Equal(t, len(listed), 1)
	assert.DeepEqual(t, listed[0].Labels, labels)
	assert.Equal(t, listed[0].ID, made.ID)

	var out heard
	result, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: made.ID, Code: "x", Timeout: time.Second}, &out)
	assert.NilError(t, err)
	assert.Equal(t, out.stdout, "ran x")
	assert.Equal(t, result.Status, sdk.StatusFailed)
	assert.Equal(t, result.ExitCode, 3)

	assert.NilError(t, p.Destroy(ctx, made.ID))
	assert.NilError(t, p.Destroy(ctx, made.ID), "a second time too")
	_, err = p.Execute(ctx, sdk.ExecuteRequest{InstanceID: made.ID, Timeout: time.Second}, &out)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}

func TestTheExampleProviderAdopts(t *testing.T) {
	server := cloud(t)
	settings, mistakes := boxesSchema().Resolve(map[string]any{"endpoint": server.URL, "token": "good"})
	assert.Equal(t, len(mistakes), 0)
	of := func(brokerID string) interface {
		sdk.Provider
		sdk.Adopter
	} {
		b := &boxes{logger: hclog.NewNullLogger()}
		assert.NilError(t, b.Configure(t.Context(), sdk.ConfigureRequest{BrokerID: brokerID, Settings: settings}))
		return b
	}
	former, heir := of("former"), of("heir")
	made, err := former.Create(t.Context(), sdk.CreateRequest{Template: "python", Labels: map[string]string{sdk.LabelBroker: "former"}, IdempotencyKey: "k"})
	assert.NilError(t, err)
	notFound := &sdk.Error{Code: sdk.CodeNotFound}
	assert.ErrorIs(t, heir.Adopt(t.Context(), "unknown", "former"), notFound)
	assert.ErrorIs(t, heir.Adopt(t.Context(), made.ID, "another"), notFound)
	over := &sdk.Lease{}
	over.Extend(1, 0)
	withoutLease := sdk.WithLease(t.Context(), over)
	assert.ErrorIs(t, heir.Adopt(withoutLease, made.ID, "former"), &sdk.Error{Code: sdk.CodeUnavailable})
	for range 2 {
		assert.NilError(t, heir.Adopt(t.Context(), made.ID, "former"))
	}
	assert.NilError(t, former.Release(t.Context(), made.ID))
	list, err := former.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	list, err = heir.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.Equal(t, list[0].Labels[sdk.LabelBroker], "heir")
	assert.ErrorIs(t, former.Destroy(withoutLease, made.ID), &sdk.Error{Code: sdk.CodeUnavailable})
	assert.NilError(t, heir.Destroy(t.Context(), made.ID))
}
