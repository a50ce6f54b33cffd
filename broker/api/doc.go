// Package api is the broker's REST API: routes, authentication, the strict
// reading of requests, problem documents, and the OpenAPI document, which is
// made from the same Go types that the handlers take and return
// (docs/decisions/0001-openapi-from-go-types.md).
//
// Start with routes.go, which lists every route. operation.go binds one to
// Fiber and to the document; fiber.Ctx goes no further than that. What the
// routes do is in package instance.
package api
