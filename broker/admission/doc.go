// Package admission decides which connections the broker keeps, so that nobody
// can take all its file descriptors away: neither from those who have a token nor
// from the state, the audit log and the plugins.
//
// A Gate stands before all listeners of a server. It waits out errors of accept,
// counts connections, and closes old ones of strangers, who have shown no valid
// token on them, to make room for new ones. Who is no stranger is for the server
// to say, by the Ticket of the connection. The package knows nothing of HTTP.
package admission
