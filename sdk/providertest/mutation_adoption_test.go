package providertest_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// siblings are the providers of one account, of all brokers and processes of a test.
type siblings struct {
	mu  sync.Mutex
	all []*adopting
}

// each calls a function for all of them.
func (s *siblings) each(call func(*adopting)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		call(p)
	}
}

// adopting is the provider with calls changed that have to do with other brokers.
type adopting struct {
	*local.Provider
	siblings *siblings
	brokerID string
	created  map[string]sdk.Instance

	create  func(context.Context, sdk.CreateRequest) (sdk.Instance, error)
	destroy func(context.Context, string) error
	list    func(context.Context) ([]sdk.Instance, error)
	listOf  func(context.Context, string) ([]sdk.Instance, error)
	adopt   func(context.Context, string, string) error
	release func(context.Context, string) error
	end     func(context.Context) error
}

// adoptions makes providers with a change of theirs, which know each other.
func adoptions(change func(*adopting)) func(*local.Provider) sdk.Provider {
	family := &siblings{}
	return func(p *local.Provider) sdk.Provider {
		a := &adopting{
			Provider: p, siblings: family, created: map[string]sdk.Instance{},
			create: p.Create, destroy: p.Destroy, list: p.List, listOf: p.ListOf, adopt: p.Adopt, release: p.Release, end: p.Close,
		}
		change(a)
		family.mu.Lock()
		defer family.mu.Unlock()
		family.all = append(family.all, a)
		return a
	}
}

func (a *adopting) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	a.siblings.mu.Lock()
	a.brokerID = req.BrokerID
	a.siblings.mu.Unlock()
	return a.Provider.Configure(ctx, req)
}

func (a *adopting) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	made, err := a.create(ctx, req)
	if err == nil {
		a.siblings.mu.Lock()
		defer a.siblings.mu.Unlock()
		a.created[made.ID] = made
	}
	return made, err
}

// made are the instances that this process has made.
func (a *adopting) made() map[string]sdk.Instance {
	a.siblings.mu.Lock()
	defer a.siblings.mu.Unlock()
	return maps.Clone(a.created)
}

func (a *adopting) Destroy(ctx context.Context, id string) error { return a.destroy(ctx, id) }

func (a *adopting) List(ctx context.Context) ([]sdk.Instance, error) { return a.list(ctx) }

func (a *adopting) ListOf(ctx context.Context, broker string) ([]sdk.Instance, error) {
	return a.listOf(ctx, broker)
}

func (a *adopting) Adopt(ctx context.Context, id, broker string) error {
	return a.adopt(ctx, id, broker)
}

func (a *adopting) Release(ctx context.Context, id string) error { return a.release(ctx, id) }

func (a *adopting) Close(ctx context.Context) error { return a.end(ctx) }

// destroyEverywhere destroys an instance, whoever has it by now.
func (a *adopting) destroyEverywhere(id string) {
	a.siblings.each(func(other *adopting) {
		if err := other.Provider.Destroy(context.Background(), id); err != nil {
			panic(err)
		}
	})
}

// carries reports whether an instance carries the ID of this broker.
func (a *adopting) carries(ctx context.Context, id string) bool {
	list, err := a.Provider.ListOf(ctx, a.brokerID)
	return err == nil && slices.ContainsFunc(list, func(i sdk.Instance) bool { return i.ID == id })
}

func TestWrongAdoptionsAreFound(t *testing.T) {
	// also does something more after an adoption of what another broker had.
	also := func(more func(a *adopting, id string)) func(*local.Provider) sdk.Provider {
		return adoptions(func(a *adopting) {
			a.adopt = func(ctx context.Context, id, broker string) error {
				err := a.Provider.Adopt(ctx, id, broker)
				if err == nil && broker != a.brokerID {
					more(a, id)
				}
				return err
			}
		})
	}
	checkMutations(t, map[string]mutation{
		"all brokers have the same": {among: "adoption/what another broker has", fails: []string{" is listed by its ID, and by no other"}, wraps: adoptions(func(a *adopting) {
			a.listOf = func(ctx context.Context, _ string) (all []sdk.Instance, err error) {
				a.siblings.each(func(other *adopting) {
					list, failed := a.Provider.ListOf(ctx, other.brokerID)
					if all = append(all, list...); failed != nil {
						err = failed
					}
				})
				return all, err
			}
		})},
		"it has the label of the broker that made it": {among: "adoption/what was adopted is", fails: []string{" listed as the new broker's"}, wraps: adoptions(func(a *adopting) {
			a.list = func(ctx context.Context) ([]sdk.Instance, error) {
				list, err := a.Provider.List(ctx)
				for i := range list {
					if _, own := a.made()[list[i].ID]; !own {
						list[i].Labels = maps.Clone(list[i].Labels)
						list[i].Labels[sdk.LabelBroker] = "another"
					}
				}
				return list, err
			}
		})},
		"the former broker lists it for ever": {among: "adoption/what was released is not", fails: []string{" listed"}, wraps: adoptions(func(a *adopting) {
			a.list = func(ctx context.Context) ([]sdk.Instance, error) {
				list, err := a.Provider.List(ctx)
				for id, i := range a.made() {
					if !slices.ContainsFunc(list, func(listed sdk.Instance) bool { return listed.ID == id }) {
						list = append(list, i)
					}
				}
				return list, err
			}
		})},
		"files are forgotten": {
			among: "adoption/(files|the next)", fails: []string{"adoption/files are read and written", "adoption/files stay, and code runs", "adoption/the next process adopts it again"},
			wraps: also(func(a *adopting, id string) {
				for _, file := range []string{"providertest.txt", "of-the-former"} {
					_ = a.RemoveFile(context.Background(), id, file, false)
				}
			}),
		},
		"what runs is ended": {among: "adoption/what runs", patience: 0.5, fails: []string{" goes on"}, wraps: also(func(a *adopting, id string) {
			a.siblings.each(func(other *adopting) { _ = other.EndCommands(context.Background(), id) })
		})},
		"what is paused goes on": {among: "adoption/a paused", fails: []string{" instance is adopted paused"}, wraps: also(func(a *adopting, id string) {
			_ = a.Resume(context.Background(), id)
		})},
		"it is not destroyed": {among: "adoption/what was adopted can", fails: []string{" be destroyed"}, wraps: adoptions(func(a *adopting) {
			a.destroy = func(ctx context.Context, id string) error {
				if _, own := a.made()[id]; !own {
					return nil
				}
				return a.Provider.Destroy(ctx, id)
			}
		})},
		"an unknown one is a success": {among: "adoption/what is not there", fails: []string{" is not found"}, wraps: adoptions(func(a *adopting) {
			a.adopt = func(ctx context.Context, id, broker string) error {
				return forgiving(a.Provider.Adopt(ctx, id, broker), sdk.CodeNotFound)
			}
		})},
		"it is taken from whoever has it": {among: "adoption/what yet another broker has", fails: []string{" is not found"}, wraps: adoptions(func(a *adopting) {
			a.adopt = func(ctx context.Context, id, broker string) error {
				err := a.Provider.Adopt(ctx, id, broker)
				a.siblings.each(func(other *adopting) {
					if sdk.CodeOf(err) == sdk.CodeNotFound {
						err = a.Provider.Adopt(ctx, id, other.brokerID)
					}
				})
				return err
			}
		})},
		"what carries its own ID is not found": {
			among: "adoption/(to adopt|the next)", fails: []string{"adoption/the next process adopts it again", "adoption/to adopt one's own is a success", "adoption/to adopt twice is a success"},
			wraps: adoptions(func(a *adopting) {
				a.adopt = func(ctx context.Context, id, broker string) error {
					if a.carries(ctx, id) {
						return sdk.Errorf(sdk.CodeNotFound, "no such instance")
					}
					return a.Provider.Adopt(ctx, id, broker)
				}
			}),
		},
		"what was released is never had again": {among: "adoption/what was released can", fails: []string{" be adopted again"}, wraps: adoptions(func(a *adopting) {
			a.adopt = func(ctx context.Context, id, broker string) error {
				if _, own := a.made()[id]; own && !a.carries(ctx, id) {
					return sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				return a.Provider.Adopt(ctx, id, broker)
			}
		})},
		"what is not known cannot be released": {among: "adoption/to release", fails: []string{" what is not known is a success"}, wraps: adoptions(func(a *adopting) {
			a.release = func(ctx context.Context, id string) error {
				if _, own := a.made()[id]; !own {
					return sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				return a.Provider.Release(ctx, id)
			}
		})},
		"the former broker ends what it finds when it comes back": {among: "adoption/a broker that ends", fails: []string{" and comes back leaves alone what another one has"}, wraps: adoptions(func(a *adopting) {
			a.release = func(_ context.Context, id string) error {
				a.destroyEverywhere(id)
				return nil
			}
		})},
		"it ends at the time that it had": {among: "adoption/the end", fails: []string{" that the former broker knew ends nothing"}, wraps: adoptions(func(a *adopting) {
			a.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := a.Provider.Create(ctx, req)
				if err == nil && req.TTL > 0 {
					time.AfterFunc(req.TTL, func() { a.destroyEverywhere(made.ID) })
				}
				return made, err
			}
		})},
		"without the lease it is destroyed": {among: "adoption/without", fails: []string{" the lease nothing is made or destroyed"}, wraps: adoptions(func(a *adopting) {
			a.destroy = func(ctx context.Context, id string) error {
				return a.Provider.Destroy(sdk.WithLease(ctx, nil), id)
			}
		})},
		"without the lease one is made": {among: "adoption/without", fails: []string{" the lease nothing is made or destroyed"}, wraps: adoptions(func(a *adopting) {
			a.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				return a.Provider.Create(sdk.WithLease(ctx, nil), req)
			}
		})},
	})
}
