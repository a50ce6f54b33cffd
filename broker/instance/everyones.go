package instance

import (
	"context"
	"errors"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// What administrators do with the instances of everyone. Tenants never come here.

// errKilled is what the calls of executions end with whose instance is killed.
var errKilled = errors.New("an administrator destroyed the instance during the execution")

// ListAll is List for the tenant of that name, or for all tenants if it is empty.
func (s *Service) ListAll(owner string, req ListRequest) Page {
	return s.list(func(id ID) bool { return owner == "" || owner == id.Tenant }, req)
}

// Inspect is Get for the instance of whomever.
func (s *Service) Inspect(id string) (Info, error) { return s.Get(ownerOf(id), id) }

// Kill is Destroy for the instance of whomever. The calls of its executions end at
// once, also when its provider does not answer: that is why people kill.
func (s *Service) Kill(ctx context.Context, id string) error {
	return s.destroy(ctx, ownerOf(id), id, errKilled.Error(), func(e *entry) {
		s.logger.Info("an administrator destroys an instance", "instance", id, "provider", e.provider.Label(), "executions", e.running)
		e.reason = reasonKilled
		for _, r := range s.running {
			if r.entry == e {
				r.stop(errKilled)
			}
		}
	})
}

// ownerOf is the tenant whose instance has that ID, if there is such an instance.
func ownerOf(id string) tenant.Tenant {
	name, _, _ := strings.Cut(id, ":")
	return tenant.Tenant{Name: name}
}
