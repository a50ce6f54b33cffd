// Package client speaks to a sandbox broker over its REST API.
//
// It is for agents and tools in Go. Its types are the API: the broker's own handlers
// take and return them, and their tags make the OpenAPI document. A field that is said
// to be absent at times is a pointer, or has a zero value that means nothing else.
//
// Start with New and Client.Execute. What the broker refuses is an error of type
// *Problem; what became of code is data, also when the code has failed.
package client
