// Package peertest puts a second broker beside the one of a test: calls that its clients make
// there are passed on to the first one.
package peertest

import (
	"context"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
)

// Directory knows of one peer what its service has. It is an instance.Directory.
type Directory struct {
	Peer    peer.Peer
	Service *instance.Service
}

// OwnerOf implements instance.Directory.
func (d Directory) OwnerOf(ctx context.Context, _, id string) (peer.Peer, bool, error) {
	_, err := d.Service.Inspect(ctx, id)
	return d.Peer, err == nil, nil
}

// OwnerOfNamed implements instance.Directory.
func (d Directory) OwnerOfNamed(ctx context.Context, name string) (peer.Peer, bool, error) {
	_, err := d.Service.Named(ctx, name)
	return d.Peer, err == nil, nil
}

// OwnerOfSession implements instance.Directory.
func (d Directory) OwnerOfSession(_ context.Context, tenant, session string) (peer.Peer, bool, error) {
	page := d.Service.ListAll(tenant, instance.ListRequest{Session: session})
	return d.Peer, len(page.Instances) > 0, nil
}

// OwnerOfSnapshot implements instance.Directory: the peer has none.
func (d Directory) OwnerOfSnapshot(context.Context, string, string) (peer.Peer, bool, error) {
	return peer.Peer{}, false, nil
}

// OwnerOfVolume implements instance.Directory: the peer has none.
func (d Directory) OwnerOfVolume(context.Context, string, string) (peer.Peer, bool, error) {
	return peer.Peer{}, false, nil
}

// Peers implements instance.Directory.
func (d Directory) Peers(context.Context) ([]peer.Peer, error) { return []peer.Peer{d.Peer}, nil }

// Away implements instance.Directory: nobody is dead.
func (d Directory) Away(context.Context, string, string) ([]peer.Record, error) { return nil, nil }

// Owner is the broker that a test has.
type Owner struct {
	Server  *api.Server
	Service *instance.Service
}

// Listen has the server listen for peers, with a certificate of the authority, and returns
// where.
func (o Owner) Listen(t testing.TB, authority *certtest.Authority) peer.Peer {
	t.Helper()
	serving := o.Server.ForPeers()
	serving.SetTLS(&api.TLS{Certificate: authority.Issue("owner").TLS(t), ClientCAs: authority.Pool()})
	return peer.Peer{ID: "owner", Address: Serve(t, serving)}
}

// Broker is the second one.
type Broker struct {
	// Address of its API.
	Address string
	Server  *api.Server
	Service *instance.Service
	// Forwarder is how it asks the owner.
	Forwarder *peer.Forwarder
}

// Beside starts a second broker with the options of the first one, but for what belongs to
// one broker. Its own instances are those of the catalog.
func Beside(t testing.TB, owner Owner, opts api.Options, catalog instance.Catalog) *Broker {
	t.Helper()
	authority := certtest.NewAuthority(t)
	directory := Directory{Peer: owner.Listen(t, authority), Service: owner.Service}
	b := Start(t, directory, opts, catalog)
	b.Forwarder.SetIdentity(&peer.Identity{Certificate: authority.Issue("second").TLS(t), Authorities: authority.Pool()})
	return b
}

// Start starts a broker that passes on what the directory says that another one has, as soon
// as its forwarder has an identity.
func Start(t testing.TB, directory instance.Directory, opts api.Options, catalog instance.Catalog) *Broker {
	t.Helper()
	b := &Broker{Forwarder: peer.NewForwarder("second", nil)}
	b.Service = instance.NewService(instance.Options{
		Catalog: catalog, Limits: instancetest.Limits(), Logger: opts.Logger, Directory: directory, BrokerID: "second",
		Others: peer.NewOthers(directory, b.Forwarder, opts.Logger),
	})
	opts.Instances, opts.Peers, opts.Questions = b.Service, b.Forwarder, b.Service.Answers()
	opts.Snapshots, opts.Executions = nil, nil
	var err error
	b.Server, err = api.NewServer(opts)
	assert.NilError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		b.Service.Shutdown(ctx)
		b.Forwarder.Close()
	})
	b.Address = Serve(t, b.Server)
	return b
}

// Serve serves until the test ends, and returns the address.
func Serve(t testing.TB, server interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
},
) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.Check(t, server.Shutdown(ctx))
		_ = listener.Close() // for a server that never came to serve
		assert.Check(t, <-ended)
	})
	return listener.Addr().String()
}

var (
	_ instance.Directory = Directory{}
	_ rest.Peers         = (*peer.Forwarder)(nil)
)
