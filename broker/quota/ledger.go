package quota

import (
	"context"
	"time"
)

// Ledger is where the brokers on one database have what each of them holds of the quotas of
// tenants. All together hold no more of one than it has.
type Ledger interface {
	// Holdings returns what this broker holds, as an earlier process of it has left that.
	Holdings(ctx context.Context) ([]Holding, error)
	// Hold makes all claims, and returns what is held of each then. An error says that it is
	// not known which were made; each may be made again. Errors carry SB009.
	Hold(ctx context.Context, claims []Claim) ([]Holding, error)
	// Wanted returns of what other brokers want more than they got, and how many brokers live.
	Wanted(ctx context.Context) (keys []Key, brokers int, err error)
	// Listen calls heard when Wanted may have changed, or something has come back, until ctx
	// ends. It may miss that.
	Listen(ctx context.Context, heard func())
}

// Key is a quota of a tenant in a day or a month, or at a time, which has no Period.
type Key struct {
	Tenant string
	Limit  Limit
	Period string
}

// Claim says what a broker holds from now on.
type Claim struct {
	Key
	// Most is the limit.
	Most int64
	// Used is what it has used, or has in use, and Keep that and what it goes on to hold besides.
	// It holds Keep whatever the limit.
	Used, Keep int64
	// Want is what it wants beside Used, as far as it is there, but not less than Least.
	Want, Least int64
	// Spare is what it takes besides as a reserve, where there is plenty.
	Spare int64
	// Waits says when those have come who wait for one each, the earliest first.
	Waits []time.Time
	// Lasting says that it is held beyond the death of the broker.
	Lasting bool
}

// Holding is what a broker holds.
type Holding struct {
	Key
	Held int64
	// Others is what other brokers hold, and Slack the part of it that may be unused, and then
	// comes back in a moment.
	Others, Slack int64
	// Wanted says that another broker wants more than it got.
	Wanted bool
}
