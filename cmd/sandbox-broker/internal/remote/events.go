package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Events tells what happens to instances and providers.
type Events struct {
	Interval   time.Duration `default:"1s" placeholder:"DURATION" help:"How often the broker is asked. What begins and ends in between is not seen."`
	AllTenants bool          `name:"all-tenants" short:"a" help:"The instances of all tenants; takes an administrator's token."`
	Output     string        `short:"o" default:"table" enum:"table,json" help:"A line each: ${enum}."`
	Connection
}

// Help is shown below the usage.
func (*Events) Help() string {
	return `It begins with what is there, and goes on until Ctrl-C. The broker is asked again and
again: who must not miss anything reads the audit log.

Examples:
  sandbox-broker events
  sandbox-broker events --output json | jq -r 'select(.event == "gone") | .name'`
}

// event is something that happened, as it is printed in JSON.
type event struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"` // instance or provider
	Name string    `json:"name"`
	// Event is created, gone or the state that it is in.
	Event  string `json:"event"`
	Detail string `json:"detail,omitempty"`
}

// shortestInterval is how often a broker may be asked.
const shortestInterval = 100 * time.Millisecond

// Run asks until it is ended. A broker that does not answer for a while is an event too.
func (c *Events) Run(ctx context.Context, console *Console) error {
	if c.Interval < shortestInterval {
		return usageErrorf("--interval must be %s or more", shortestInterval)
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	before, first, silent := states{}, true, false
	for {
		now, err := c.look(ctx, broker)
		_, unanswered := errors.AsType[*client.Unanswered](err)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || !unanswered):
			return err
		case err != nil:
			if !silent {
				silent = true
				fmt.Fprintf(console.Err, "sandbox-broker: %v; asking again\n", err)
			}
		default:
			if err := c.tell(console, before.until(now, first, time.Now())); err != nil {
				return err
			}
			before, first, silent = now, false, false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// thing is an instance or a provider by its name.
type thing struct{ kind, name string }

// states are those of all things, with more for people.
type states map[thing]struct{ state, detail string }

// look asks how everything is.
func (c *Events) look(ctx context.Context, broker *client.Client) (states, error) {
	path, field := pathInstances, "instances"
	if c.AllTenants {
		path, field = pathAdminInstances, "data"
	}
	_, instances, err := pages[listed](ctx, broker, path, field, nil)
	if err != nil {
		return nil, err
	}
	seen := states{}
	for _, i := range instances {
		seen[thing{"instance", i.ID}] = struct{ state, detail string }{i.State, "at " + i.Provider}
	}
	if c.AllTenants {
		list, err := broker.Admin().Providers(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range list.Data {
			seen[thing{"provider", p.ID}] = struct{ state, detail string }{p.State, p.Reason}
		}
		return seen, nil
	}
	list, err := broker.Providers(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range list.Providers {
		seen[thing{"provider", p.ID}] = struct{ state, detail string }{p.State, p.Reason}
	}
	return seen, nil
}

// until are the events between what was seen before and now, in the order of names.
func (before states) until(now states, first bool, at time.Time) []event {
	all := maps.Clone(now)
	maps.Copy(all, before)
	things := slices.SortedFunc(maps.Keys(all), func(a, b thing) int {
		return slices.Compare([]string{a.kind, a.name}, []string{b.kind, b.name})
	})
	var events []event
	for _, t := range things {
		was, there := before[t]
		is, stays := now[t]
		e := event{Time: at.UTC(), Kind: t.kind, Name: t.name, Detail: is.detail}
		switch {
		case first:
			e.Event = is.state
		case !stays:
			e.Event, e.Detail = "gone", was.detail
		case !there:
			e.Event = "created"
		case was.state != is.state:
			e.Event = is.state
		default:
			continue
		}
		events = append(events, e)
	}
	return events
}

func (c *Events) tell(console *Console, events []event) error {
	for _, e := range events {
		line := fmt.Sprintf("%s  %-8s  %s  %s  %s", e.Time.Format(time.RFC3339), e.Kind, table.Printable(e.Name), table.Printable(e.Event), table.Printable(e.Detail))
		if c.Output == "json" {
			encoded, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line = string(encoded)
		}
		if _, err := fmt.Fprintln(console.Out, line); err != nil {
			return err
		}
	}
	return nil
}
