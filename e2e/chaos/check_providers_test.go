package chaos_test

import (
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// effects are those of all clouds, in order.
func (w *world) effects() (all []cloud.Effect) {
	for _, c := range w.clouds {
		all = append(all, c.Effects()...)
	}
	slices.SortStableFunc(all, func(a, b cloud.Effect) int { return a.At.Compare(b.At) })
	return all
}

// alive is what there is in all clouds, and in all other back ends.
func (w *world) alive() (all []cloud.Instance) {
	for _, b := range w.backends {
		for _, i := range b.alive(w.t) {
			all = append(all, i.Instance)
		}
	}
	for _, c := range w.clouds {
		all = append(all, c.Alive()...)
	}
	return all
}

// labels are those of all providers.
func (w *world) labels() (all []string) {
	for _, c := range w.clouds {
		all = append(all, c.Name())
	}
	for _, b := range w.backends {
		all = append(all, b.label())
	}
	return all
}

// providers serve whom they may, and only them, and answers name the one that did. The
// bound tenant may use the last of the labels.
func (f *findings) providers(events []event, effects []cloud.Effect, labels []string) {
	where := map[string]string{}
	for _, e := range effects {
		if e.Kind != cloud.Created {
			continue
		}
		where[idOf(e.Instance)] = e.Cloud
		if e.Instance.Labels[sdk.LabelTenant] == bound && e.Cloud != labels[len(labels)-1] {
			f.add("not allowed: %s was made for %s in %s", e.Instance.ID, bound, e.Cloud)
		}
	}
	for _, e := range events {
		if !e.answered() || e.Told == "" || e.Provider == "" {
			continue
		}
		switch at := where[e.Told]; {
		case at != e.Provider:
			f.add("misplaced: %s was told to be at %s, and was made in %q", e.Told, e.Provider, at)
		case e.Named != "" && e.Named != e.Provider:
			f.add("misplaced: %s was asked of %s, and is at %s", e.Told, e.Named, e.Provider)
		case (e.Reason == routing.ReasonFallback || e.PlacedBy == routing.ReasonFallback) && len(e.Tried) == 0,
			e.Reason != routing.ReasonFallback && e.Reason != routing.ReasonSession && len(e.Tried) > 0:
			f.add("unexplained: %s is at %s by %q, after %q", e.Told, e.Provider, e.Reason, e.Tried)
		}
	}
}

// process is what executes for a tenant.
type process struct{ tenant, broker, plugin string }

// executing is what goes on in plugins, as the clouds have seen it.
type executing map[process]int

// follow takes an effect down, and returns how many executions its tenant has with its
// broker. What a plugin has begun ends with it, whenever the cloud notices.
func (x executing) follow(e cloud.Effect) (now int) {
	p := process{e.Instance.Labels[sdk.LabelTenant], e.Broker, e.Process}
	switch e.Kind {
	case cloud.Executed:
		x[p]++
	case cloud.Ended:
		if _, runs := x[p]; runs {
			x[p]--
		}
	case cloud.Killed:
		for other := range x {
			if other.plugin == e.Process {
				delete(x, other)
			}
		}
	}
	for other, n := range x {
		if other.tenant == p.tenant && other.broker == p.broker {
			now += n
		}
	}
	return now
}

// concurrent executions are within the quota.
func (f *findings) concurrent(effects []cloud.Effect) {
	running := executing{}
	for _, e := range effects {
		if n := running.follow(e); e.Kind == cloud.Executed && n > maxConcurrent {
			f.add("above a limit: %s has %d executions at %s", e.Instance.Labels[sdk.LabelTenant], n, e.At.Format(time.RFC3339Nano))
		}
	}
}
