package peer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestAListIsOfAllBrokers(t *testing.T) {
	f := start(t)
	var all []string
	for n, address := range []string{f.first, f.second.Address, f.first} {
		var made client.Instance
		f.do(address, http.MethodPost, "/api/v1/instances", fmt.Sprintf(`{"session_id":"s%d"}`, n)).wants(http.StatusCreated).decode(&made)
		all = append(all, made.ID)
	}
	list := func(query string, headers ...string) (ids []string, next string) {
		var page client.InstanceList
		f.do(f.second.Address, http.MethodGet, "/api/v1/instances"+query, "", headers...).wants(http.StatusOK).decode(&page)
		for _, i := range page.Instances {
			ids = append(ids, i.ID)
		}
		return ids, page.Next
	}
	ids, next := list("")
	assert.DeepEqual(t, ids, all)
	assert.Equal(t, next, "")
	ids, next = list("?limit=1")
	assert.DeepEqual(t, ids, all[:1])
	ids, next = list("?limit=2&after=" + next)
	assert.DeepEqual(t, ids, all[1:])
	assert.Equal(t, next, "")
	ids, _ = list("", "X-Broker-Hop: about=instances")
	assert.DeepEqual(t, ids, all) // what only peers say is nothing in the mouth of a client
	f.do(f.second.Address, http.MethodGet, "/api/v1/instances/"+all[0], "", "X-Broker-Hop: about=instances").wants(http.StatusOK)

	f.second.Forwarder.SetIdentity(nil)
	f.do(f.second.Address, http.MethodGet, "/api/v1/instances", "").unavailable()
}

// roll is one of brokers that nobody reaches.
type roll struct {
	peers []peer.Peer
	fails error
}

func (r roll) Peers(context.Context) ([]peer.Peer, error) { return r.peers, r.fails }

func (r roll) Away(_ context.Context, kind, tenant string) ([]peer.Record, error) {
	return []peer.Record{{Broker: "a", Value: []byte(fmt.Sprintf(`{"what":%q}`, kind+" of "+tenant))}, {Broker: "b", Value: []byte("{")}}, r.fails
}

func TestWhoAsksIsToldWhoDoesNotAnswer(t *testing.T) {
	ask := func(o *peer.Others) error {
		told, err := peer.AskAll[int](t.Context(), o, "anything", nil)
		assert.Check(t, is.Len(told, 0))
		return err
	}
	others := func(r roll) *peer.Others {
		return peer.NewOthers(r, peer.NewForwarder("me", nil), hclog.NewNullLogger())
	}
	assert.NilError(t, ask(nil), "who is alone")
	assert.NilError(t, ask(others(roll{})))
	gone := []peer.Peer{{ID: "b", Address: "b:1"}, {ID: "a", Address: "a:1"}}
	err := ask(others(roll{peers: gone}))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	silent, only := peer.Silent(err)
	assert.Check(t, only)
	assert.DeepEqual(t, silent, []peer.Peer{gone[1], gone[0]})
	fails := errors.New("the database is away")
	err = ask(others(roll{fails: fails}))
	assert.ErrorIs(t, err, fails)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	_, only = peer.Silent(err)
	assert.Check(t, !only)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = peer.AskAll[int](ctx, others(roll{peers: gone}), "anything", nil)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestWhatADeadBrokerHasIsReadFromItsRecords(t *testing.T) {
	type record struct{ What string }
	var seen []string
	look := func(broker string, r record) { seen = append(seen, broker+": "+r.What) }
	others := func(r roll) *peer.Others {
		return peer.NewOthers(r, peer.NewForwarder("me", nil), hclog.NewNullLogger())
	}
	assert.NilError(t, peer.Away(t.Context(), nil, "volumes", "acme", look))
	assert.NilError(t, peer.Away(t.Context(), others(roll{}), "volumes", "acme", look))
	assert.DeepEqual(t, seen, []string{"a: volumes of acme"})
	err := peer.Away(t.Context(), others(roll{fails: errors.New("the database is away")}), "volumes", "acme", look)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
}

func TestQuestionsOfPeers(t *testing.T) {
	answers := peer.Answers{
		"double": peer.Answering(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		"fails":  peer.Answering(func(context.Context, struct{}) (int, error) { return 0, errors.New("no") }),
	}
	text, err := answers.Answer(t.Context(), "double", []byte("21"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "42")
	for about, question := range map[string]string{"double": "x", "fails": "{}", "newer": "{}"} {
		_, err := answers.Answer(t.Context(), about, []byte(question))
		assert.Check(t, err != nil, about)
	}
}

func TestMerge(t *testing.T) {
	order := func(a, b int) int { return a - b }
	merged, more := peer.Merge(3, order, []int{1, 4}, []int{2, 3}, nil)
	assert.DeepEqual(t, merged, []int{1, 2, 3})
	assert.Check(t, more)
	merged, more = peer.Merge(0, order, []int{5}, []int{1})
	assert.DeepEqual(t, merged, []int{1, 5})
	assert.Check(t, !more)
}
