package snapshot

import (
	"cmp"
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// aboutSnapshots is what brokers ask each other.
const aboutSnapshots = "snapshots"

// listQuestion asks for the snapshots of a tenant, those of all if it is empty.
type listQuestion struct {
	Tenant  string
	Request ListRequest
}

// Answers are what this broker tells others of its snapshots.
func (s *Service) Answers() peer.Answers {
	return peer.Answers{
		aboutSnapshots: peer.Answering(func(_ context.Context, q listQuestion) (Page, error) { return s.ListAll(q.Tenant, q.Request), nil }),
	}
}

// ListEverywhere is List for the snapshots of all brokers, of dead ones too. The error is SB009
// where not all that live have answered.
func (s *Service) ListEverywhere(ctx context.Context, who tenant.Tenant, req ListRequest) (Page, error) {
	page, err := s.ListAllEverywhere(ctx, who.Name, req)
	if err != nil {
		return Page{}, err
	}
	return page, nil
}

// ListAllEverywhere is ListAll for the snapshots of all brokers, of dead ones too. With a
// peer.SilentError comes the page without those that have not answered.
func (s *Service) ListAllEverywhere(ctx context.Context, owner string, req ListRequest) (Page, error) {
	page := s.ListAll(owner, req)
	told, err := peer.AskAll[Page](ctx, s.others, aboutSnapshots, listQuestion{owner, req})
	if _, some := peer.Silent(err); !some {
		return Page{}, err
	}
	away, awayErr := s.away(ctx, owner, req)
	if awayErr != nil {
		return Page{}, awayErr
	}
	if len(told) == 0 && len(away) == 0 {
		return page, err
	}
	named := func(infos []Info, broker string) []Info {
		for i := range infos {
			infos[i].Broker = broker
		}
		return infos
	}
	parts, more := [][]Info{named(page.Snapshots, s.brokerID), away}, page.More
	for _, t := range told {
		parts, more = append(parts, named(t.Answer.Snapshots, t.By.ID)), more || t.Answer.More
	}
	merged, cut := peer.Merge(req.Limit, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) }, parts...)
	return Page{Snapshots: merged, More: more || cut}, err
}

// away are the snapshots on the disks of dead brokers.
func (s *Service) away(ctx context.Context, owner string, req ListRequest) (all []Info, err error) {
	now := time.Now()
	err = peer.Away(ctx, s.others, string(store.Snapshots), owner, func(broker string, r Record) {
		e := entry{Record: r}
		if e.visible() && now.Before(r.Expires) && req.wants(r) {
			info := infoOf(r)
			info.Broker = broker
			all = append(all, info)
		}
	})
	return all, err
}
