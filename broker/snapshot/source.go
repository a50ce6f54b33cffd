package snapshot

import (
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Source has a request for an instance go on from a snapshot of the tenant: on the provider
// that has it, with its template. The error is SB013 with the field "snapshot" for one that
// is not there, and SB010 where the request names another provider or template.
func (s *Service) Source(who tenant.Tenant, id string, req *instance.CreateRequest) error {
	r, err := s.found(who.Name, id)
	switch {
	case sdk.CodeOf(err) == sdk.CodeNotFound:
		return sdk.FieldErrorf(sdk.CodeNotFound, "snapshot", "no such snapshot: it never existed, was deleted or has expired")
	case err != nil:
		return err
	}
	return s.source(r, r.ID, req)
}

// source is Source for a snapshot that is known; from is what the owner calls the origin.
func (s *Service) source(r Record, from string, req *instance.CreateRequest) error {
	switch {
	case req.Provider != "" && req.Provider != r.Provider:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "the snapshot is at the provider %q; leave it out, or name that one", r.Provider)
	case req.Template != "" && req.Template != r.Template:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "the snapshot is of the template %q; leave it out, or name that one", r.Template)
	}
	key, err := s.keyOf(r.Tenant)
	if err != nil {
		return err
	}
	req.Provider, req.Template = r.Provider, r.Template
	req.Snapshot = &instance.Source{From: from, SnapshotID: r.ID, ProvidersID: r.Made, Key: key, Contexts: r.Contexts, Network: r.Network}
	if !r.Memory {
		req.Snapshot.Contexts = nil
	}
	return nil
}
