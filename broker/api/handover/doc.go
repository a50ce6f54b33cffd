// Package handover lets net/http answer single requests that came to fasthttp.
//
// fasthttp reads a whole body before the handler runs and has no context, no
// flushing writer and no hijacking that a handler could wait for; its streaming
// mode opens request smuggling. What streams is therefore taken over: the
// connection goes to an http.Server of ours, together with the head of the
// request as fasthttp understood it, and is closed after that one answer. Bodies
// with bounded memory, http.Flusher, http.Hijacker, Expect: 100-continue and
// contexts that end with the client are then those of the standard library
// (docs/decisions/0006-streams-by-net-http.md).
//
// Start with Server: Hold keeps a body on the connection, Take hands the request
// over. The package knows nothing of Fiber, routes or problems.
package handover
