// Package instance owns the life of sandboxes: it makes them with a provider,
// knows whose they are, runs code in them and destroys them when their time is
// over. It knows nothing of HTTP, of configuration files or of plugin
// processes.
//
// Start with Service. Its registry holds one entry for each instance, from the
// moment its creation begins (create.go) until the provider has confirmed its
// end (destroy.go). One session of a tenant has at most one live instance per
// provider. An entry in use is held; what nobody holds ends when its time is over
// (expiry.go), which use and renewal (renew.go) put off. A creation that failed without
// telling what it has left (verdict.go) keeps its entry until that is certain
// (settle.go). Reconcile brings the registry and a provider back into agreement
// (reconcile.go).
//
// What must be known when this process is no more goes through a Journal (journal.go);
// what an earlier process left is settled in recover.go, and what owners are told of
// instances that ended is in ended.go.
package instance
