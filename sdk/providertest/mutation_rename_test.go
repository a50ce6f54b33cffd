package providertest_test

import (
	"context"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// renamed gives instances other IDs.
type renamed struct {
	*local.Provider
	name func(n int) string

	mu   sync.Mutex
	real map[string]string
}

func renaming(name func(n int) string) func(*local.Provider) sdk.Provider {
	return func(p *local.Provider) sdk.Provider {
		return &renamed{Provider: p, name: name, real: map[string]string{}}
	}
}

func (r *renamed) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	made, err := r.Provider.Create(ctx, req)
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.name(len(r.real) + 1)
	r.real[id] = made.ID
	made.ID = id
	return made, err
}

func (r *renamed) Destroy(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Provider.Destroy(ctx, r.real[id])
}
