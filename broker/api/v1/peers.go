package v1

import (
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// silent tells administrators which brokers have not answered for a list, whose part of it is
// missing. The error is any other one. Tenants get an error in the place of such a list: they
// may decide by it what to make and what to end.
func silent(err error) (brokers []string, _ error) {
	peers, some := peer.Silent(err)
	if !some {
		return nil, err
	}
	for _, p := range peers {
		brokers = append(brokers, p.ID)
	}
	return brokers, nil
}

// errApart refuses an instance for a session that has one here.
var errApart = sdk.FieldErrorf(sdk.CodeConflict, "session_id", "the session has an instance on another machine than the snapshot or the volumes; take another session")

// apart is the error for what a new instance shall have and another broker has: the session may
// be here.
func (h instanceRoutes) apart(who tenant.Tenant, session string, err error) error {
	if peer.Has(err) && session != "" && len(h.instances.List(who, instance.ListRequest{Session: session, Limit: 1}).Instances) > 0 {
		return errApart
	}
	return err
}
