package broker

import (
	"maps"
	"net"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/adoption"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/reconcile"
	"github.com/sandbox-broker/sandbox-broker/broker/listen"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// identify tells those who speak with peers how the broker and its peers know each other; nil
// for not at all.
func (b *broker) identify(p *config.Peers) {
	if p == nil {
		b.forwarder.SetIdentity(nil)
		b.server.ForPeers().SetTLS(nil)
		return
	}
	b.forwarder.SetIdentity(&peer.Identity{Certificate: p.Certificate, Authorities: p.Authorities})
	b.server.ForPeers().SetTLS(&api.TLS{Certificate: p.Certificate, ClientCAs: p.Authorities})
}

// openForwarder makes who speaks with peers, and returns the other brokers; nil where there are
// none.
func (b *broker) openForwarder() *peer.Others {
	b.forwarder = peer.NewForwarder(b.state.ID(), b.living())
	if b.options.Directory == nil {
		return nil
	}
	return peer.NewOthers(b.options.Directory, b.forwarder, b.logger.Named("peers"))
}

// finder finds which other brokers have what this one does not.
func (b *broker) finder() peer.Finder {
	return peer.NewFinder(b.life, b.options.Directory, nil, nil, b.logger.Named("peers"))
}

// answersForPeers are what this broker tells others of what it has.
func (b *broker) answersForPeers() peer.Answers {
	all := peer.Answers{}
	for _, some := range []peer.Answers{
		b.instances.Answers(), b.snapshots.Answers(), b.volumes.Answers(), b.runs.Answers(b.catalog.Tenant), b.quotas.Answers(),
	} {
		maps.Copy(all, some)
	}
	return all
}

// newPeers is where peers pass calls on to this broker. It listens nowhere yet.
func (b *broker) newPeers() *listen.Endpoint {
	logger := b.logger.Named("peers")
	return listen.New(b.server.ForPeers(), admission.NewGate(listen.PeerBounds(), listen.Report(logger)), logger)
}

// openPeers serves peers on a listener, or nowhere.
func (b *broker) openPeers(listener net.Listener) {
	b.peers.MoveTo(listener)
	b.peersAddress = ""
	if listener != nil {
		b.peersAddress = listener.Addr().String()
		b.logger.Info("peers", "address", b.peersAddress)
	}
}

// holders says what other brokers on the database have; nil where there are none.
func (b *broker) holders() reconcile.Holders {
	if b.database == nil {
		return nil
	}
	return b.database
}

// newHeir is who goes on with what dead brokers had, once it is told to; nil for nobody.
func (b *broker) newHeir() peer.Heir {
	if b.database == nil {
		return nil
	}
	b.heir = adoption.New(adoption.Options{
		Directory: b.database, Providers: b.catalog.Providers, Known: func(tenant string) bool { return b.catalog.InForce().Has(tenant) },
		Logger: b.logger.Named("adoption"),
	})
	return b.heir
}

// inherit goes on with what dead brokers had, from now on.
func (b *broker) inherit() {
	if b.heir != nil {
		b.tasks.Go("adopt what dead brokers had", func() { b.heir.Run(b.life, instance.SuccessorOf(b.instances)) })
	}
}

// tellPeers says where peers reach this broker.
func (b *broker) tellPeers(p *config.Peers) {
	if b.options.PeersAt == nil {
		return
	}
	switch {
	case p == nil:
		b.options.PeersAt("")
	case p.Advertise == p.Listen: // whose port may be one that was picked
		b.options.PeersAt(b.peersAddress)
	default:
		b.options.PeersAt(p.Advertise)
	}
}

// living says which brokers live; nil where this one is alone.
func (b *broker) living() peer.Living {
	if b.database == nil {
		return nil
	}
	return b.database
}
