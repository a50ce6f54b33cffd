// Package sink sends the lines of an audit log to other machines as well: to a
// syslog server or to a webhook.
//
// Start with Follower. It reads the files of the log, up to the last line that is on
// disk, and keeps in a file beside them how far it has come: what cannot be sent now
// is sent later, by the next run if need be, and nothing waits for it in memory. A
// line may come twice; its number tells. What happens in the broker does not wait
// for any of this.
package sink
