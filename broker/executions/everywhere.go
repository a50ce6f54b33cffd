package executions

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What brokers ask each other about executions. Nothing is written down of most of them, so who
// has one is asked for and not looked up.
const (
	aboutExecutions = "executions"
	aboutExecution  = "execution"
)

// listQuestion asks for the executions of a tenant.
type listQuestion struct{ Tenant string }

// idQuestion names an execution of a tenant.
type idQuestion struct{ Tenant, ID string }

// idAnswer says whether there is one.
type idAnswer struct {
	Found, Running bool
	Created        time.Time
}

// Answers are what this broker tells others of its executions. known finds a tenant by its name.
func (k *Keeper) Answers(known func(name string) (tenant.Tenant, bool)) peer.Answers {
	return peer.Answers{
		aboutExecutions: peer.Answering(func(_ context.Context, q listQuestion) ([]Info, error) {
			who, ok := known(q.Tenant)
			if !ok {
				return nil, nil
			}
			list := k.List(who)
			for i := range list { // what became of them is not in lists
				list[i].Result, list[i].Last.Data = nil, nil
			}
			return list, nil
		}),
		aboutExecution: peer.Answering(func(_ context.Context, q idQuestion) (idAnswer, error) {
			who, ok := known(q.Tenant)
			if !ok {
				return idAnswer{}, nil
			}
			x, err := k.Find(who, q.ID)
			if err != nil {
				return idAnswer{}, nil //nolint:nilerr // that is the answer
			}
			info := x.Info()
			return idAnswer{Found: true, Running: info.State == Running, Created: info.Created}, nil
		}),
	}
}

// FindEverywhere is Find, whose error is a peer.ElsewhereError for an execution that another
// broker has: one that runs before one that has ended, and of these the newest. It is SB009 where
// that cannot be found out.
func (k *Keeper) FindEverywhere(ctx context.Context, who tenant.Tenant, id string) (*Execution, error) {
	x, absent := k.Find(who, id)
	if absent == nil || sdk.CodeOf(absent) != sdk.CodeNotFound {
		return x, absent
	}
	told, err := peer.AskAll[idAnswer](ctx, k.others, aboutExecution, idQuestion{who.Name, id})
	told = slices.DeleteFunc(told, func(t peer.Told[idAnswer]) bool { return !t.Answer.Found })
	switch {
	case len(told) > 0:
		best := slices.MaxFunc(told, func(a, b peer.Told[idAnswer]) int {
			if a.Answer.Running != b.Answer.Running {
				if a.Answer.Running {
					return 1
				}
				return -1
			}
			return a.Answer.Created.Compare(b.Answer.Created)
		})
		return nil, peer.Elsewhere(best.By)
	case err != nil:
		return nil, err
	}
	return nil, absent
}

// ListEverywhere is List for the executions of all brokers that live. The error is SB009 where
// not all have answered.
func (k *Keeper) ListEverywhere(ctx context.Context, who tenant.Tenant) ([]Info, error) {
	told, err := peer.AskAll[[]Info](ctx, k.others, aboutExecutions, listQuestion{who.Name})
	if err != nil {
		return nil, err
	}
	parts := [][]Info{k.List(who)}
	for _, t := range told {
		parts = append(parts, t.Answer)
	}
	all, _ := peer.Merge(0, newestFirst, parts...)
	return all, nil
}

func newestFirst(a, b Info) int {
	return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
}
