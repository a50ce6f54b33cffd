// Package instance is the flow of the requests for sandboxes: it finds a provider, has an
// instance made or finds the session's, runs code in it and destroys it. It knows nothing
// of HTTP, of configuration files or of plugin processes.
//
// Start with Service. Which instances there are, and in which state each is, is in package
// registry; package reconcile brings that into agreement with the providers. A request
// looks for a provider (search.go, target.go), claims an instance there and may have it
// made (creation.go); a creation without a clear answer is resolved (ambiguous.go). What
// must be known when this process is no more goes through a Journal (journal.go).
package instance
