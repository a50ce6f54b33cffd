// Package registry knows which instances there are, whose they are, and in which State
// each of them is. It holds their table of states (state.go): what happens to an
// instance is an Event, and transition refuses what the table does not have.
//
// The registry does no I/O and waits for nothing. It takes its lock inside, and callers
// get snapshots (Instance) or a handle (Entry) whose methods lock. What follows from a
// transition is for its Effects: the owner of the registry destroys, finds out and
// writes down.
//
// No operation looks at all entries: there are indexes by tenant, by session, by
// provider and by the provider's ID, and queues by time for what expires and for what
// is to be charged.
package registry
