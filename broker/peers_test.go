package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// ownedBy is a directory by which one peer has all that there is.
type ownedBy struct{ peer.Peer }

func (o ownedBy) OwnerOf(context.Context, string, string) (peer.Peer, bool, error) {
	return o.Peer, true, nil
}

func (o ownedBy) OwnerOfNamed(context.Context, string) (peer.Peer, bool, error) {
	return o.Peer, true, nil
}

func (o ownedBy) OwnerOfSession(context.Context, string, string) (peer.Peer, bool, error) {
	return o.Peer, true, nil
}

func (o ownedBy) OwnerOfSnapshot(context.Context, string, string) (peer.Peer, bool, error) {
	return o.Peer, true, nil
}

func (o ownedBy) OwnerOfVolume(context.Context, string, string) (peer.Peer, bool, error) {
	return o.Peer, true, nil
}

func (o ownedBy) Peers(context.Context) ([]peer.Peer, error) { return []peer.Peer{o.Peer}, nil }

func (o ownedBy) Away(context.Context, string, string) ([]peer.Record, error) { return nil, nil }

func TestABrokerAnswersForItsPeer(t *testing.T) {
	authority := certtest.NewAuthority(t)
	block := func(name string) string {
		dir := t.TempDir()
		certificate, key := authority.Issue(name).Write(t, dir)
		ca := filepath.Join(dir, "ca.pem")
		assert.NilError(t, os.WriteFile(ca, authority.PEM, 0o644))
		return fmt.Sprintf("peers {\n listen = \"127.0.0.1:0\"\n cert_file = %q\n key_file = %q\n ca_file = %q\n}\nprovider \"mock\" {}\n", certificate, key, ca)
	}
	at := make(chan string, 1)
	first := serve(t, configuration(t, scratch.Dir(t), block("first")), func(o *broker.Options) { o.PeersAt = func(address string) { at <- address } })
	status, text := first.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s"}`)
	assert.Equal(t, status, http.StatusCreated, text)
	var made client.Instance
	assert.NilError(t, json.Unmarshal([]byte(text), &made))

	second := serve(t, configuration(t, scratch.Dir(t), block("second")), func(o *broker.Options) {
		o.Directory = ownedBy{peer.Peer{ID: "first", Address: <-at}}
	})
	status, text = second.do(http.MethodPost, "/api/v1/instances/"+made.ID+"/execute", `{"language":"python","code":"{\"stdout\": \"served\"}"}`)
	assert.Equal(t, status, http.StatusOK, text)
	assert.Check(t, cmp.Contains(text, made.ID))
	status, text = second.do(http.MethodDelete, "/api/v1/instances/"+made.ID, "")
	assert.Equal(t, status, http.StatusNoContent, text)
	status, text = second.do(http.MethodGet, "/api/v1/instances/"+made.ID, "")
	assert.Equal(t, status, http.StatusNotFound, text) // says its owner
	second.stop()
	assert.Check(t, cmp.Contains(second.log.String(), "passed_on_to=first"))
}
