// Package executions remembers the executions of the broker's own API: what they have told,
// event by event, for who reads it again after a cut, and how they stand, for who did not
// wait for them.
//
// Start with Keeper. What an event says is the business of who appends it; how code is run
// is package instance's. Logs are in memory and nowhere else, since output may hold
// secrets: they end with the process. Of a detached execution the state file has how it
// stands, its last event and what main returned, so that the next process can say what
// became of it.
package executions
