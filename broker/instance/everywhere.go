package instance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// lists tell which instances there are: those of this broker, and those of all brokers.
type lists struct {
	registry *registry.Registry
	others   *peer.Others
	brokerID string
}

// What brokers ask each other about instances.
const (
	aboutInstances = "instances"
	aboutUnknown   = "unknown instances"
)

// listQuestion asks for the instances of a tenant, those of all if it is empty.
type listQuestion struct {
	Tenant  string
	Request ListRequest
}

// unknownQuestion asks which instances of a tenant nobody knows of yet, after a while.
type unknownQuestion struct {
	Tenant, FrontDoor string
	Wait              time.Duration
}

// unknownWait is how long another broker waits for what its providers say. It is less than how
// long it is waited for.
const unknownWait = 3 * time.Second

// Answers are what this broker tells others of its instances.
func (l *lists) Answers() peer.Answers {
	return peer.Answers{
		aboutInstances: peer.Answering(func(_ context.Context, q listQuestion) (Page, error) { return l.ListAll(q.Tenant, q.Request), nil }),
		aboutUnknown: peer.Answering(func(ctx context.Context, q unknownQuestion) ([]Info, error) {
			ctx, cancel := context.WithTimeout(ctx, min(q.Wait, unknownWait))
			defer cancel()
			return l.Settled(ctx, tenant.Tenant{Name: q.Tenant}, "", q.FrontDoor), nil
		}),
	}
}

// List returns the tenant's live instances that this broker has, in the order of their IDs: one
// that stays neither vanishes from the pages of a list nor comes twice, whatever else comes and
// goes meanwhile.
func (l *lists) List(who tenant.Tenant, req ListRequest) Page {
	return pageOf(l.registry.List(who.Name, req))
}

// ListAll is List for the tenant of that name, or for all tenants if it is empty.
func (l *lists) ListAll(owner string, req ListRequest) Page {
	if owner == "" {
		return pageOf(l.registry.ListAll(req))
	}
	return pageOf(l.registry.List(owner, req))
}

// ListEverywhere is List for the instances of all brokers that live. The error is SB009 where
// not all have answered: nobody is told of a part as if it were the whole.
func (l *lists) ListEverywhere(ctx context.Context, who tenant.Tenant, req ListRequest) (Page, error) {
	page, err := l.ListAllEverywhere(ctx, who.Name, req)
	if err != nil {
		return Page{}, err
	}
	return page, nil
}

// ListAllEverywhere is ListAll for the instances of all brokers that live. With a
// peer.SilentError comes the page of those that have answered.
func (l *lists) ListAllEverywhere(ctx context.Context, owner string, req ListRequest) (Page, error) {
	page := l.ListAll(owner, req)
	told, err := peer.AskAll[Page](ctx, l.others, aboutInstances, listQuestion{owner, req})
	if _, some := peer.Silent(err); !some {
		return Page{}, err
	}
	if len(told) == 0 {
		return page, err
	}
	named := func(infos []Info, broker string) []Info {
		for i := range infos {
			infos[i].Broker = broker
		}
		return infos
	}
	parts, more := [][]Info{named(page.Instances, l.brokerID)}, page.More
	for _, t := range told {
		parts, more = append(parts, named(t.Answer.Instances, t.By.ID)), more || t.Answer.More
	}
	merged, cut := peer.Merge(req.Limit, func(a, b Info) int { return cmp.Compare(a.ID.String(), b.ID.String()) }, parts...)
	return Page{Instances: merged, More: more || cut}, err
}

// Settled waits, as long as ctx lasts, until it is known what has become of the instances
// that an earlier process made for a tenant by a front door, of a session, each of them any
// if it is empty: List and Get tell of them then. It returns those of which nobody knows yet.
// Nothing but their IDs and their front door is known.
func (l *lists) Settled(ctx context.Context, who tenant.Tenant, session, frontDoor string) (unknown []Info) {
	for {
		awaited := l.registry.Awaited(who.Name, session, frontDoor)
		if len(awaited) == 0 {
			return nil
		}
		select {
		case <-awaited[0].Changed:
		case <-ctx.Done():
			for _, i := range awaited {
				unknown = append(unknown, Info{ID: i.ID, FrontDoor: i.FrontDoor})
			}
			return unknown
		}
	}
}

// SettledEverywhere is Settled for the instances of any session on all brokers that live, of
// which others wait for a while only. The error is SB009 where not all have answered.
func (l *lists) SettledEverywhere(ctx context.Context, who tenant.Tenant, frontDoor string) (unknown []Info, err error) {
	// It is asked first: whoever gives up soon has the time of ctx for that.
	told, err := peer.AskAll[[]Info](ctx, l.others, aboutUnknown, unknownQuestion{who.Name, frontDoor, unknownWait})
	if err != nil {
		return nil, err
	}
	unknown = l.Settled(ctx, who, "", frontDoor)
	for _, t := range told {
		unknown = append(unknown, t.Answer...)
	}
	slices.SortFunc(unknown, func(a, b Info) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	return unknown, nil
}

func pageOf(instances []registry.Instance, more bool) Page {
	page := Page{Instances: []Info{}, More: more}
	for _, i := range instances {
		page.Instances = append(page.Instances, infoOf(i))
	}
	return page
}
