// Package rest serves APIs over HTTP: operations and their handlers, the strict
// reading of requests, problems, events, idempotency, and the OpenAPI document,
// which is made from the Go types that the handlers take and return
// (docs/decisions/0001-openapi-from-go-types.md).
//
// A Server has the listener, the tokens, the limits, the log and the metrics. The
// APIs stand beside each other on it: each says where it looks for tokens, how its
// problems look, and which paths are its own. The package knows nothing of what the
// operations do, and imports none of the APIs
// (docs/decisions/0014-the-api-in-rooms.md).
//
// Start with api.go, then operation.go, which binds a handler to Fiber and to the
// document; fiber.Ctx goes no further than that.
package rest
