// Package v1 is the broker's own API: its routes, each beside what answers it. The JSON
// types are those of sdk/client, and how requests are read and answered is package
// rest's business. What the routes do is in package instance.
//
// Start with Add. The routes stand in groups, one for a file or two: executions,
// instances, contexts, commands, files, ports, the broker itself, and what is for
// administrators.
package v1
