// Package origin carries with a context why something happens: which request asked
// for it, or what in the broker. It goes from the API, and from whatever else begins
// work, to the audit log, and the request's ID to the plugins; nothing in between
// looks at it or decides by it.
package origin

import "context"

// Cause is why something happens.
type Cause string

// The causes.
const (
	Request   Cause = "request"   // a tenant asked for it
	Expired   Cause = "expired"   // the time of the instance is over
	NotKept   Cause = "not_kept"  // the instance was made for what has ended
	Shutdown  Cause = "shutdown"  // the broker stops
	Reconcile Cause = "reconcile" // a provider has what the broker does not know
	Reload    Cause = "reload"    // the configuration is another
	Admin     Cause = "admin"     // an administrator asked for it
	Broker    Cause = "broker"    // the broker cleans up
	Sandbox   Cause = "sandbox"   // a program in an instance did it
)

// Origin says where work comes from.
type Origin struct {
	Cause Cause
	// Tenant that asked, "" if none did.
	Tenant string
	// RequestID and Remote, the address of who sent the request, are empty where
	// there is no request.
	RequestID, Remote string
	// FrontDoor names the front door whose request it is; empty for the broker's own API.
	FrontDoor string
}

type key struct{}

// With returns a context that carries an origin.
func With(ctx context.Context, o Origin) context.Context { return context.WithValue(ctx, key{}, o) }

// Of returns the origin of a context. Without one the cause is Broker.
func Of(ctx context.Context) Origin {
	if o, ok := ctx.Value(key{}).(Origin); ok {
		return o
	}
	return Origin{Cause: Broker}
}

// Known reports whether a context has an origin.
func Known(ctx context.Context) bool {
	_, ok := ctx.Value(key{}).(Origin)
	return ok
}
